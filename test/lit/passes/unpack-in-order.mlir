// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(unpack-in-order))" | FileCheck %s

// Codes along the columns: the forward product and the gradient of its input read one transposed matrix.
// CHECK-LABEL: func.func @columns
// CHECK: %[[W:.*]] = train.unpack nf4 %arg2, %arg3 block = 64 shape = [32, 48] strides = [48, 1] : {{.*}} -> tensor<32x48xf32>
// CHECK: %[[B:.*]] = train.reshape %[[W]] : tensor<32x48xf32> -> tensor<1x32x48xf32>
// CHECK: %[[N:.*]] = train.cast %[[B]] : tensor<1x32x48xf32> -> tensor<1x32x48xbf16>
// CHECK: train.matmul %arg0, %[[N]] {transB = true}
// CHECK: train.matmul %arg1, %[[N]] :
func.func @columns(%x: tensor<1x64x48xbf16>, %g: tensor<1x64x32xbf16>, %q: tensor<768xui8>, %s: tensor<24xf32>) -> (tensor<1x64x32xbf16>, tensor<1x64x48xbf16>) {
  %w = train.unpack nf4 %q, %s block = 64 shape = [48, 32] strides = [1, 48] : (tensor<768xui8>, tensor<24xf32>) -> tensor<48x32xf32>
  %b = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %n = train.cast %b : tensor<1x48x32xf32> -> tensor<1x48x32xbf16>
  %y = train.matmul %x, %n : (tensor<1x64x48xbf16>, tensor<1x48x32xbf16>) -> tensor<1x64x32xbf16>
  %d = train.matmul %g, %n {transB = true} : (tensor<1x64x32xbf16>, tensor<1x48x32xbf16>) -> tensor<1x64x48xbf16>
  return %y, %d : tensor<1x64x32xbf16>, tensor<1x64x48xbf16>
}

// A file's grid of scales and zero points turns with the matrix; on the left the other flag changes.
// CHECK-LABEL: func.func @grid
// CHECK: train.unpack uint4 %arg1, %arg2 minus %arg3 block = 0 shape = [32, 64] strides = [64, 1] {blocks = array<i64: 1, 32>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>}
// CHECK: train.matmul {{.*}} {transA = true}
func.func @grid(%x: tensor<1x32x16xf32>, %q: tensor<1024xui8>, %s: tensor<64xf32>, %z: tensor<32xui8>) -> tensor<1x64x16xf32> {
  %w = train.unpack uint4 %q, %s minus %z block = 0 shape = [64, 32] strides = [1, 64] {blocks = array<i64: 32, 1>, scaleStrides = array<i64: 1, 2>, zeroStrides = array<i64: 1, 2>} : (tensor<1024xui8>, tensor<64xf32>, tensor<32xui8>) -> tensor<64x32xf32>
  %b = train.reshape %w : tensor<64x32xf32> -> tensor<1x64x32xf32>
  %y = train.matmul %b, %x : (tensor<1x64x32xf32>, tensor<1x32x16xf32>) -> tensor<1x64x16xf32>
  return %y : tensor<1x64x16xf32>
}

// Codes along the rows are in order, and a reader that is no product keeps the matrix as it is.
// CHECK-LABEL: func.func @rows
// CHECK: shape = [48, 32] strides = [32, 1]
// CHECK: shape = [48, 32] strides = [1, 48]
func.func @rows(%x: tensor<1x64x48xf32>, %q: tensor<768xui8>, %s: tensor<24xf32>) -> (tensor<1x64x32xf32>, tensor<1x64x32xf32>, tensor<48x32xf32>) {
  %w = train.unpack nf4 %q, %s block = 64 shape = [48, 32] strides = [32, 1] : (tensor<768xui8>, tensor<24xf32>) -> tensor<48x32xf32>
  %b = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %y = train.matmul %x, %b : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  %v = train.unpack nf4 %q, %s block = 64 shape = [48, 32] strides = [1, 48] : (tensor<768xui8>, tensor<24xf32>) -> tensor<48x32xf32>
  %c = train.reshape %v : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %z = train.matmul %x, %c : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  %r = train.relu %v : tensor<48x32xf32>
  return %y, %z, %r : tensor<1x64x32xf32>, tensor<1x64x32xf32>, tensor<48x32xf32>
}
