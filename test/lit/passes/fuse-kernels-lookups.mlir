// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s

// The kernel of a lookup of a few elements computes them from the operands of an elementwise chain: the chain's result,
// which the other reader computes for itself, is never stored.

// CHECK-LABEL: func.func @predict
// CHECK: train.fused({{.*}} -> tensor<4x512x1xf32> {
// CHECK: train.add
// CHECK-NEXT: train.reduce max
// CHECK-NEXT: train.yield %{{[0-9]+}} : tensor<4x512x1xf32>
// CHECK: train.fused({{.*}} -> tensor<4x512x1xf32> {
// CHECK: train.cast {{.*}}xbf16>
// CHECK: train.broadcast
// CHECK-NEXT: train.add
// CHECK-NEXT: train.pick
// CHECK-NEXT: train.yield %{{[0-9]+}} : tensor<4x512x1xf32>
// CHECK-NOT: train.fused
func.func @predict(%x: tensor<4x512x1024xbf16> {train.name = "x", train.sample_axis = 0 : i64}, %t: tensor<4x512x1xi64> {train.name = "t", train.sample_axis = 0 : i64}, %b: tensor<1022xf32> {train.variable = "b"})
    -> (tensor<4x512x1xf32> {train.name = "m"}, tensor<4x512x1xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %0 = train.cast %x : tensor<4x512x1024xbf16> -> tensor<4x512x1024xf32>
  %1 = train.broadcast %b : tensor<1022xf32> -> tensor<4x512x1022xf32>
  %2 = train.slice %0 starts [0, 0, 0] steps [1, 1, 1] : tensor<4x512x1024xf32> -> tensor<4x512x1022xf32>
  %3 = train.add %2, %1 : tensor<4x512x1022xf32>
  %4 = train.reduce max %3 [2] : tensor<4x512x1022xf32> -> tensor<4x512x1xf32>
  %5 = train.pick %3, %t dim = 2 : (tensor<4x512x1022xf32>, tensor<4x512x1xi64>) -> tensor<4x512x1xf32>
  return %4, %5 : tensor<4x512x1xf32>, tensor<4x512x1xf32>
}

// A value that is stored in any case, here as a result, is read from memory.

// CHECK-LABEL: func.func @stored
// CHECK: train.fused({{.*}} -> tensor<4x512x1022xf32> {
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.neg
// CHECK-NEXT: train.yield
// CHECK: train.fused(
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.pick
func.func @stored(%x: tensor<4x512x1022xf32> {train.name = "x", train.sample_axis = 0 : i64}, %t: tensor<4x512x1xi64> {train.name = "t", train.sample_axis = 0 : i64})
    -> (tensor<4x512x1022xf32> {train.name = "n"}, tensor<4x512x1xf32> {train.name = "y"}) attributes {train.entry = "stored"} {
  %0 = train.neg %x : tensor<4x512x1022xf32>
  %1 = train.pick %0, %t dim = 2 : (tensor<4x512x1022xf32>, tensor<4x512x1xi64>) -> tensor<4x512x1xf32>
  return %0, %1 : tensor<4x512x1022xf32>, tensor<4x512x1xf32>
}

// A forward value that the backward pass reads is stored, too: its ops are copied for no lookup.

// CHECK-LABEL: func.func @step
// CHECK: %[[FORWARD:.*]]:2 = train.fused({{.*}} -> (tensor<2048x1022xf32>, tensor<2048x1xf32>) {
// CHECK: train.fused(%[[FORWARD]]#0
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.pick
func.func @step(%x: tensor<2048x1022xf32> {train.name = "x", train.sample_axis = 0 : i64}, %t: tensor<2048x1xi64> {train.name = "t", train.sample_axis = 0 : i64})
    -> (tensor<2048x1xf32> {train.name = "loss_sum"}, tensor<2048x1022xf32> {train.name = "gradient:x"}) attributes {train.entry = "train"} {
  %0 = train.neg %x : tensor<2048x1022xf32>
  %1 = train.reduce max %0 [1] : tensor<2048x1022xf32> -> tensor<2048x1xf32>
  %2 = train.pick %0, %t dim = 1 : (tensor<2048x1022xf32>, tensor<2048x1xi64>) -> tensor<2048x1xf32>
  %3 = train.sub %1, %2 : tensor<2048x1xf32>
  %4 = train.reduce sum %x [0] : tensor<2048x1022xf32> -> tensor<1x1022xf32>
  %5 = train.broadcast %4 : tensor<1x1022xf32> -> tensor<2048x1022xf32>
  %6 = train.mul %0, %5 : tensor<2048x1022xf32>
  return %3, %6 : tensor<2048x1xf32>, tensor<2048x1022xf32>
}

// A kernel of the chain writes less than five operands for a quarter of the elements.

// CHECK-LABEL: func.func @many
// CHECK: train.exp
// CHECK-NEXT: train.yield
// CHECK: train.fused(
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.pick
func.func @many(%v: tensor<1048576x4xf32> {train.name = "v", train.sample_axis = 0 : i64}, %w: tensor<1048576x4xf32> {train.name = "w", train.sample_axis = 0 : i64}, %x: tensor<1048576x4xf32> {train.name = "x", train.sample_axis = 0 : i64}, %y: tensor<1048576x4xf32> {train.name = "y", train.sample_axis = 0 : i64}, %z: tensor<1048576x4xf32> {train.name = "z", train.sample_axis = 0 : i64}, %t: tensor<1048576x1xi64> {train.name = "t", train.sample_axis = 0 : i64})
    -> (tensor<1048576x1xf32> {train.name = "picked"}) attributes {train.entry = "many"} {
  %0 = train.mul %v, %w : tensor<1048576x4xf32>
  %1 = train.add %0, %x : tensor<1048576x4xf32>
  %2 = train.add %1, %y : tensor<1048576x4xf32>
  %3 = train.mul %2, %z : tensor<1048576x4xf32>
  %4 = train.exp %3 : tensor<1048576x4xf32>
  %5 = train.pick %4, %t dim = 1 : (tensor<1048576x4xf32>, tensor<1048576x1xi64>) -> tensor<1048576x1xf32>
  return %5 : tensor<1048576x1xf32>
}

// To store little takes less time than another kernel.

// CHECK-LABEL: func.func @small
// CHECK: train.neg
// CHECK: train.fused(
// CHECK-NEXT: ^bb0
// CHECK-NEXT: train.pick
func.func @small(%x: tensor<4x62xf32> {train.name = "x", train.sample_axis = 0 : i64}, %t: tensor<4x1xi64> {train.name = "t", train.sample_axis = 0 : i64})
    -> (tensor<4x1xf32> {train.name = "picked"}) attributes {train.entry = "small"} {
  %0 = train.neg %x : tensor<4x62xf32>
  %1 = train.pick %0, %t dim = 1 : (tensor<4x62xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
  return %1 : tensor<4x1xf32>
}
