// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd" --build-update | FileCheck %s --check-prefix=STEP
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd" --build-update | FileCheck %s --check-prefix=REST
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,train.accumulate=2" --build-update | FileCheck %s --check-prefix=ACC
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp" --build-update | FileCheck %s --check-prefix=DDP
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp,train.accumulate=2" --build-update | FileCheck %s --check-prefix=WINDOW
// RUN: tcc-opt %s --set-recipe="settings=optimizer.kind=sgd,parallel.mode=ddp,train.virtual_ranks=4,parallel.least_ranks=2" --build-update | FileCheck %s --check-prefix=VIRTUAL

// A step keeps the ops that depend on the mode, and writes state only where the loss is finite; counters come last.
// STEP: func.func @step(
// STEP-SAME: %[[MEAN:[^ ]*]]: tensor<3xf32> {train.variable = "mean"}
// STEP-SAME: {train.scalars}, %[[KEY:[^ ]*]]: tensor<4xui32> {train.counters})
// STEP-SAME: tensor<3xf32> {train.variable = "mean"})
// STEP: train.dropout %{{.*}}, %[[KEY]] id = 5
// STEP: %{{.*}}, %[[BATCH:[^ ,]*]], %{{.*}} = train.batch_norm
// STEP: train.select %{{.*}}, %[[BATCH]], %[[MEAN]]

// All other entries except `gradients` are in inference mode, and only a step writes state.
// REST: func.func @evaluate(
// REST-NOT: ->{{.*}}train.variable
// REST-NOT: train.dropout
// REST-NOT: train.batch_norm
// REST: func.func @predict(
// REST-NOT: train.dropout
// REST-NOT: train.batch_norm
// REST: train.rsqrt
// REST: func.func @gradients(
// REST-NOT: ->{{.*}}train.variable
// REST: train.dropout
// REST: train.batch_norm

// ACC: func.func @accumulate_next(
// ACC-SAME: {train.counters}
// ACC-SAME: tensor<3xf32> {train.variable = "mean"})
// ACC: func.func @update(
// ACC-NOT: train.counters
// ACC: func.func @evaluate(

// Running statistics are those of rank 0: sent after each step, or once the window is complete.
// DDP: func.func @step(
// DDP: %[[FIRST:.*]] = train.rank_broadcast(%{{.*}}) : (tensor<3xf32>) -> tensor<3xf32>
// DDP-NEXT: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[FIRST]] :
// WINDOW-LABEL: func.func @accumulate_next(
// WINDOW-NOT: rank_broadcast
// WINDOW-LABEL: func.func @update(
// WINDOW-SAME: %[[MEAN:[^ ]*]]: tensor<3xf32> {train.variable = "mean"}
// WINDOW: train.rank_broadcast(%[[MEAN]])

// Two virtual ranks on each of the least number of ranks: one level of sums, which are stored and added later.
// VIRTUAL: text = "4 virtual ranks, up to 2 on a rank, which then has 1 sum of gradients more, 20 B each
// VIRTUAL: train.variable @"w/gradient_0" : tensor<3xf32>
// VIRTUAL-NOT: gradient_1
// VIRTUAL: func.func @accumulate_first(
// VIRTUAL-NOT: func.func @accumulate_next(
// VIRTUAL: func.func @hold_0(%[[SUM:[^ ]*]]: tensor<3xf32> {train.variable = "w/gradient"}
// VIRTUAL-SAME: -> (tensor<3xf32> {train.variable = "w/gradient_0"}
// VIRTUAL: return %[[SUM]]
// VIRTUAL: func.func @join_0(
// VIRTUAL: %[[NEXT:.*]] = train.add %[[HELD:[^ ]*]], %[[OWN:[^ ]*]] : tensor<3xf32>
// VIRTUAL-NOT: @hold_1
// VIRTUAL: func.func @update(
// VIRTUAL: train.all_reduce

train.variable @w : tensor<3xf32> {role = "parameter"}
train.variable @mean : tensor<3xf32> {role = "frozen"}

func.func @forward(%x: tensor<8x3xf32> {train.name = "x"}) -> (tensor<8x3xf32> {train.name = "y"}) {
  %w = train.read @w : tensor<3xf32>
  %m = train.read @mean : tensor<3xf32>
  %k = train.random_key : tensor<4xui32>
  %d, %mask = train.dropout %x, %k id = 5 p = 5.0e-1 : (tensor<8x3xf32>, tensor<4xui32>) -> (tensor<8x3xf32>, tensor<8x3xi1>)
  %y, %bm, %bv = train.batch_norm %d, %w, %w, %m, %m epsilon = 1.0e-5 : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  train.write @mean, %bm : tensor<3xf32>
  return %y : tensor<8x3xf32>
}
func.func @loss(%x: tensor<8x3xf32> {train.name = "x"}) -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}) {
  %w = train.read @w : tensor<3xf32>
  %m = train.read @mean : tensor<3xf32>
  %k = train.random_key : tensor<4xui32>
  %d, %mask = train.dropout %x, %k id = 5 p = 5.0e-1 : (tensor<8x3xf32>, tensor<4xui32>) -> (tensor<8x3xf32>, tensor<8x3xi1>)
  %y, %bm, %bv = train.batch_norm %d, %w, %w, %m, %m epsilon = 1.0e-5 : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  train.write @mean, %bm : tensor<3xf32>
  %r = train.reduce sum %y [0, 1] : tensor<8x3xf32> -> tensor<1x1xf32>
  %s = train.reshape %r : tensor<1x1xf32> -> tensor<f32>
  return %s, %s : tensor<f32>, tensor<f32>
}
func.func @backward(%x: tensor<8x3xf32> {train.name = "x"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<3xf32> {train.gradient_of = "w"}) {
  %w = train.read @w : tensor<3xf32>
  %m = train.read @mean : tensor<3xf32>
  %k = train.random_key : tensor<4xui32>
  %d, %mask = train.dropout %x, %k id = 5 p = 5.0e-1 : (tensor<8x3xf32>, tensor<4xui32>) -> (tensor<8x3xf32>, tensor<8x3xi1>)
  %y, %bm, %bv = train.batch_norm %d, %w, %w, %m, %m epsilon = 1.0e-5 : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  train.write @mean, %bm : tensor<3xf32>
  %r = train.reduce sum %y [0, 1] : tensor<8x3xf32> -> tensor<1x1xf32>
  %s = train.reshape %r : tensor<1x1xf32> -> tensor<f32>
  return %s, %s, %bv : tensor<f32>, tensor<f32>, tensor<3xf32>
}
