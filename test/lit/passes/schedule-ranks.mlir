// RUN: tcc-opt %s --schedule | FileCheck %s

// The second sum begins as soon as its operand is complete; the update that reads the first runs behind that beginning.
// CHECK-LABEL: func.func @step
// CHECK: %[[A:.*]] = train.fused(%{{.*}}) {train.test = "first gradient"}
// CHECK: %[[SA:.*]] = train.all_reduce(%[[A]])
// CHECK-NEXT: %[[B:.*]] = train.fused(%{{.*}}) {train.test = "second gradient"}
// CHECK: %[[SB:.*]] = train.all_reduce(%[[B]])
// CHECK: train.fused(%{{.*}}, %[[SA]]) {train.test = "first update"}
// CHECK: train.fused(%{{.*}}, %[[SB]]) {train.test = "second update"}
func.func @step(%x: tensor<64xf32> {train.name = "x"}, %w: tensor<64xf32> {train.variable = "w"}, %v: tensor<64xf32> {train.variable = "v"})
    -> (tensor<64xf32> {train.variable = "w"}, tensor<64xf32> {train.variable = "v"}) attributes {train.entry = "step"} {
  %a = train.fused(%x) {train.test = "first gradient"} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.exp %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %sa = train.all_reduce(%a) : (tensor<64xf32>) -> tensor<64xf32>
  %nw = train.fused(%w, %sa) {train.test = "first update"} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.sub %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  %b = train.fused(%x) {train.test = "second gradient"} : (tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>):
    %1 = train.neg %0 : tensor<64xf32>
    train.yield %1 : tensor<64xf32>
  }
  %sb = train.all_reduce(%b) : (tensor<64xf32>) -> tensor<64xf32>
  %nv = train.fused(%v, %sb) {train.test = "second update"} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%0: tensor<64xf32>, %1: tensor<64xf32>):
    %2 = train.sub %0, %1 : tensor<64xf32>
    train.yield %2 : tensor<64xf32>
  }
  return %nw, %nv : tensor<64xf32>, tensor<64xf32>
}
