// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(plan-memory))" | FileCheck %s --check-prefix=BEFORE
// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(plan-memory,overlap-memory))" | FileCheck %s

// The second product's result of 1 MiB is born after the update has read the first's, and may take its place. If the
// update runs beside that product, both live, and the result takes the place of the dead input of 2.5 MiB: the arena is as
// large as before. The sum that waits for the update then comes after the product.

module attributes {train.slots = 2 : i64} {
// BEFORE-LABEL: func.func @step
// BEFORE-SAME: train.transient_bytes = 2654208 : i64
// CHECK-LABEL: func.func @step
// CHECK-SAME: train.transient_bytes = 2654208 : i64
func.func @step(%x: tensor<640x1024xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<512x512xf32> {train.variable = "w"})
    -> (tensor<1xf32> {train.name = "s"}, tensor<1x512x512xf32> {train.name = "y"}, tensor<512x512xf32> {train.variable = "w"}) attributes {train.entry = "step"} {
  // CHECK: %[[A:.*]] = train.fused(%{{.*}}) {train.offsets
  %a = train.fused(%x) : (tensor<640x1024xf32>) -> tensor<1x16x512xf32> {
  ^bb0(%p: tensor<640x1024xf32>):
    %r = train.slice %p starts [0, 0] steps [1, 1] : tensor<640x1024xf32> -> tensor<16x512xf32>
    %q = train.reshape %r : tensor<16x512xf32> -> tensor<1x16x512xf32>
    train.yield %q : tensor<1x16x512xf32>
  }
  // CHECK: train.matmul %[[A]], %[[A]]
  %g = train.matmul %a, %a {transA = true, train.call = #train.call<"">, train.scratch = #train.scratch<slot = 0, shared = 0, tiles = 2, partial = 0>} : (tensor<1x16x512xf32>, tensor<1x16x512xf32>) -> tensor<1x512x512xf32>
  %gv = train.reshape %g : tensor<1x512x512xf32> -> tensor<512x512xf32>
  // CHECK: %[[N:.*]]:2 = train.fused({{.*}}) {train.beside = 1 : i64
  %n, %s = train.fused(%w, %gv) : (tensor<512x512xf32>, tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x1xf32>) {
  ^bb0(%p: tensor<512x512xf32>, %q: tensor<512x512xf32>):
    %r = train.sub %p, %q : tensor<512x512xf32>
    %t = train.reduce sum %q [1] : tensor<512x512xf32> -> tensor<512x1xf32>
    train.yield %r, %t : tensor<512x512xf32>, tensor<512x1xf32>
  }
  // CHECK: train.matmul %[[A]], %[[A]]
  // CHECK: train.fused(%[[N]]#1)
  %u = train.fused(%s) : (tensor<512x1xf32>) -> tensor<1xf32> {
  ^bb0(%p: tensor<512x1xf32>):
    %t = train.reduce sum %p [0, 1] : tensor<512x1xf32> -> tensor<1x1xf32>
    %r = train.reshape %t : tensor<1x1xf32> -> tensor<1xf32>
    train.yield %r : tensor<1xf32>
  }
  %h = train.matmul %a, %a {transA = true, train.call = #train.call<"">, train.scratch = #train.scratch<slot = 0, shared = 0, tiles = 2, partial = 0>} : (tensor<1x16x512xf32>, tensor<1x16x512xf32>) -> tensor<1x512x512xf32>
  return %u, %h, %n : tensor<1xf32>, tensor<1x512x512xf32>, tensor<512x512xf32>
}

// A full arena keeps the order as it was: no buffer dies whose place the second result could take.
// CHECK-LABEL: func.func @full
// CHECK-NOT: train.beside
// CHECK: return
func.func @full(%x: tensor<1x16x512xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<512x512xf32> {train.variable = "w"})
    -> (tensor<1x512x512xf32> {train.name = "y"}, tensor<512x512xf32> {train.variable = "w"}) attributes {train.entry = "full"} {
  %g = train.matmul %x, %x {transA = true, train.call = #train.call<"">, train.scratch = #train.scratch<slot = 0, shared = 0, tiles = 2, partial = 0>} : (tensor<1x16x512xf32>, tensor<1x16x512xf32>) -> tensor<1x512x512xf32>
  %gv = train.reshape %g : tensor<1x512x512xf32> -> tensor<512x512xf32>
  %n = train.fused(%w, %gv) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> {
  ^bb0(%p: tensor<512x512xf32>, %q: tensor<512x512xf32>):
    %r = train.sub %p, %q : tensor<512x512xf32>
    train.yield %r : tensor<512x512xf32>
  }
  %h = train.matmul %x, %x {transA = true, train.call = #train.call<"">, train.scratch = #train.scratch<slot = 0, shared = 0, tiles = 2, partial = 0>} : (tensor<1x16x512xf32>, tensor<1x16x512xf32>) -> tensor<1x512x512xf32>
  return %h, %n : tensor<1x512x512xf32>, tensor<512x512xf32>
}
}
