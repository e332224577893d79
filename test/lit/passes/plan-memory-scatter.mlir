// RUN: tcc-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(plan-memory))" | FileCheck %s

// The gradient is read until the shard is needed, so that y cannot share its place: gradient 256, shard 128 and y 256 bytes.
// CHECK-LABEL: func.func @kept
// CHECK-SAME: train.transient_bytes = 640
// CHECK: train.reduce_scatter(%{{.*}}) ranks = 2 {train.beside = 1 : i64,
module attributes {train.runs_beside} {
func.func @kept(%x: tensor<64xf32> {train.name = "x"}) -> (tensor<64xf32> {train.name = "y"}, tensor<32xf32> {train.name = "z"})
    attributes {train.entry = "kept"} {
  %g = train.fused(%x) : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.exp %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %s = train.reduce_scatter(%g) ranks = 2 : (tensor<64xf32>) -> tensor<32xf32>
  %y = train.fused() : () -> tensor<64xf32> {
    %1 = train.constant dense<1.0> : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %z = train.fused(%s) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%0: tensor<32xf32>):
    %1 = train.neg %0 : tensor<32xf32>
    train.yield %1 : tensor<32xf32>
  }
  return %y, %z : tensor<64xf32>, tensor<32xf32>
}
}

// -----

// Nothing runs beside it: at most x and the gradient live, 512 bytes.
// CHECK-LABEL: func.func @given_up
// CHECK-SAME: train.transient_bytes = 512
// CHECK: train.reduce_scatter(%{{.*}}) ranks = 2 {train.offsets
func.func @given_up(%x: tensor<64xf32> {train.name = "x"}) -> (tensor<64xf32> {train.name = "y"}, tensor<32xf32> {train.name = "z"})
    attributes {train.entry = "given_up"} {
  %g = train.fused(%x) : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.exp %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %s = train.reduce_scatter(%g) ranks = 2 : (tensor<64xf32>) -> tensor<32xf32>
  %y = train.fused() : () -> tensor<64xf32> {
    %1 = train.constant dense<1.0> : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %z = train.fused(%s) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%0: tensor<32xf32>):
    %1 = train.neg %0 : tensor<32xf32>
    train.yield %1 : tensor<32xf32>
  }
  return %y, %z : tensor<64xf32>, tensor<32xf32>
}
