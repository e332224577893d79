// RUN: tcc-opt %s --update-rows | FileCheck %s

// The rows named by three indices are updated and set; the norm sums the compact table.
train.variable @table : tensor<1024x32xf32> {role = "parameter"}
train.variable @sums : tensor<1024x32xf32> {role = "optimizer"}

// CHECK-LABEL: func.func @sgd
// CHECK-SAME: %[[W:[^:]*]]: tensor<1024x32xf32>
// CHECK-SAME: %[[I:[^:]*]]: tensor<3xi64>
func.func @sgd(%w: tensor<1024x32xf32> {train.variable = "table"},
               %i: tensor<3xi64>, %u: tensor<3x32xf32>, %lr: tensor<f32>, %finite: tensor<i1>)
    -> (tensor<1024x32xf32> {train.variable = "table"}, tensor<1x1xf32> {train.name = "norm"})
    attributes {train.entry = "step"} {
  %none = train.constant dense<3> : tensor<1024xi32>
  %numbers = train.iota dim = 0 : tensor<3xi32>
  %zeros = train.constant dense<0.0> : tensor<4x32xf32>
  // CHECK: %[[NAMED:.*]] = train.gather %{{.*}}, %[[I]] axis = 0 : (tensor<1024xi32>
  // CHECK: %[[COMPACT:.*]] = train.scatter_add
  %rows = train.scatter set %none, %i, %numbers axis = 0 : (tensor<1024xi32>, tensor<3xi64>, tensor<3xi32>) -> tensor<1024xi32>
  %named = train.gather %rows, %i axis = 0 : (tensor<1024xi32>, tensor<3xi64>) -> tensor<3xi32>
  %compact = train.scatter_add %zeros, %named, %u axis = 0 : (tensor<4x32xf32>, tensor<3xi32>, tensor<3x32xf32>) -> tensor<4x32xf32>
  %g = train.gather %compact, %rows axis = 0 : (tensor<4x32xf32>, tensor<1024xi32>) -> tensor<1024x32xf32>
  %g2 = train.mul %g, %g : tensor<1024x32xf32>
  // CHECK: %[[SQUARES:.*]] = train.mul %[[COMPACT]], %[[COMPACT]] : tensor<4x32xf32>
  // CHECK: %[[ROWSUMS:.*]] = train.reduce sum %[[SQUARES]] [1] : tensor<4x32xf32> -> tensor<4x1xf32>
  // CHECK: %[[NORM:.*]] = train.reduce sum %[[ROWSUMS]] [0] : tensor<4x1xf32> -> tensor<1x1xf32>
  %byrow = train.reduce sum %g2 [1] : tensor<1024x32xf32> -> tensor<1024x1xf32>
  %norm = train.reduce sum %byrow [0] : tensor<1024x1xf32> -> tensor<1x1xf32>
  %rate = train.broadcast %lr : tensor<f32> -> tensor<1024x32xf32>
  %ok = train.broadcast %finite : tensor<i1> -> tensor<1024x32xi1>
  %step = train.mul %rate, %g : tensor<1024x32xf32>
  %w1 = train.sub %w, %step : tensor<1024x32xf32>
  %w2 = train.select %ok, %w1, %w : tensor<1024x32xi1>, tensor<1024x32xf32>
  // CHECK: %[[G:.*]] = train.gather %[[COMPACT]], %[[NAMED]] axis = 0 : (tensor<4x32xf32>, tensor<3xi32>) -> tensor<3x32xf32>
  // CHECK: train.gather %[[W]], %[[I]] axis = 0
  // CHECK: train.sub %{{.*}}, %{{.*}} : tensor<3x32xf32>
  // CHECK: %[[NEXT:.*]] = train.scatter set %[[W]], %{{.*}} axis = 0 : (tensor<1024x32xf32>, tensor<3x32xi64>, tensor<3x32xf32>)
  // CHECK-NOT: tensor<1024x1xf32>
  // CHECK: return %[[NEXT]], %[[NORM]]
  return %w2, %norm : tensor<1024x32xf32>, tensor<1x1xf32>
}

// Weight decay changes every row. If one next value is computed for all rows, so are the others.
// CHECK-LABEL: func.func @dense
func.func @dense(%w: tensor<1024x32xf32> {train.variable = "table"}, %a: tensor<1024x32xf32> {train.variable = "sums"},
                 %i: tensor<3xi64>, %u: tensor<3x32xf32>)
    -> (tensor<1024x32xf32> {train.variable = "table"}, tensor<1024x32xf32> {train.variable = "sums"})
    attributes {train.entry = "step"} {
  %none = train.constant dense<3> : tensor<1024xi32>
  %numbers = train.iota dim = 0 : tensor<3xi32>
  %zeros = train.constant dense<0.0> : tensor<4x32xf32>
  %rows = train.scatter set %none, %i, %numbers axis = 0 : (tensor<1024xi32>, tensor<3xi64>, tensor<3xi32>) -> tensor<1024xi32>
  %named = train.gather %rows, %i axis = 0 : (tensor<1024xi32>, tensor<3xi64>) -> tensor<3xi32>
  %compact = train.scatter_add %zeros, %named, %u axis = 0 : (tensor<4x32xf32>, tensor<3xi32>, tensor<3x32xf32>) -> tensor<4x32xf32>
  %g = train.gather %compact, %rows axis = 0 : (tensor<4x32xf32>, tensor<1024xi32>) -> tensor<1024x32xf32>
  %decay = train.constant dense<1.0e-2> : tensor<1024x32xf32>
  %wd = train.mul %w, %decay : tensor<1024x32xf32>
  %gd = train.add %g, %wd : tensor<1024x32xf32>
  // CHECK: %[[W1:.*]] = train.sub %{{.*}}, %{{.*}} : tensor<1024x32xf32>
  %w1 = train.sub %w, %gd : tensor<1024x32xf32>
  // CHECK: %[[A1:.*]] = train.add %{{.*}}, %{{.*}} : tensor<1024x32xf32>
  %a1 = train.add %a, %g : tensor<1024x32xf32>
  // CHECK: return %[[W1]], %[[A1]]
  return %w1, %a1 : tensor<1024x32xf32>, tensor<1024x32xf32>
}
