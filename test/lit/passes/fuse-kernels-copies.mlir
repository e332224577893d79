// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fuse-kernels))" | FileCheck %s

// Values that two kernels each compute again are stored by neither: the row's reciprocal is broadcast where it is read,
// and the result that both products read is one tensor.

// CHECK-LABEL: func.func @rows
// CHECK: train.fused(%{{[^ ]*}}) : (tensor<1x8x64xf32>) -> tensor<1x8x64xf32> {
// CHECK-NOT: train.fused
// CHECK-LABEL: func.func @heads
func.func @rows(%x: tensor<1x8x64xf32> {train.name = "x"}, %w: tensor<1x64x4xf32> {train.variable = "w"}, %v: tensor<1x64x4xf32> {train.variable = "v"})
    -> (tensor<1x8x4xf32> {train.name = "y"}, tensor<1x8x4xf32> {train.name = "z"}) attributes {train.entry = "predict"} {
  %e = train.exp %x : tensor<1x8x64xf32>
  %s = train.reduce sum %e [2] : tensor<1x8x64xf32> -> tensor<1x8x1xf32>
  %b = train.broadcast %s : tensor<1x8x1xf32> -> tensor<1x8x64xf32>
  %p = train.div %e, %b : tensor<1x8x64xf32>
  %y = train.matmul %p, %w {train.call = #train.call<"">} : (tensor<1x8x64xf32>, tensor<1x64x4xf32>) -> tensor<1x8x4xf32>
  %z = train.matmul %p, %v {train.call = #train.call<"">} : (tensor<1x8x64xf32>, tensor<1x64x4xf32>) -> tensor<1x8x4xf32>
  return %y, %z : tensor<1x8x4xf32>, tensor<1x8x4xf32>
}

// Each slice of a transposed tensor reads its own part: the whole tensor is never transposed.

// CHECK-COUNT-2: train.fused(%{{[^ ]*}}) : (tensor<4x2x8xf32>) -> tensor<1x4x8xf32> {
// CHECK-NOT: train.fused
// CHECK-LABEL: func.func @otherRows
func.func @heads(%x: tensor<4x2x8xf32> {train.name = "x"}, %w: tensor<1x8x4xf32> {train.variable = "w"})
    -> (tensor<1x4x4xf32> {train.name = "y"}, tensor<1x4x4xf32> {train.name = "z"}) attributes {train.entry = "predict"} {
  %t = train.transpose %x [1, 0, 2] : tensor<4x2x8xf32> -> tensor<2x4x8xf32>
  %q = train.slice %t starts [0, 0, 0] steps [1, 1, 1] : tensor<2x4x8xf32> -> tensor<1x4x8xf32>
  %k = train.slice %t starts [1, 0, 0] steps [1, 1, 1] : tensor<2x4x8xf32> -> tensor<1x4x8xf32>
  %y = train.matmul %q, %w {train.call = #train.call<"">} : (tensor<1x4x8xf32>, tensor<1x8x4xf32>) -> tensor<1x4x4xf32>
  %z = train.matmul %k, %w {train.call = #train.call<"">} : (tensor<1x4x8xf32>, tensor<1x8x4xf32>) -> tensor<1x4x4xf32>
  return %y, %z : tensor<1x4x4xf32>, tensor<1x4x4xf32>
}

// A kernel has only the sum of its own row: an op that reads sums of other rows (here by a transpose of a square) is another one.

// CHECK: train.reduce
// CHECK-NOT: train.transpose
// CHECK: train.yield
// CHECK: train.transpose
func.func @otherRows(%x: tensor<8x8xf32> {train.name = "x"}) -> (tensor<8x8xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %s = train.reduce sum %x [1] : tensor<8x8xf32> -> tensor<8x1xf32>
  %b = train.broadcast %s : tensor<8x1xf32> -> tensor<8x8xf32>
  %d = train.sub %x, %b : tensor<8x8xf32>
  %t = train.transpose %d [1, 0] : tensor<8x8xf32> -> tensor<8x8xf32>
  %y = train.add %t, %x : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// Each reader widens the rounded value by itself: memory has the residual once, rounded.

// CHECK-LABEL: func.func @residual
// CHECK: train.fused(%{{[^ ]*}}, %{{[^ ]*}}) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xbf16> {
// CHECK: train.matmul
// CHECK: train.fused(%{{[^ ]*}}, %{{[^ ]*}}) : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xf32> {
// CHECK-NOT: train.fused
func.func @residual(%x: tensor<8x8xf32> {train.name = "x"}, %z: tensor<8x8xf32> {train.name = "z"}, %w: tensor<1x8x8xbf16> {train.variable = "w"}) -> (tensor<8x8xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  %e = train.add %x, %z : tensor<8x8xf32>
  %n = train.cast %e : tensor<8x8xf32> -> tensor<8x8xbf16>
  %wide = train.cast %n : tensor<8x8xbf16> -> tensor<8x8xf32>
  %v = train.reshape %n : tensor<8x8xbf16> -> tensor<1x8x8xbf16>
  %p = train.matmul %v, %w {train.call = #train.call<"">} : (tensor<1x8x8xbf16>, tensor<1x8x8xbf16>) -> tensor<1x8x8xbf16>
  %b = train.reshape %p : tensor<1x8x8xbf16> -> tensor<8x8xbf16>
  %q = train.cast %b : tensor<8x8xbf16> -> tensor<8x8xf32>
  %y = train.add %wide, %q : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
