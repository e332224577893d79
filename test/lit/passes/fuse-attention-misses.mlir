// RUN: tcc-opt %s --fuse-attention | FileCheck %s
// RUN: not tcc-opt %s --pass-pipeline='builtin.module(fuse-attention{required=true})' 2>&1 | FileCheck %s --check-prefix=REQUIRED
// Graphs that are almost an attention, with the node that breaks it; values with other readers; and graphs that are none.

// CHECK: train.notes = [
// CHECK-SAME: {kind = "attention missed", subject = "relu", text = "{{.*}}relu of the scores is no op that attention applies before its softmax{{.*}}softmax{{.*}}plain\22}"}
// CHECK-SAME: {kind = "attention missed", subject = "renormalise", text = "{{.*}}varies along the keys after the softmax
// CHECK-SAME: {kind = "attention missed", subject = "capped", text = "{{.*}}a bias is added inside the soft cap
// CHECK-SAME: {kind = "attention missed", subject = "wrong", text = "{{.*}}does not run along the keys
// CHECK-SAME: {kind = "attention missed", subject = "fill", text = "{{.*}}excluded scores become -10, which still counts in the softmax
// CHECK-SAME: {kind = "attention missed", subject = "softmax", text = "{{.*}}attention weights kept: read by the output `weights`
// CHECK-SAME: {kind = "attention missed", subject = "exp", text = "{{.*}}attention weights kept: read by node exp
// CHECK-SAME: {kind = "attention missed", subject = "squared", text = "{{.*}}the weights are multiplied by themselves
// CHECK-NOT: kind = "attention
// CHECK-SAME: ]
// CHECK-NOT: train.attention

// REQUIRED: error: loc("relu"): compiler.attention = "fused": the attention of softmax plain is not fused: relu of the scores

func.func @scores(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> tensor<6x8x4xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %x = train.relu %s : tensor<6x8x8xf32> loc("relu")
  %w = train.softmax %x dim = 2 : tensor<6x8x8xf32> loc("plain")
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

func.func @changed(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>, %g: tensor<1x1x8xf32>) -> tensor<6x8x4xf32> {
  %gb = train.broadcast %g : tensor<1x1x8xf32> -> tensor<6x8x8xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32>
  %x = train.mul %w, %gb : tensor<6x8x8xf32> loc("renormalise")
  %y = train.matmul %x, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

func.func @inside(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>, %b: tensor<1x8x8xf32>) -> tensor<6x8x4xf32> {
  %bb = train.broadcast %b : tensor<1x8x8xf32> -> tensor<6x8x8xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %x = train.add %s, %bb : tensor<6x8x8xf32> loc("capped")
  %t = train.tanh %x : tensor<6x8x8xf32>
  %w = train.softmax %t dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

func.func @across(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> tensor<6x8x4xf32> {
  %s3 = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %s = train.reshape %s3 : tensor<6x8x8xf32> -> tensor<2x3x8x8xf32>
  %w = train.softmax %s dim = 1 : tensor<2x3x8x8xf32> loc("wrong")
  %w3 = train.reshape %w : tensor<2x3x8x8xf32> -> tensor<6x8x8xf32>
  %y = train.matmul %w3, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

func.func @weak(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>, %m: tensor<6x8x8xi1>) -> tensor<6x8x4xf32> {
  %low = train.constant dense<-10.0> : tensor<6x8x8xf32>
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %x = train.select %m, %s, %low : tensor<6x8x8xi1>, tensor<6x8x8xf32> loc("fill")
  %w = train.softmax %x dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y : tensor<6x8x4xf32>
}

func.func @read(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>)
    -> (tensor<6x8x4xf32> {train.name = "y"}, tensor<6x8x8xf32> {train.name = "weights"}) {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y, %w : tensor<6x8x4xf32>, tensor<6x8x8xf32>
}

func.func @read_scores(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>, %v: tensor<6x8x4xf32>) -> (tensor<6x8x4xf32>, tensor<6x8x8xf32>) {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %e = train.exp %s : tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %v : (tensor<6x8x8xf32>, tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  return %y, %e : tensor<6x8x4xf32>, tensor<6x8x8xf32>
}

func.func @squares(%q: tensor<6x8x4xf32>, %k: tensor<6x8x4xf32>) -> tensor<6x8x8xf32> {
  %s = train.matmul %q, %k {transB = true} : (tensor<6x8x4xf32>, tensor<6x8x4xf32>) -> tensor<6x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<6x8x8xf32>
  %y = train.matmul %w, %w : (tensor<6x8x8xf32>, tensor<6x8x8xf32>) -> tensor<6x8x8xf32> loc("squared")
  return %y : tensor<6x8x8xf32>
}

// A classifier's probabilities: no note mentions them.
train.variable @head : tensor<1x4x8xf32> {role = "parameter"}
func.func @classes(%x: tensor<1x8x4xf32>, %v: tensor<1x8x4xf32>) -> tensor<1x8x8xf32> {
  %h = train.read @head : tensor<1x4x8xf32>
  %s = train.matmul %x, %h : (tensor<1x8x4xf32>, tensor<1x4x8xf32>) -> tensor<1x8x8xf32>
  %w = train.softmax %s dim = 2 : tensor<1x8x8xf32>
  return %w : tensor<1x8x8xf32>
}
