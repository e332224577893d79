// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(schedule))" | FileCheck %s

// A value that only the end needs is computed just before it: that keeps less alive meanwhile.
// CHECK-LABEL: func.func @predict
// CHECK: %[[B:.*]] = train.matmul
// CHECK: %[[D:.*]] = train.matmul %[[B]]
// CHECK: %[[A:.*]] = train.fused
// CHECK: train.exp
// CHECK: train.matmul %[[D]], %[[A]]
func.func @predict(%x: tensor<1x8x8xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<1x8x8xf32> {train.variable = "w"})
    -> (tensor<1x8x8xf32> {train.name = "c"}) attributes {train.entry = "predict"} {
  %a = train.fused(%w) : (tensor<1x8x8xf32>) -> tensor<1x8x8xf32> {
  ^bb0(%p: tensor<1x8x8xf32>):
    %r = train.exp %p : tensor<1x8x8xf32>
    train.yield %r : tensor<1x8x8xf32>
  }
  %b = train.matmul %x, %w {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %d = train.matmul %b, %w {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %c = train.matmul %d, %a {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  return %c : tensor<1x8x8xf32>
}

// v's update frees h, so it runs as soon as h is ready. w's update waits for %y, which reads the old w, though its gradient
// was ready first.
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[^ ]*]]: tensor<1x8x8xf32> {train.name = "x"{{[^%]*}}%[[W:[^ ]*]]: {{[^%]*}}%[[V:[^ ]*]]:
// CHECK: %[[G:.*]] = train.matmul %[[X]], %[[X]]
// CHECK: %[[H:.*]] = train.matmul %[[X]], %[[G]]
// CHECK: %[[V2:.*]] = train.fused(%[[V]], %[[H]])
// CHECK: %[[Y:.*]] = train.matmul %[[G]], %[[W]]
// CHECK: %[[W2:.*]] = train.fused(%[[W]], %[[G]])
// CHECK: return %[[Y]], %[[W2]], %[[V2]]
func.func @step(%x: tensor<1x8x8xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<1x8x8xf32> {train.variable = "w"}, %v: tensor<1x8x8xf32> {train.variable = "v"})
    -> (tensor<1x8x8xf32> {train.name = "y"}, tensor<1x8x8xf32> {train.variable = "w"}, tensor<1x8x8xf32> {train.variable = "v"}) attributes {train.entry = "step"} {
  %g = train.matmul %x, %x {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %w2 = train.fused(%w, %g) : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32> {
  ^bb0(%p: tensor<1x8x8xf32>, %q: tensor<1x8x8xf32>):
    %r = train.sub %p, %q : tensor<1x8x8xf32>
    train.yield %r : tensor<1x8x8xf32>
  }
  %h = train.matmul %x, %g {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %y = train.matmul %g, %w {train.call = #train.call<"">} : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  %v2 = train.fused(%v, %h) : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32> {
  ^bb0(%p: tensor<1x8x8xf32>, %q: tensor<1x8x8xf32>):
    %r = train.sub %p, %q : tensor<1x8x8xf32>
    train.yield %r : tensor<1x8x8xf32>
  }
  return %y, %w2, %v2 : tensor<1x8x8xf32>, tensor<1x8x8xf32>, tensor<1x8x8xf32>
}
