// RUN: tcc-opt %s --split-input-file --schedule | FileCheck %s

// A bucket of parameters is gathered while the computation uses the one before it.
// CHECK-LABEL: func.func @one_ahead
// CHECK: %[[A:.*]] = train.all_gather(%arg1)
// CHECK: %[[B:.*]] = train.all_gather(%arg2)
// CHECK: train.fused(%{{.*}}, %[[A]])
// CHECK: %[[C:.*]] = train.all_gather(%arg3)
// CHECK: train.fused(%{{.*}}, %[[B]])
// CHECK: train.fused(%{{.*}}, %[[C]])
func.func @one_ahead(%x: tensor<64xf32> {train.name = "x"}, %u: tensor<32xf32> {train.variable = "u"}, %v: tensor<32xf32> {train.variable = "v"},
                %w: tensor<32xf32> {train.variable = "w"}) -> (tensor<64xf32> {train.name = "y"}) attributes {train.entry = "evaluate"} {
  %gu = train.all_gather(%u) ranks = 2 : (tensor<32xf32>) -> tensor<64xf32>
  %a = train.fused(%x, %gu) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.sub %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  %gv = train.all_gather(%v) ranks = 2 : (tensor<32xf32>) -> tensor<64xf32>
  %b = train.fused(%a, %gv) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.mul %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  %gw = train.all_gather(%w) ranks = 2 : (tensor<32xf32>) -> tensor<64xf32>
  %c = train.fused(%b, %gw) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.add %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  return %c : tensor<64xf32>
}

// -----

// No bucket is gathered ahead: each is gathered where the order of least memory places it.
// CHECK-LABEL: func.func @none_ahead
// CHECK: %[[A:.*]] = train.all_gather(%arg1)
// CHECK: train.fused(%{{.*}}, %[[A]])
// CHECK: %[[B:.*]] = train.all_gather(%arg2)
// CHECK: train.fused(%{{.*}}, %[[B]])
module attributes {train.prefetch = 0 : i64} {
func.func @none_ahead(%x: tensor<64xf32> {train.name = "x"}, %u: tensor<32xf32> {train.variable = "u"}, %v: tensor<32xf32> {train.variable = "v"})
    -> (tensor<64xf32> {train.name = "y"}) attributes {train.entry = "evaluate"} {
  %gu = train.all_gather(%u) ranks = 2 : (tensor<32xf32>) -> tensor<64xf32>
  %gv = train.all_gather(%v) ranks = 2 : (tensor<32xf32>) -> tensor<64xf32>
  %a = train.fused(%x, %gu) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.sub %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  %b = train.fused(%a, %gv) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.mul %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  return %b : tensor<64xf32>
}
}
