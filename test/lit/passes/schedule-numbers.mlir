// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(schedule))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(schedule))" | FileCheck %s --check-prefix=HOST

// The host of a card waits for the norm while the card computes the updates: the norm comes as soon as its sum is ready. A
// host that computes by itself waits for nothing, and numbers that no instruction reads come last.
// CHECK-LABEL: func.func @step
// CHECK: %[[S:.*]] = train.fused(%arg2)
// CHECK: %[[N:.*]] = train.fused(%[[S]]) : (tensor<1xf32>) -> tensor<1xf32>
// CHECK: train.fused(%arg0,
// CHECK: train.fused(%arg1,
// CHECK: return {{.*}}, %[[N]]
// HOST-LABEL: func.func @step
// HOST: train.fused(%arg2)
// HOST: train.fused(%arg0,
// HOST: train.sqrt
// HOST: return
func.func @step(%w: tensor<64xf32> {train.variable = "w"}, %v: tensor<64xf32> {train.variable = "v"}, %g: tensor<64xf32> {train.name = "g"})
    -> (tensor<64xf32> {train.variable = "w"}, tensor<64xf32> {train.variable = "v"}, tensor<1xf32> {train.name = "norm"}) attributes {train.entry = "step"} {
  %s = train.fused(%g) : (tensor<64xf32>) -> tensor<1xf32> {
  ^bb0(%p: tensor<64xf32>):
    %q = train.mul %p, %p : tensor<64xf32>
    %r = train.reduce sum %q [0] : tensor<64xf32> -> tensor<1xf32>
    train.yield %r : tensor<1xf32>
  }
  %w2 = train.fused(%w, %s) : (tensor<64xf32>, tensor<1xf32>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<1xf32>):
    %b = train.broadcast %q : tensor<1xf32> -> tensor<64xf32>
    %r = train.sub %p, %b : tensor<64xf32>
    train.yield %r : tensor<64xf32>
  }
  %v2 = train.fused(%v, %s) : (tensor<64xf32>, tensor<1xf32>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<1xf32>):
    %b = train.broadcast %q : tensor<1xf32> -> tensor<64xf32>
    %r = train.sub %p, %b : tensor<64xf32>
    train.yield %r : tensor<64xf32>
  }
  %n = train.fused(%s) : (tensor<1xf32>) -> tensor<1xf32> {
  ^bb0(%p: tensor<1xf32>):
    %r = train.sqrt %p : tensor<1xf32>
    train.yield %r : tensor<1xf32>
  }
  return %w2, %v2, %n : tensor<64xf32>, tensor<64xf32>, tensor<1xf32>
}
