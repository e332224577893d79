// RUN: tcc-opt %s --schedule | FileCheck %s

// The first shard is summed across nodes when the second bucket is complete: its scatter runs beside the second gradient.
// CHECK-LABEL: func.func @step
// CHECK: train.fused(%{{.*}}) {train.test = "first gradient"}
// CHECK: %[[A:.*]] = train.reduce_scatter
// CHECK-NEXT: train.fused(%{{.*}}) {train.test = "second gradient"}
// CHECK: %[[SA:.*]] = train.all_reduce(%[[A]]) {across = 2 : i64}
// CHECK-NEXT: %[[B:.*]] = train.reduce_scatter
// CHECK-NEXT: train.fused(%{{.*}}, %[[SA]]) {train.test = "first update"}
// CHECK: train.all_reduce(%[[B]]) {across = 2 : i64}
func.func @step(%x: tensor<64xf32> {train.name = "x"}, %w: tensor<32xf32> {train.variable = "w"}, %v: tensor<32xf32> {train.variable = "v"})
    -> (tensor<32xf32> {train.variable = "w"}, tensor<32xf32> {train.variable = "v"}) attributes {train.entry = "step"} {
  %a = train.fused(%x) {train.test = "first gradient"} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.exp %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %na = train.reduce_scatter(%a) ranks = 2 : (tensor<64xf32>) -> tensor<32xf32>
  %sa = train.all_reduce(%na) {across = 2 : i64} : (tensor<32xf32>) -> tensor<32xf32>
  %nw = train.fused(%w, %sa) {train.test = "first update"} : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%0: tensor<32xf32>, %1: tensor<32xf32>):
    %2 = train.sub %0, %1 : tensor<32xf32>
    train.yield %2 : tensor<32xf32>
  }
  %b = train.fused(%x) {train.test = "second gradient"} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.neg %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %nb = train.reduce_scatter(%b) ranks = 2 : (tensor<64xf32>) -> tensor<32xf32>
  %sb = train.all_reduce(%nb) {across = 2 : i64} : (tensor<32xf32>) -> tensor<32xf32>
  %nv = train.fused(%v, %sb) {train.test = "second update"} : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%0: tensor<32xf32>, %1: tensor<32xf32>):
    %2 = train.sub %0, %1 : tensor<32xf32>
    train.yield %2 : tensor<32xf32>
  }
  return %nw, %nv : tensor<32xf32>, tensor<32xf32>
}
