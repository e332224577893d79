// RUN: tcc-opt %s --differentiate --canonicalize | FileCheck %s
// The gradient of scores is written only where an op reads it: for a trained bias, summed to the bias's shape.

train.variable @q : tensor<1x2x4x3xf32> {role = "parameter"}
train.variable @trained : tensor<1x2x1x5xf32> {role = "parameter"}

// CHECK-LABEL: func.func @backward
// CHECK: %[[O1:.*]], %[[L1:.*]], %[[R1:.*]] = train.attention
// CHECK: %[[O2:.*]], %[[L2:.*]], %[[R2:.*]] = train.attention
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %[[SCORES:.*]] = train.attention_grad {{.*}}%[[O2]], %[[L2]], %[[R2]],
// CHECK: train.reduce sum %[[SCORES]] [2] : tensor<1x2x4x5xf32> -> tensor<1x2x1x5xf32>
// CHECK: train.attention_grad {{.*}}%[[O1]], %[[L1]], %[[R1]],{{.*}} -> (tensor<1x2x4x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>){{$}}
func.func @loss(%k: tensor<1x2x5x3xf32> {train.name = "k"}, %given: tensor<1x2x4x5xf32> {train.name = "given"})
    -> (tensor<f32> {train.name = "loss_sum"}, tensor<f32> {train.name = "loss_weight"}) {
  %q = train.read @q : tensor<1x2x4x3xf32>
  %b = train.read @trained : tensor<1x2x1x5xf32>
  %o, %l, %l_rest = train.attention %q, %k, %k, %given {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, scale = 0.5} : (tensor<1x2x4x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x4x5xf32>) -> (tensor<1x2x4x3xf32>, tensor<1x2x4x1xf32>, tensor<1x2x4x1xf32>)
  %p, %m, %m_rest = train.attention %o, %k, %k, %b {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>, scale = 0.5} : (tensor<1x2x4x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x5x3xf32>, tensor<1x2x1x5xf32>) -> (tensor<1x2x4x3xf32>, tensor<1x2x4x1xf32>, tensor<1x2x4x1xf32>)
  %0 = train.reduce sum %p [0, 1, 2, 3] : tensor<1x2x4x3xf32> -> tensor<1x1x1x1xf32>
  %1 = train.reshape %0 : tensor<1x1x1x1xf32> -> tensor<f32>
  %2 = train.constant dense<4.0> : tensor<f32>
  return %1, %2 : tensor<f32>, tensor<f32>
}
