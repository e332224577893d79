// RUN: tcc-opt %s --differentiate --mlir-print-debuginfo | FileCheck %s

// Notes name each parameter that is cut off, and the node that cuts it off.
// CHECK: train.unused_parameters = [{cut = "train.round", name = "detached", node = "rounding", reason = "detached: no gradient passes through round"}, {name = "unread", node = "", reason = "no path to the loss"}]
train.variable @w : tensor<4xf32> {role = "parameter"}
train.variable @detached : tensor<4xf32> {role = "parameter"}
train.variable @unread : tensor<4xf32> {role = "parameter"}
train.variable @frozen : tensor<4xf32> {role = "frozen"}

// Σ (w·x + w·frozen + round(detached)): w has two uses, so that two gradients are added, the later use's first.
// CHECK-LABEL: func.func @loss
func.func @loss(%x: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<f32> {train.name = "correct"}) {
  %w = train.read @w : tensor<4xf32>
  %d = train.read @detached : tensor<4xf32>
  %f = train.read @frozen : tensor<4xf32>
  %0 = train.mul %w, %x : tensor<4xf32> loc("first use")
  %1 = train.mul %w, %f : tensor<4xf32> loc("second use")
  %2 = train.add %0, %1 : tensor<4xf32> loc("sum of both")
  %3 = train.round %d : tensor<4xf32> loc("rounding")
  %4 = train.add %2, %3 : tensor<4xf32>
  %5 = train.reduce sum %4 [0] : tensor<4xf32> -> tensor<1xf32>
  %6 = train.reshape %5 : tensor<1xf32> -> tensor<f32>
  %7 = train.constant dense<4.0> : tensor<f32>
  return %6, %7, %7 : tensor<f32>, tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func.func @backward
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32> {train.name = "x", train.sample_axis = 0 : i64}
// CHECK-SAME: -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}, tensor<4xf32> {train.gradient_of = "w"})
// CHECK: %[[F:.*]] = train.read @frozen
// CHECK: %[[ONE:.*]] = train.constant dense<1.000000e+00> : tensor<f32>
// CHECK: %[[R:.*]] = train.reshape %[[ONE]]
// CHECK: %[[G:.*]] = train.broadcast %[[R]] : tensor<1xf32> -> tensor<4xf32>
// CHECK: %[[G1:.*]] = train.mul %[[G]], %[[F]] : tensor<4xf32> loc(#[[SECOND:.*]])
// CHECK: %[[G0:.*]] = train.mul %[[G]], %[[X]] : tensor<4xf32> loc(#[[FIRST:.*]])
// CHECK: %[[SUM:.*]] = train.add %[[G1]], %[[G0]]
// CHECK-NOT: train.mul
// CHECK: return %{{.*}}, %{{.*}}, %[[SUM]]
// CHECK-DAG: #[[FIRST]] = loc("first use")
// CHECK-DAG: #[[SECOND]] = loc("second use")
