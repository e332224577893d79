// RUN: tcc-opt %s --decompose-composites | FileCheck %s

// The mean, and then the mean of squared differences, are over all ranks: ranks sum the values and the numbers of elements.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[X:[^ :]*]]: tensor<8x3xf32>
// CHECK: %[[SUM:.*]] = train.reduce sum %[[X]] [0]
// CHECK: %[[OWN:.*]] = train.constant dense<8.0{{.*}}> : tensor<f32>
// CHECK: %[[ALL:.*]]:2 = train.all_reduce(%[[SUM]], %[[OWN]]) : (tensor<1x3xf32>, tensor<f32>)
// CHECK: %[[COUNT:.*]] = train.broadcast %[[ALL]]#1
// CHECK: %[[MEAN:.*]] = train.div %[[ALL]]#0, %[[COUNT]]
// CHECK: %[[SPREAD:.*]] = train.broadcast %[[MEAN]]
// CHECK: %[[CENTRED:.*]] = train.sub %[[X]], %[[SPREAD]]
// CHECK: %[[SQUARES:.*]] = train.mul %[[CENTRED]], %[[CENTRED]]
// CHECK: %[[SUM2:.*]] = train.reduce sum %[[SQUARES]] [0]
// CHECK: train.all_reduce(%[[SUM2]], %{{.*}})
// CHECK: train.rsqrt
// CHECK-NOT: train.batch_norm
func.func @forward(%x: tensor<8x3xf32>, %w: tensor<3xf32>) -> tensor<8x3xf32> {
  %y, %m, %v = train.batch_norm %x, %w, %w, %w, %w epsilon = 1.0e-5 {sync} : (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %y : tensor<8x3xf32>
}
