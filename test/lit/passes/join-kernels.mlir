// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(join-kernels))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(join-kernels{small=16}))" | FileCheck %s --check-prefix=LARGE

// Kernels of at least that size wait only for operands that have left the cache, and here none has.
// LARGE-NOT: train.joined

// Two updates wait for the end and share a launch, and so do, before them, the sums that they read: one launch per level. The
// large kernel reads a value that was just written, and stays in its place.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[^ ]*]]: tensor<1x2048x2048xf32> {train.name = "x"{{[^%]*}}%[[W:[^ ]*]]: {{[^%]*}}%[[V:[^ ]*]]:
// CHECK: %[[P:.*]] = train.matmul %[[X]], %[[X]]
// CHECK: %[[R:.*]] = train.fused(%[[P]])
// CHECK: train.relu
// CHECK: %[[Q:.*]] = train.matmul %[[R]], %[[P]]
// CHECK: %[[H:.*]] = train.fused(%[[Q]])
// CHECK: train.exp
// CHECK: %[[S:.*]]:2 = train.joined(%[[W]], %[[V]])
// CHECK-NEXT: ^bb0(%[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>):
// CHECK: train.fused(%[[A]])
// CHECK: train.fused(%[[B]])
// CHECK: %[[U:.*]]:2 = train.joined(%[[W]], %[[S]]#0, %[[V]], %[[S]]#1)
// CHECK: return %[[H]], %[[U]]#0, %[[U]]#1
func.func @step(%x: tensor<1x2048x2048xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<8xf32> {train.variable = "w"}, %v: tensor<8xf32> {train.variable = "v"})
    -> (tensor<1x2048x2048xf32> {train.name = "h"}, tensor<8xf32> {train.variable = "w"}, tensor<8xf32> {train.variable = "v"}) attributes {train.entry = "step"} {
  %p = train.matmul %x, %x {train.call = #train.call<"">} : (tensor<1x2048x2048xf32>, tensor<1x2048x2048xf32>) -> tensor<1x2048x2048xf32>
  %s = train.fused(%w) {train.tile_threads = 32 : i64} : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %m = train.mul %a, %a : tensor<8xf32>
    train.yield %m : tensor<8xf32>
  }
  %w2 = train.fused(%w, %s) {train.tile_threads = 32 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    %m = train.sub %a, %b : tensor<8xf32>
    train.yield %m : tensor<8xf32>
  }
  %r = train.fused(%p) {train.tile_threads = 32 : i64} : (tensor<1x2048x2048xf32>) -> tensor<1x2048x2048xf32> {
  ^bb0(%a: tensor<1x2048x2048xf32>):
    %m = train.relu %a : tensor<1x2048x2048xf32>
    train.yield %m : tensor<1x2048x2048xf32>
  }
  %q = train.matmul %r, %p {train.call = #train.call<"">} : (tensor<1x2048x2048xf32>, tensor<1x2048x2048xf32>) -> tensor<1x2048x2048xf32>
  %t = train.fused(%v) {train.tile_threads = 32 : i64} : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %m = train.mul %a, %a : tensor<8xf32>
    train.yield %m : tensor<8xf32>
  }
  %v2 = train.fused(%v, %t) {train.tile_threads = 32 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    %m = train.sub %a, %b : tensor<8xf32>
    train.yield %m : tensor<8xf32>
  }
  %h = train.fused(%q) {train.tile_threads = 32 : i64} : (tensor<1x2048x2048xf32>) -> tensor<1x2048x2048xf32> {
  ^bb0(%a: tensor<1x2048x2048xf32>):
    %m = train.exp %a : tensor<1x2048x2048xf32>
    train.yield %m : tensor<1x2048x2048xf32>
  }
  return %h, %w2, %v2 : tensor<1x2048x2048xf32>, tensor<8xf32>, tensor<8xf32>
}

// A kernel that a product needs is launched for it: the first cast, and with it the second, whose product follows. A kernel
// with blocks of another size has its own launch, and one whose number of threads is unknown does not wait.
// CHECK-LABEL: func.func @predict
// CHECK: %[[J:.*]]:2 = train.joined(
// CHECK: train.cast
// CHECK: train.cast
// CHECK: %[[P:.*]] = train.matmul %{{.*}}, %[[J]]#0
// CHECK: %[[K:.*]] = train.fused(%[[P]])
// CHECK: train.matmul %[[P]], %[[J]]#1
// CHECK: train.fused
// CHECK: train.fused
// CHECK-NOT: train.joined
// CHECK: return
func.func @predict(%x: tensor<1x64x64xbf16> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<1x64x64xf32> {train.variable = "w"}, %v: tensor<1x64x64xf32> {train.variable = "v"})
    -> (tensor<1x64x64xbf16> {train.name = "a"}, tensor<1x64x1xbf16> {train.name = "b"}, tensor<1x1x64xbf16> {train.name = "c"}, tensor<1x64x64xbf16> {train.name = "d"}) attributes {train.entry = "predict"} {
  %c = train.fused(%w) {train.tile_threads = 32 : i64} : (tensor<1x64x64xf32>) -> tensor<1x64x64xbf16> {
  ^bb0(%a: tensor<1x64x64xf32>):
    %m = train.cast %a : tensor<1x64x64xf32> -> tensor<1x64x64xbf16>
    train.yield %m : tensor<1x64x64xbf16>
  }
  %p = train.matmul %x, %c {train.call = #train.call<"">} : (tensor<1x64x64xbf16>, tensor<1x64x64xbf16>) -> tensor<1x64x64xbf16>
  %k = train.fused(%p) : (tensor<1x64x64xbf16>) -> tensor<1x64x64xbf16> {
  ^bb0(%a: tensor<1x64x64xbf16>):
    %m = train.relu %a : tensor<1x64x64xbf16>
    train.yield %m : tensor<1x64x64xbf16>
  }
  %d = train.fused(%v) {train.tile_threads = 32 : i64} : (tensor<1x64x64xf32>) -> tensor<1x64x64xbf16> {
  ^bb0(%a: tensor<1x64x64xf32>):
    %m = train.cast %a : tensor<1x64x64xf32> -> tensor<1x64x64xbf16>
    train.yield %m : tensor<1x64x64xbf16>
  }
  %q = train.matmul %p, %d {train.call = #train.call<"">} : (tensor<1x64x64xbf16>, tensor<1x64x64xbf16>) -> tensor<1x64x64xbf16>
  %e = train.fused(%q) {train.tile_threads = 64 : i64} : (tensor<1x64x64xbf16>) -> tensor<1x64x1xbf16> {
  ^bb0(%a: tensor<1x64x64xbf16>):
    %m = train.reduce sum %a [2] : tensor<1x64x64xbf16> -> tensor<1x64x1xbf16>
    train.yield %m : tensor<1x64x1xbf16>
  }
  %f = train.fused(%q) {train.tile_threads = 128 : i64} : (tensor<1x64x64xbf16>) -> tensor<1x1x64xbf16> {
  ^bb0(%a: tensor<1x64x64xbf16>):
    %m = train.reduce sum %a [1] : tensor<1x64x64xbf16> -> tensor<1x1x64xbf16>
    train.yield %m : tensor<1x1x64xbf16>
  }
  return %k, %e, %f, %q : tensor<1x64x64xbf16>, tensor<1x64x1xbf16>, tensor<1x1x64xbf16>, tensor<1x64x64xbf16>
}
