// RUN: tcc-opt %s --differentiate=loss-scale | FileCheck %s
// RUN: tcc-opt %s --differentiate=loss-scale --set-recipe="settings=optimizer.kind=sgd" --build-update | FileCheck %s --check-prefix=STEP
// RUN: tcc-opt %s --differentiate=loss-scale --set-recipe="settings=optimizer.kind=sgd,train.accumulate=2" --build-update | FileCheck %s --check-prefix=ACC

train.variable @w : tensor<6xf32> {role = "parameter"}
train.variable @mean : tensor<6xf32> {role = "frozen"}

// The gradient of Σ w·x over six elements starts as the run-time factor times 1/8: 1/6 is rounded down to a power of two.
// CHECK-LABEL: func.func @backward
// CHECK-SAME: train.gradient_scale = 1.250000e-01
// CHECK: %[[S:.*]] = train.run_scalar "loss_scale" : tensor<f32>
// CHECK: %[[C:.*]] = train.constant dense<1.250000e-01> : tensor<f32>
// CHECK: train.mul %[[S]], %[[C]] : tensor<f32>
func.func @forward(%x: tensor<6xf32> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<6xf32> {train.name = "y"}) {
  return %x : tensor<6xf32>
}
func.func @loss(%x: tensor<6xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}) {
  %w = train.read @w : tensor<6xf32>
  train.write @mean, %x : tensor<6xf32>
  %0 = train.mul %w, %x : tensor<6xf32>
  %1 = train.reduce sum %0 [0] : tensor<6xf32> -> tensor<1xf32>
  %2 = train.reshape %1 : tensor<1xf32> -> tensor<f32>
  %3 = train.is_finite %x : tensor<6xf32> -> tensor<6xi1>
  %4 = train.cast %3 : tensor<6xi1> -> tensor<6xf32>
  %5 = train.reduce sum %4 [0] : tensor<6xf32> -> tensor<1xf32>
  %6 = train.reshape %5 : tensor<1xf32> -> tensor<f32>
  return %2, %6 : tensor<f32>, tensor<f32>
}

// Weights are kept unless loss and norm are finite, running statistics unless the loss is. `gradients` scales by a constant.
// STEP: train.scalars = ["loss_scale", "g0.lr"]
// STEP-LABEL: func.func @step
// STEP: train.sqrt
// STEP: %[[LOSS:.*]] = train.is_finite
// STEP: %[[NORM:.*]] = train.is_finite
// STEP: %[[SOUND:.*]] = train.and %[[LOSS]], %[[NORM]]
// STEP: %[[KEEP:.*]] = train.broadcast %[[SOUND]] : tensor<i1> -> tensor<6xi1>
// STEP: train.select %[[KEEP]]
// STEP: %[[SEEN:.*]] = train.broadcast %[[LOSS]] : tensor<i1> -> tensor<6xi1>
// STEP: train.select %[[SEEN]]
// STEP: return

// Both entries that derive gradients read the vector of all scalars, in the update's order; sums stay scaled until the update.
// ACC: train.scalars = ["loss_scale", "g0.lr"]
// ACC: func.func @accumulate_first({{.*}}tensor<2xf32> {train.scalars}
// ACC: func.func @accumulate_next({{.*}}tensor<2xf32> {train.scalars}
// ACC: func.func @update({{.*}}tensor<2xf32> {train.scalars}
