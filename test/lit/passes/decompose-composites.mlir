// RUN: tcc-opt %s --decompose-composites --mlir-print-debuginfo | FileCheck %s

// CHECK-LABEL: func.func @rows
// CHECK-NOT: train.softmax
// CHECK-NOT: train.logsumexp
// CHECK: train.reduce max %{{.*}} [1] : tensor<8x4xf32> -> tensor<8x1xf32> loc(#[[NODE:.*]])
// CHECK: train.exp
// CHECK: train.reduce sum
// CHECK: return
func.func @rows(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x1xf32>) {
  %0 = train.softmax %x dim = 1 : tensor<8x4xf32> loc("attention weights")
  %1 = train.logsumexp %x dim = 1 : tensor<8x4xf32> -> tensor<8x1xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x1xf32>
}
// CHECK: #[[NODE]] = loc("attention weights")
