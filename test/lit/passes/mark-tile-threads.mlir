// Only kernels of entries get the number, and only if the module names its target.
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(mark-tile-threads))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(mark-tile-threads))" | FileCheck %s --check-prefix=NONE
// CHECK-LABEL: func.func @step
// CHECK: train.fused(%{{.*}}) {train.tile_threads = 32 : i64}
// CHECK-LABEL: func.func @other
// CHECK-NOT: train.tile_threads
// NONE-NOT: train.tile_threads
func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> attributes {train.entry = "step"} {
  %y = train.fused(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %0 = train.exp %a : tensor<8xf32>
    train.yield %0 : tensor<8xf32>
  }
  return %y : tensor<8xf32>
}
func.func @other(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = train.fused(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>):
    %0 = train.exp %a : tensor<8xf32>
    train.yield %0 : tensor<8xf32>
  }
  return %y : tensor<8xf32>
}
