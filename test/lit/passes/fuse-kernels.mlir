// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels{fuse=false}))" | FileCheck %s --check-prefix=APART

// A chain of elementwise ops is one kernel, with its input's broadcast inside; between it and the reduction of its rows
// nothing is stored; the library's product does not belong to it.

// CHECK-LABEL: func.func @predict
// CHECK-SAME: %[[X:[^ ]*]]: tensor<8x16xf32>{{.*}}, %[[B:[^ ]*]]: tensor<16xf32>{{.*}}, %[[W:[^ ]*]]: tensor<1x1x4xf32>
func.func @predict(%x: tensor<8x16xf32> {train.name = "x", train.sample_axis = 0 : i64}, %b: tensor<16xf32> {train.variable = "b"}, %w: tensor<1x1x4xf32> {train.variable = "w"})
    -> (tensor<1x8x4xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  // CHECK: %[[SUM:.*]] = train.fused(
  // CHECK-SAME: -> tensor<8x1xf32>
  // CHECK: train.broadcast
  // CHECK: train.add
  // CHECK: train.exp
  // CHECK: train.reduce sum
  // CHECK: train.yield %{{[^ ]*}} : tensor<8x1xf32>
  // CHECK-NOT: train.fused
  %0 = train.broadcast %b : tensor<16xf32> -> tensor<8x16xf32>
  %1 = train.add %x, %0 : tensor<8x16xf32>
  %2 = train.exp %1 : tensor<8x16xf32>
  %3 = train.reduce sum %2 [1] : tensor<8x16xf32> -> tensor<8x1xf32>
  // CHECK: %[[VIEW:.*]] = train.reshape %[[SUM]]
  // CHECK: train.matmul %[[VIEW]], %[[W]] {train.call = #train.call<{{.*}}>}
  %4 = train.reshape %3 : tensor<8x1xf32> -> tensor<1x8x1xf32>
  %5 = train.matmul %4, %w {train.call = #train.call<"">} : (tensor<1x8x1xf32>, tensor<1x1x4xf32>) -> tensor<1x8x4xf32>
  return %5 : tensor<1x8x4xf32>
}

// For debugging: one kernel per op.
// APART-LABEL: func.func @predict
// APART-COUNT-4: = train.fused(
// APART-NOT: = train.fused(
// APART: return

// A product that the library does not compute is a kernel of its own.
// CHECK-LABEL: func.func @evaluate
// CHECK: train.fused
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.matmul
// CHECK-NEXT: train.yield
func.func @evaluate(%a: tensor<1x4x8xf64> {train.name = "a", train.sample_axis = 0 : i64}, %w: tensor<1x8x2xf64> {train.variable = "w"})
    -> (tensor<1x4x2xf64> {train.name = "y"}) attributes {train.entry = "evaluate"} {
  %0 = train.matmul %a, %w : (tensor<1x4x8xf64>, tensor<1x8x2xf64>) -> tensor<1x4x2xf64>
  return %0 : tensor<1x4x2xf64>
}

// A function that does not become an entry stays as it is.
// CHECK-LABEL: func.func @helper
// CHECK-NOT: train.fused
func.func @helper(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = train.exp %a : tensor<8xf32>
  return %0 : tensor<8xf32>
}
