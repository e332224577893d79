// RUN: tcc-opt %s --fold-constants | FileCheck %s
// RUN: tcc-opt %s --fold-constants=max-bytes=8 | FileCheck %s --check-prefix=SMALL

// CHECK-LABEL: func @product
// SMALL-LABEL: func @product
func.func @product(%x: tensor<2xi64>) -> tensor<2xi64> {
  %0 = train.constant dense<2> : tensor<2xi64>
  %1 = train.constant dense<[1, 3]> : tensor<2xi64>
  %2 = train.mul %0, %1 : tensor<2xi64>
  %3 = train.add %2, %1 : tensor<2xi64>
  // CHECK-NOT: train.mul
  // CHECK: %[[C:.*]] = train.constant dense<[3, 9]>
  // CHECK-NEXT: %[[R:.*]] = train.add %{{.*}}, %[[C]]
  // CHECK-NEXT: return %[[R]]
  // Two i64 take 16 bytes, which exceeds the limit of 8.
  // SMALL: train.mul
  %4 = train.add %x, %3 : tensor<2xi64>
  return %4 : tensor<2xi64>
}

// A splat counts as one element, however large its tensor; an iota stays an op.
// CHECK-LABEL: func @splat
func.func @splat() -> (tensor<1024x1024xf32>, tensor<4xi64>) {
  %0 = train.constant dense<4.0> : tensor<1024x1024xf32>
  // CHECK-DAG: train.constant dense<2.000000e+00> : tensor<1024x1024xf32>
  %1 = train.sqrt %0 : tensor<1024x1024xf32>
  // CHECK-DAG: train.iota
  %2 = train.iota dim = 0 : tensor<4xi64>
  return %1, %2 : tensor<1024x1024xf32>, tensor<4xi64>
}

// Position embeddings are looked up at 0, 1, 2 …: the lookup becomes a slice. Other indices stay a gather.
// CHECK-LABEL: func @positions
// CHECK: %[[S:.*]] = train.slice %{{.*}} starts [1, 0] steps [2, 1] : tensor<8x4xf32> -> tensor<3x4xf32>
// CHECK: train.reshape %[[S]] : tensor<3x4xf32> -> tensor<1x3x4xf32>
// CHECK: train.gather
func.func @positions(%table: tensor<8x4xf32>) -> (tensor<1x3x4xf32>, tensor<3x4xf32>) {
  %0 = train.constant dense<[[1, 3, -3]]> : tensor<1x3xi64>
  %1 = train.gather %table, %0 axis = 0 : (tensor<8x4xf32>, tensor<1x3xi64>) -> tensor<1x3x4xf32>
  %2 = train.constant dense<[2, 1, 0]> : tensor<3xi64>
  %3 = train.gather %table, %2 axis = 0 : (tensor<8x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  return %1, %3 : tensor<1x3x4xf32>, tensor<3x4xf32>
}
