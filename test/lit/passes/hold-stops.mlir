// RUN: tcc-opt %s --hold-stops | FileCheck %s

// Each stop gets a variable of its own; while @"tcc.stopped/hold" is above 0, readers see the held value.
// CHECK-DAG: train.variable @"tcc.stopped/hold" : tensor<f64> {fill = 0.000000e+00 : f64, role = "held"}
// CHECK-DAG: train.variable @"tcc.stopped/0" : tensor<4xf64> {fill = 0.000000e+00 : f64, role = "held"}
// CHECK-DAG: train.variable @"tcc.stopped/1" : tensor<f64> {fill = 0.000000e+00 : f64, role = "held"}
train.variable @w : tensor<4xf64> {role = "parameter"}

// CHECK-LABEL: func.func @loss
// CHECK: %[[H:.*]] = train.read @"tcc.stopped/hold"
// CHECK: %[[P:.*]] = train.compare gt %[[H]], %{{.*}} : tensor<f64> -> tensor<i1>
// CHECK: %[[S:.*]] = train.stop_gradient
// CHECK: %[[K:.*]] = train.read @"tcc.stopped/0"
// CHECK: %[[Q:.*]] = train.broadcast %[[P]] : tensor<i1> -> tensor<4xi1>
// CHECK: %[[V:.*]] = train.select %[[Q]], %[[K]], %[[S]]
// CHECK: train.write @"tcc.stopped/0", %[[V]]
// CHECK: train.exp %[[V]]
// CHECK: %[[S1:.*]] = train.stop_gradient %{{.*}} : tensor<f64>
// CHECK: %[[K1:.*]] = train.read @"tcc.stopped/1"
// CHECK: %[[V1:.*]] = train.select %[[P]], %[[K1]], %[[S1]]
// CHECK: return %[[V1]], %[[V1]]
func.func @loss() -> (tensor<f64>, tensor<f64>) {
  %w = train.read @w : tensor<4xf64>
  %0 = train.stop_gradient %w : tensor<4xf64>
  %1 = train.exp %0 : tensor<4xf64>
  %2 = train.reduce sum %1 [0] : tensor<4xf64> -> tensor<1xf64>
  %3 = train.reshape %2 : tensor<1xf64> -> tensor<f64>
  %4 = train.stop_gradient %3 : tensor<f64>
  return %4, %4 : tensor<f64>, tensor<f64>
}
