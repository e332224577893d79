// RUN: tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t,optimizer.kind=sgd,train.outputs=[\"y\"]" --attach-loss --differentiate --build-update | FileCheck %s
// RUN: tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t,optimizer.kind=sgd,train.outputs=[\"y\"],train.accumulate=2" --attach-loss --differentiate --build-update | FileCheck %s --check-prefix=ACC
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t,train.outputs=[\"z\"]" --attach-loss 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not tcc-opt %s --set-recipe="settings=loss.kind=mse,loss.of=y,loss.target=t,train.outputs=[\"mean\"],train.accumulate=2" --attach-loss 2>&1 | FileCheck %s --check-prefix=AXIS

// An update returns the outputs of its batch, with their axis of samples; an evaluation does not.
// CHECK: func.func @step(
// CHECK-SAME: -> (tensor<8x3xf32> {train.name = "output:y", train.sample_axis = 0 : i64}, tensor<f32> {train.name = "loss_sum"}
// CHECK: %[[Y:.*]] = train.mul
// CHECK: return %[[Y]],
// CHECK: func.func @evaluate(
// CHECK-NOT: output:
// CHECK: func.func @predict(

// With accumulation each micro-batch returns its own; the update that follows has none.
// ACC: func.func @accumulate_first({{.*}}"output:y"
// ACC: func.func @accumulate_next({{.*}}"output:y"
// ACC: func.func @update(
// ACC-NOT: output:
// ACC: func.func @evaluate(

// UNKNOWN: train.outputs: the graph has no output `z`; outputs: `y` (tensor<8x3xf32>), `mean` (tensor<f32>)
// AXIS: train.outputs: `mean` has no axis of samples, and an update has several micro-batches

train.variable @w : tensor<8x3xf32> {role = "parameter"}

func.func @forward(%x: tensor<8x3xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<8x3xf32> {train.name = "y", train.sample_axis = 0 : i64}, tensor<f32> {train.name = "mean"}) {
  %w = train.read @w : tensor<8x3xf32>
  %y = train.mul %x, %w : tensor<8x3xf32>
  %r = train.reduce sum %y [0, 1] : tensor<8x3xf32> -> tensor<1x1xf32>
  %s = train.reshape %r : tensor<1x1xf32> -> tensor<f32>
  return %y, %s : tensor<8x3xf32>, tensor<f32>
}
