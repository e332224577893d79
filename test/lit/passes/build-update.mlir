// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.momentum=0.9,optimizer.weight_decay=0.1,optimizer.decay_exempt=@1d,train.clip_norm=1" --build-update | FileCheck %s --check-prefix=SGD
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adamw,train.accumulate=2" --build-update | FileCheck %s --check-prefix=ACC
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adam,optimizer.moments=bf16" --build-update | FileCheck %s --check-prefix=BF16
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp" --build-update | FileCheck %s --check-prefix=DDP
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp,parallel.average=ranks,parallel.reduce_dtype=bf16" --build-update | FileCheck %s --check-prefix=RANKS
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp,train.accumulate=2" --build-update | FileCheck %s --check-prefix=WINDOW
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=adam,optimizer.moments=bf16,parallel.mode=ddp" --build-update | FileCheck %s --check-prefix=SHARED
// RUN: not tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.decay_exempt=wx*" --build-update 2>&1 | FileCheck %s --check-prefix=NO-MATCH
// RUN: not tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.decay_exempt=@bia" --build-update 2>&1 | FileCheck %s --check-prefix=NO-SELECTOR
// RUN: not tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,optimizer.nesterov=true" --build-update 2>&1 | FileCheck %s --check-prefix=NESTEROV

train.variable @w : tensor<2x4xf32> {role = "parameter"}
train.variable @b : tensor<4xf32> {role = "parameter"}
train.variable @scale : tensor<f32> {role = "frozen"}

func.func @forward(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64}, %unused: tensor<3xf32> {train.name = "extra"})
    -> (tensor<4xf32> {train.name = "y"}) {
  return %x : tensor<4xf32>
}
func.func @loss(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<f32> {train.name = "correct"}, tensor<f32> {train.name = "counted"}) {
  %s = train.read @scale : tensor<f32>
  return %s, %s, %s, %s : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
func.func @backward(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<2x4xf32> {train.gradient_of = "w"}, tensor<4xf32> {train.gradient_of = "b"})
    attributes {train.loss_name = "own"} {
  %s = train.read @scale : tensor<f32>
  %g = train.broadcast %x : tensor<4xf32> -> tensor<2x4xf32>
  return %s, %s, %g, %x : tensor<f32>, tensor<f32>, tensor<2x4xf32>, tensor<4xf32>
}

// Two groups, whose numbers share one vector of scalars; momentum is state.
// SGD: train.groups = [{lr_scale = 1.000000e+00 : f64, name = "default", parameters = ["w"], weight_decay = 1.000000e-01 : f64}, {lr_scale = 1.000000e+00 : f64, name = "no weight decay", parameters = ["b"], weight_decay = 0.000000e+00 : f64}]
// SGD-SAME: train.scalars = ["clip_norm",
// SGD: train.variable @w : {{.*}}group = 0
// SGD: train.variable @b : {{.*}}group = 1
// SGD: train.variable @"w/momentum_buffer" : tensor<2x4xf32> {fill = 0.000000e+00 : f64, group = 0 : i64, role = "optimizer"}
// SGD-NOT: func.func @forward
// SGD-NOT: func.func @backward
// SGD: func.func @step(%{{.*}}: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64}, %{{.*}}: tensor<f32> {train.variable = "scale"}
// SGD-SAME: %[[W:[^ ]*]]: tensor<2x4xf32> {train.variable = "w"}
// SGD-SAME: tensor<5xf32> {train.scalars}
// SGD-SAME: (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<f32> {train.name = "grad_norm"}, tensor<2x4xf32> {train.variable = "w"}, tensor<2x4xf32> {train.variable = "w/momentum_buffer"}
// SGD-SAME: attributes {train.entry = "step"}
// The norm of rows first, then the rest; the gradient is averaged and clipped; only a finite step is applied.
// SGD: train.reduce sum %{{.*}} [1] : tensor<2x4xf32> -> tensor<2x1xf32>
// SGD: %[[NORM:.*]] = train.sqrt
// SGD: train.min
// SGD: train.is_finite
// SGD: %[[OK:.*]] = train.and
// SGD: %[[OKS:.*]] = train.broadcast %[[OK]] : tensor<i1> -> tensor<2x4xi1>
// SGD: train.select %[[OKS]], %{{.*}}, %[[W]] : tensor<2x4xi1>, tensor<2x4xf32>
// SGD: func.func @evaluate({{.*}}train.name = "correct"
// The graph's own outputs, and all of its own inputs, whether they are read or not.
// SGD: func.func @predict({{.*}}train.name = "extra"{{.*}} -> (tensor<4xf32> {train.name = "y"})
// SGD: func.func @gradients({{.*}} -> (tensor<f32> {train.name = "own"}, tensor<2x4xf32> {train.name = "gradient:w"}, tensor<4xf32> {train.name = "gradient:b"})

// Moments are stored in bf16, computed in f32, and rounded by sixteen random bits; a parameter's two moments share a draw.
// BF16: train.variable @"w/exp_avg" : tensor<2x4xbf16>
// BF16: train.variable @"w/exp_avg_sq" : tensor<2x4xbf16>
// BF16: func.func @step({{.*}}train.counters
// BF16: train.cast %{{.*}} : tensor<2x4xbf16> -> tensor<2x4xf32>
// BF16: %[[DRAWN:.*]] = train.random bits %{{.*}} id = {{.*}} -> tensor<2x4xui32>
// BF16: train.and %[[DRAWN]]
// BF16: train.bitcast %[[MOMENT:.*]] : tensor<2x4xf32> -> tensor<2x4xui32>
// A NaN stays a NaN.
// BF16: train.compare eq %[[MOMENT]], %[[MOMENT]]
// BF16: train.cast %{{.*}} : tensor<2x4xf32> -> tensor<2x4xbf16>
// BF16: train.shift_right
// BF16: -> (tensor

// ACC: train.variable @"w/gradient" : tensor<2x4xf32> {{.*}}role = "accumulator"
// ACC: train.variable @"loss/sum" : tensor<f32>
// ACC: train.variable @"loss/weight" : tensor<f32>
// The first micro-batch writes the accumulators, and so does not read them.
// ACC: func.func @accumulate_first(
// ACC-NOT: %{{.*}} {train.variable = "w/gradient"}, %
// ACC-SAME: -> (
// ACC-SAME: tensor<2x4xf32> {train.variable = "w/gradient"}
// ACC: func.func @accumulate_next({{.*}}: tensor<2x4xf32> {train.variable = "w/gradient"}{{.*}} -> (
// ACC: train.add
// ACC: func.func @update({{.*}} -> ({{.*}}train.name = "grad_norm"
// ACC-NOT: func.func @step

// NO-MATCH: optimizer.decay_exempt: `wx*` matches no parameter; there are w, b, scale
// NO-SELECTOR: unknown selector `@bia`; known: @bias, @norm, @embedding, @1d
// NESTEROV: optimizer.nesterov needs momentum

// Ranks sum numerator, denominator and gradients; the rest is one rank's update.
// DDP-LABEL: func.func @step
// DDP-SAME: %[[X:[a-z0-9]+]]: tensor<4xf32> {train.name = "x"
// DDP-SAME: %[[SCALE:[a-z0-9]+]]: tensor<f32> {train.variable = "scale"}
// DDP-DAG: %[[GB:.*]] = train.all_reduce(%[[X]]) : (tensor<4xf32>) -> tensor<4xf32>
// DDP-DAG: %[[W:.*]] = train.broadcast %[[X]]
// DDP: %[[GW:.*]] = train.all_reduce(%[[W]]) : (tensor<2x4xf32>) -> tensor<2x4xf32>
// DDP: train.mul %[[GW]], %[[GW]]
// DDP: train.mul %[[GB]], %[[GB]]
// DDP: return
// DDP-LABEL: func.func @gradients
// DDP-NOT: all_reduce

// Each rank first divides by its own denominator, and a sum of ones counts the ranks.
// RANKS-LABEL: func.func @step
// RANKS: %[[INVERSE:.*]] = train.div
// RANKS: %[[OWN:.*]] = train.broadcast %[[INVERSE]]
// RANKS-NEXT: %[[MEAN:.*]] = train.mul %{{.*}}, %[[OWN]]
// RANKS-NEXT: %[[NARROW:.*]] = train.cast %[[MEAN]] : tensor<4xf32> -> tensor<4xbf16>
// RANKS-NEXT: %[[SUM:.*]] = train.all_reduce(%[[NARROW]]) : (tensor<4xbf16>) -> tensor<4xbf16>
// RANKS-NEXT: train.cast %[[SUM]] : tensor<4xbf16> -> tensor<4xf32>
// RANKS: %[[ONE:.*]] = train.constant dense<1.000000e+00> : tensor<f32>
// RANKS-NEXT: train.all_reduce(%[[ONE]]) : (tensor<f32>) -> tensor<f32>

// Nothing is summed over ranks before the window is complete; then the accumulators are, in their own memory.
// WINDOW-LABEL: func.func @accumulate_first
// WINDOW-NOT: all_reduce
// WINDOW-LABEL: func.func @accumulate_next
// WINDOW-NOT: all_reduce
// WINDOW-LABEL: func.func @update
// WINDOW-SAME: %[[AW:[a-z0-9]+]]: tensor<2x4xf32> {train.variable = "w/gradient"}
// WINDOW-SAME: tensor<2x4xf32> {train.variable = "w/gradient"}, tensor<4xf32> {train.variable = "b/gradient"}
// WINDOW: %[[SW:.*]] = train.all_reduce(%[[AW]])
// WINDOW: return %{{.*}}, %{{.*}}, %{{.*}}, %[[SW]],

// Every rank rounds moments alike: the random numbers do not depend on the micro-batch, which differs by rank.
// SHARED-LABEL: func.func @step
// SHARED: %[[MASK:.*]] = train.constant dense<[4294967295, 4294967295, 4294967295, 0]> : tensor<4xui32>
// SHARED-NEXT: %[[KEY:.*]] = train.and %{{.*}}, %[[MASK]]
// SHARED-NEXT: train.random bits %[[KEY]]
