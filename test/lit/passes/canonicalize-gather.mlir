// RUN: tcc-opt %s --canonicalize | FileCheck %s

// A lookup in an unpacked table unpacks the rows that it takes, also behind a cast; one in other tables stays.
// CHECK-LABEL: func.func @lookup
// CHECK-DAG: %[[A:.*]] = train.unpack uint4 %arg0, %arg1 minus %arg2 at %arg3 block = 0 shape = [11, 32] strides = [32, 1] {blocks = array<i64: 1, 16>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>} : (tensor<176xui8>, tensor<22xf32>, tensor<11xui8>, tensor<5xi64>) -> tensor<5x32xf32>
// CHECK-DAG: %[[B:.*]] = train.unpack uint4 %arg0, %arg1 minus %arg2 at %arg3 block = 0 shape = [11, 32] strides = [32, 1] {axis = 1 : i64
// CHECK-DAG: train.cast %[[B]] : tensor<11x5xf32> -> tensor<11x5xf16>
// CHECK-DAG: train.gather %arg4, %arg3
// CHECK-NOT: train.gather
func.func @lookup(%b: tensor<176xui8>, %s: tensor<22xf32>, %z: tensor<11xui8>, %i: tensor<5xi64>, %t: tensor<11x32xf32>)
    -> (tensor<5x32xf32>, tensor<11x5xf16>, tensor<5x32xf32>) {
  %w = train.unpack uint4 %b, %s minus %z block = 0 shape = [11, 32] strides = [32, 1] {blocks = array<i64: 1, 16>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>} : (tensor<176xui8>, tensor<22xf32>, tensor<11xui8>) -> tensor<11x32xf32>
  %h = train.cast %w : tensor<11x32xf32> -> tensor<11x32xf16>
  %x = train.gather %w, %i axis = 0 : (tensor<11x32xf32>, tensor<5xi64>) -> tensor<5x32xf32>
  %y = train.gather %h, %i axis = 1 : (tensor<11x32xf16>, tensor<5xi64>) -> tensor<11x5xf16>
  %u = train.gather %t, %i axis = 0 : (tensor<11x32xf32>, tensor<5xi64>) -> tensor<5x32xf32>
  return %x, %y, %u : tensor<5x32xf32>, tensor<11x5xf16>, tensor<5x32xf32>
}
