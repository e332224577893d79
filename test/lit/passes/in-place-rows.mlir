// RUN: tcc-opt %s --pass-pipeline="builtin.module(materialize-buffers,func.func(plan-memory))" | FileCheck %s

// The last pass over a row writes where it reads the row: softmax takes the place of its scores.

// CHECK-LABEL: func.func @softmax
// CHECK: train.matmul {{.*}}train.offsets = array<i64: [[AT:[0-9]+]]>
// CHECK: train.fused({{.*}}train.offsets = array<i64: [[AT]]>
func.func @softmax(%a: tensor<1x64x64xf32> {train.name = "a", train.sample_axis = 0 : i64}) -> (tensor<1x64x64xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %x = train.matmul %a, %a {train.call = #train.call<"">} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  %p = train.fused(%x) : (tensor<1x64x64xf32>) -> tensor<1x64x64xf32> {
  ^bb0(%s: tensor<1x64x64xf32>):
    %e = train.exp %s : tensor<1x64x64xf32>
    %t = train.reduce sum %e [2] : tensor<1x64x64xf32> -> tensor<1x64x1xf32>
    %b = train.broadcast %t : tensor<1x64x1xf32> -> tensor<1x64x64xf32>
    %q = train.div %e, %b : tensor<1x64x64xf32>
    train.yield %q : tensor<1x64x64xf32>
  }
  %y = train.matmul %p, %a {train.call = #train.call<"">} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  return %y : tensor<1x64x64xf32>
}

// The second pass would read what the first one has written.

// CHECK-LABEL: func.func @early
// CHECK: train.matmul {{.*}}train.offsets = array<i64: [[AT:[0-9]+]]>
// CHECK-NOT: train.fused({{.*}}train.offsets = array<i64: [[AT]],
// CHECK: train.matmul
func.func @early(%a: tensor<1x64x64xf32> {train.name = "a", train.sample_axis = 0 : i64}) -> (tensor<1x64x64xf32> {train.name = "y"}, tensor<1x64x1xf32> {train.name = "z"}) attributes {train.entry = "predict"} {
  %x = train.matmul %a, %a {train.call = #train.call<"">} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  %p:2 = train.fused(%x) : (tensor<1x64x64xf32>) -> (tensor<1x64x64xf32>, tensor<1x64x1xf32>) {
  ^bb0(%s: tensor<1x64x64xf32>):
    %e = train.exp %s : tensor<1x64x64xf32>
    %t = train.reduce sum %e [2] : tensor<1x64x64xf32> -> tensor<1x64x1xf32>
    %b = train.broadcast %t : tensor<1x64x1xf32> -> tensor<1x64x64xf32>
    %q = train.div %s, %b : tensor<1x64x64xf32>
    %u = train.reduce sum %q [2] : tensor<1x64x64xf32> -> tensor<1x64x1xf32>
    train.yield %e, %u : tensor<1x64x64xf32>, tensor<1x64x1xf32>
  }
  %y = train.matmul %p#0, %a {train.call = #train.call<"">} : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  return %y, %p#1 : tensor<1x64x64xf32>, tensor<1x64x1xf32>
}
