// RUN: tcc-opt %s --fuse-attention | FileCheck %s
// A stop inside attention changes its gradient: attention is not fused, and a note names the stop. A stop at an operand stays.

// CHECK: train.notes = [
// CHECK-SAME: {kind = "attention missed", subject = "weights", text = "{{.*}}stop_gradient stands between the softmax and the product with the values
// CHECK-SAME: {kind = "attention missed", subject = "scores", text = "{{.*}}stop_gradient of the scores is no op that attention applies before its softmax
// CHECK-SAME: {kind = "attention fused", subject = "fused"

// CHECK-LABEL: func.func @after
// CHECK: train.softmax
// CHECK: train.stop_gradient
func.func @after(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> tensor<6x8x4xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32>
  %d = train.stop_gradient %w : tensor<6x8x8xf32> loc("weights")
  %y = train.matmul %d, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

// CHECK-LABEL: func.func @before
// CHECK: train.stop_gradient
// CHECK: train.softmax
func.func @before(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> tensor<6x8x4xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %d = train.stop_gradient %s : tensor<6x8x8xf32> loc("scores")
  %w = train.softmax %d dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

// CHECK-LABEL: func.func @operand
// CHECK: %[[K:.*]] = train.stop_gradient
// CHECK: train.reshape %[[K]]
// CHECK: train.attention
func.func @operand(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> tensor<6x8x4xf32> {
  %d = train.stop_gradient %k : tensor<6x8x4xf32>
  %s = train.matmul %q, %d {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32> loc("fused")
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}
