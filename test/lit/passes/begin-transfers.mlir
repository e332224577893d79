// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(begin-transfers))" | FileCheck %s

train.variable @m : tensor<32xf32> {fill = 0.0 : f64, role = "optimizer", train.on_host}

// A store moves behind what makes its source and may run up to where it stood; a fetch stays, and may run up to its reader.
// CHECK-LABEL: func.func @step
// CHECK: %[[A:.*]] = train.fused(%{{.*}})
// CHECK: %[[H:.*]] = train.store %[[A]] {train.beside = 1 : i64} : tensor<32xf32>
// CHECK: %[[B:.*]] = train.fused(%[[A]])
// CHECK: %[[C:.*]] = train.fused(%[[B]])
// CHECK: %[[F:.*]] = train.fetch %[[H]] {train.beside = 1 : i64} : tensor<32xf32>
// CHECK: train.fused(%[[C]])
// CHECK: train.fused(%{{.*}}, %[[F]])
func.func @step(%x: tensor<32xf32> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<32xf32> {train.name = "y"}) attributes {train.entry = "step"} {
  %a = train.fused(%x) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %b = train.fused(%a) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %h = train.store %a : tensor<32xf32>
  %c = train.fused(%b) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %f = train.fetch %h : tensor<32xf32>
  %d = train.fused(%c) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %e = train.fused(%d, %f) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>, %q: tensor<32xf32>):
    %r = train.add %p, %q : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  return %e : tensor<32xf32>
}

// Of two readers of old state, each has a fetch of its own; the store of the new state waits for the second reader.
// CHECK-LABEL: func.func @update
// CHECK: %[[M:.*]] = train.fetch %arg0 : tensor<32xf32>
// CHECK: %[[N:.*]] = train.fused(%[[M]])
// CHECK: %[[AGAIN:.*]] = train.fetch %arg0 : tensor<32xf32>
// CHECK: train.fused(%[[AGAIN]])
// CHECK: %[[NEW:.*]] = train.store %[[N]] {train.beside = 1 : i64} : tensor<32xf32>
// CHECK: train.fused
// CHECK: return %[[NEW]]
func.func @update(%m: tensor<32xf32> {train.variable = "m"})
    -> (tensor<32xf32> {train.variable = "m"}, tensor<32xf32> {train.name = "y"}) attributes {train.entry = "update"} {
  %1 = train.fetch %m : tensor<32xf32>
  %n = train.fused(%1) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %2 = train.fetch %m : tensor<32xf32>
  %y = train.fused(%2) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %z = train.fused(%y) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  %new = train.store %n : tensor<32xf32>
  return %new, %z : tensor<32xf32>, tensor<32xf32>
}
