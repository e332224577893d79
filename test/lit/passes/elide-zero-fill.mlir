// RUN: tcc-opt %s --elide-zero-fill | FileCheck %s

// CHECK: train.zero_fill_elided = [{bytes = 128 : i64, parameter = "tied", reason = "the scatter adds to the parameter's other gradient"}]
// CHECK-SAME: train.zero_fill_kept = [{bytes = 128 : i64, parameter = "table", reason = "its only gradient is scattered at `lookup`: rows that no index names must be zero"}]
train.variable @tied : tensor<8x4xf32> {role = "parameter"}
train.variable @table : tensor<8x4xf32> {role = "parameter"}

// CHECK-LABEL: func.func @backward
// CHECK-SAME: %[[I:.*]]: tensor<3xi64>, %[[U:.*]]: tensor<3x4xf32>, %[[H:.*]]: tensor<8x4xf32>
func.func @backward(%i: tensor<3xi64>, %u: tensor<3x4xf32>, %h: tensor<8x4xf32>)
    -> (tensor<8x4xf32> {train.gradient_of = "tied"}, tensor<8x4xf32> {train.gradient_of = "table"}) {
  %zeros = train.constant dense<0.0> : tensor<8x4xf32>
  // CHECK: %[[G:.*]] = train.scatter_add %[[H]], %[[I]], %[[U]] axis = 0
  %0 = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<8x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<8x4xf32>
  %1 = train.add %h, %0 : tensor<8x4xf32>
  // CHECK: %[[K:.*]] = train.scatter_add %{{.*}}, %[[I]], %[[U]] axis = 0
  %2 = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<8x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<8x4xf32> loc("lookup")
  // CHECK-NOT: train.add
  // CHECK: return %[[G]], %[[K]]
  %3 = train.add %2, %zeros : tensor<8x4xf32>
  return %1, %3 : tensor<8x4xf32>, tensor<8x4xf32>
}
