// RUN: tcc-opt %s --decompose-composites | FileCheck %s

// e^x of 16-bit numbers, widened or not, may be computed by the machine's own instruction; that of f32 may not.

// CHECK-LABEL: func.func @wide
// CHECK: train.exp %{{[0-9]+}} : tensor<8x4xf32>
func.func @wide(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = train.softmax %x dim = 1 : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @narrow
// CHECK: train.exp %{{[0-9]+}} {train.of_narrow} : tensor<8x4xf32>
func.func @narrow(%x: tensor<8x4xbf16>) -> tensor<8x4xbf16> {
  %0 = train.softmax %x dim = 1 : tensor<8x4xbf16>
  return %0 : tensor<8x4xbf16>
}

// CHECK-LABEL: func.func @widened
// CHECK: train.exp %{{[0-9]+}} {train.of_narrow} : tensor<8x4xf32>
func.func @widened(%x: tensor<2x4x4xbf16>) -> tensor<8x1xf32> {
  %0 = train.cast %x : tensor<2x4x4xbf16> -> tensor<2x4x4xf32>
  %1 = train.reshape %0 : tensor<2x4x4xf32> -> tensor<8x4xf32>
  %2 = train.logsumexp %1 dim = 1 : tensor<8x4xf32> -> tensor<8x1xf32>
  return %2 : tensor<8x1xf32>
}

// A value that other casts only pass through is still f32.
// CHECK-LABEL: func.func @rounded
// CHECK-NOT: train.of_narrow
func.func @rounded(%x: tensor<8x4xf32>) -> tensor<8x1xf32> {
  %0 = train.cast %x : tensor<8x4xf32> -> tensor<8x4xf64>
  %1 = train.cast %0 : tensor<8x4xf64> -> tensor<8x4xf32>
  %2 = train.logsumexp %1 dim = 1 : tensor<8x4xf32> -> tensor<8x1xf32>
  return %2 : tensor<8x1xf32>
}
