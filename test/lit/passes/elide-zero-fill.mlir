// RUN: tcc-opt %s --elide-zero-fill | FileCheck %s

// CHECK: train.zero_fill_elided = [{bytes = 128 : i64, parameter = "tied", reason = "the scatter adds to the parameter's other gradient"}
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

// Three indices name few of 1024 rows: their sums are kept in a table of four rows, which a gather reads.
// CHECK-LABEL: func.func @few_rows
// CHECK-SAME: %[[I:.*]]: tensor<3xi64>, %[[U:.*]]: tensor<3x32xf32>, %[[X:.*]]: tensor<1x3x1024xf32>, %[[Y:.*]]: tensor<1x3x32xf32>
func.func @few_rows(%i: tensor<3xi64>, %u: tensor<3x32xf32>, %x: tensor<1x3x1024xf32>, %y: tensor<1x3x32xf32>)
    -> (tensor<1024x32xf32>, tensor<1024x32xf32>) {
  // CHECK: %[[NONE:.*]] = train.constant dense<3> : tensor<1024xi32>
  // CHECK: %[[ROWS:.*]] = train.scatter set %[[NONE]], %[[I]], %{{.*}} axis = 0
  // CHECK: %[[NAMED:.*]] = train.gather %[[ROWS]], %[[I]] axis = 0
  // CHECK: %[[ZEROS:.*]] = train.constant dense<0.000000e+00> : tensor<4x32xf32>
  // CHECK: %[[SUMS:.*]] = train.scatter_add %[[ZEROS]], %[[NAMED]], %[[U]] axis = 0
  // CHECK: %[[ALONE:.*]] = train.gather %[[SUMS]], %[[ROWS]] axis = 0
  %zeros = train.constant dense<0.0> : tensor<1024x32xf32>
  %0 = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<1024x32xf32>, tensor<3xi64>, tensor<3x32xf32>) -> tensor<1024x32xf32>
  // CHECK: %[[P:.*]] = train.matmul
  // CHECK: %[[WHOLE:.*]] = train.reshape %[[P]]
  // CHECK: %[[OTHER:.*]] = train.gather %{{.*}}, %{{.*}} axis = 0 : (tensor<4x32xf32>
  // CHECK: %[[SUM:.*]] = train.add %[[WHOLE]], %[[OTHER]]
  %p = train.matmul %x, %y {transA = true} : (tensor<1x3x1024xf32>, tensor<1x3x32xf32>) -> tensor<1x1024x32xf32>
  %w = train.reshape %p : tensor<1x1024x32xf32> -> tensor<1024x32xf32>
  %1 = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<1024x32xf32>, tensor<3xi64>, tensor<3x32xf32>) -> tensor<1024x32xf32>
  %2 = train.add %w, %1 : tensor<1024x32xf32>
  // CHECK: return %[[ALONE]], %[[SUM]]
  return %0, %2 : tensor<1024x32xf32>, tensor<1024x32xf32>
}

// A value that is in place already is not copied before something is added to it.
// CHECK-LABEL: func.func @into_a_sum
func.func @into_a_sum(%i: tensor<3xi64>, %u: tensor<3x32xf32>, %sum: tensor<1024x32xf32>) -> tensor<1024x32xf32> {
  // CHECK: train.scatter_add %arg2, %arg0, %arg1 axis = 0
  %zeros = train.constant dense<0.0> : tensor<1024x32xf32>
  %0 = train.scatter_add %zeros, %i, %u axis = 0 : (tensor<1024x32xf32>, tensor<3xi64>, tensor<3x32xf32>) -> tensor<1024x32xf32>
  %1 = train.add %sum, %0 : tensor<1024x32xf32>
  return %1 : tensor<1024x32xf32>
}
