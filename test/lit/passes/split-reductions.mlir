// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(split-reductions{units=64 length=8}))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(split-reductions))" | FileCheck %s --check-prefix=WHOLE

// 64 rows keep this machine busy: 40 columns are two vectors of 32 lanes, so there may be up to 32 parts; the greatest divisor
// of 96 that leaves 8 rows to each part is 12. A target that wants no parts (as this one) leaves everything unchanged.
// WHOLE-NOT: tensor<12x8x40xf32>

module attributes {train.target = "cpu:v4"} {
// The product and its sum share a kernel, which writes both; the ops after the sum are in the second kernel.
// CHECK-LABEL: func.func @columns
func.func @columns(%x: tensor<96x40xf32> {train.name = "x"}, %s: tensor<40xf32> {train.variable = "s"})
    -> (tensor<96x40xf32> {train.name = "y"}, tensor<1x40xf32> {train.name = "z"}) attributes {train.entry = "columns"} {
  // CHECK: %[[X:.*]] = train.reshape %arg0 : tensor<96x40xf32> -> tensor<12x8x40xf32>
  // CHECK: %[[P:.*]]:2 = train.fused(%[[X]], %arg1)
  // CHECK: train.broadcast %{{.*}} : tensor<40xf32> -> tensor<12x8x40xf32>
  // CHECK: %[[M:.*]] = train.mul
  // CHECK: %[[R:.*]] = train.reduce sum %[[M]] [1] : tensor<12x8x40xf32> -> tensor<12x1x40xf32>
  // CHECK: train.yield %[[R]], %[[M]]
  // CHECK: %[[Q:.*]] = train.reshape %[[P]]#0 : tensor<12x1x40xf32> -> tensor<12x40xf32>
  // CHECK: %[[Z:.*]] = train.fused(%[[Q]]) : (tensor<12x40xf32>) -> tensor<1x40xf32>
  // CHECK: train.reduce sum %{{.*}} [0] : tensor<12x40xf32> -> tensor<1x40xf32>
  // CHECK: train.exp
  // CHECK: %[[Y:.*]] = train.reshape %[[P]]#1 : tensor<12x8x40xf32> -> tensor<96x40xf32>
  // CHECK: return %[[Y]], %[[Z]]
  %y, %z = train.fused(%x, %s) : (tensor<96x40xf32>, tensor<40xf32>) -> (tensor<96x40xf32>, tensor<1x40xf32>) {
  ^bb0(%p: tensor<96x40xf32>, %q: tensor<40xf32>):
    %b = train.broadcast %q : tensor<40xf32> -> tensor<96x40xf32>
    %m = train.mul %p, %b : tensor<96x40xf32>
    %r = train.reduce sum %m [0] : tensor<96x40xf32> -> tensor<1x40xf32>
    %e = train.exp %r : tensor<1x40xf32>
    train.yield %m, %e : tensor<96x40xf32>, tensor<1x40xf32>
  }
  return %y, %z : tensor<96x40xf32>, tensor<1x40xf32>
}

// All elements become one: a part is a piece of the dimension along the lanes. Ops that move elements stay as they are,
// and their results are viewed in parts.
// CHECK-LABEL: func.func @all
func.func @all(%x: tensor<4096x3xf32> {train.name = "x"}) -> (tensor<1x1xf32> {train.name = "z"}) attributes {train.entry = "all"} {
  // CHECK: train.transpose %{{.*}} [1, 0] : tensor<4096x3xf32> -> tensor<3x4096xf32>
  // CHECK: train.reshape %{{.*}} : tensor<3x4096xf32> -> tensor<3x32x128xf32>
  // CHECK: train.reduce max %{{.*}} [0, 2] : tensor<3x32x128xf32> -> tensor<1x32x1xf32>
  // CHECK: train.reduce max %{{.*}} [1] : tensor<1x32xf32> -> tensor<1x1xf32>
  %z = train.fused(%x) : (tensor<4096x3xf32>) -> tensor<1x1xf32> {
  ^bb0(%p: tensor<4096x3xf32>):
    %t = train.transpose %p [1, 0] : tensor<4096x3xf32> -> tensor<3x4096xf32>
    %r = train.reduce max %t [0, 1] : tensor<3x4096xf32> -> tensor<1x1xf32>
    train.yield %r : tensor<1x1xf32>
  }
  return %z : tensor<1x1xf32>
}

// The quotient has the full shape and needs the sum: it is a third kernel.
// CHECK-LABEL: func.func @quotient
// CHECK: train.reduce sum %{{.*}} [1] : tensor<12x8x40xf32>
// CHECK: %[[S:.*]] = train.fused(%{{.*}}) : (tensor<12x40xf32>) -> tensor<1x40xf32>
// CHECK: train.reduce sum %{{.*}} [0] : tensor<12x40xf32>
// CHECK: train.fused(%[[S]], %arg0) : (tensor<1x40xf32>, tensor<96x40xf32>) -> tensor<96x40xf32>
// CHECK: train.div
func.func @quotient(%x: tensor<96x40xf32> {train.name = "x"}) -> (tensor<96x40xf32> {train.name = "y"}) attributes {train.entry = "quotient"} {
  %y = train.fused(%x) : (tensor<96x40xf32>) -> tensor<96x40xf32> {
  ^bb0(%p: tensor<96x40xf32>):
    %r = train.reduce sum %p [0] : tensor<96x40xf32> -> tensor<1x40xf32>
    %b = train.broadcast %r : tensor<1x40xf32> -> tensor<96x40xf32>
    %q = train.div %p, %b : tensor<96x40xf32>
    train.yield %q : tensor<96x40xf32>
  }
  return %y : tensor<96x40xf32>
}

// 97 rows have no divisor, and short rows are left unchanged.
// CHECK-LABEL: func.func @prime
// CHECK: train.reduce sum %{{.*}} [0] : tensor<97x40xf32>
// CHECK-NOT: train.reduce
func.func @prime(%x: tensor<97x40xf32> {train.name = "x"}) -> (tensor<1x40xf32> {train.name = "y"}) attributes {train.entry = "prime"} {
  %y = train.fused(%x) : (tensor<97x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<97x40xf32>):
    %r = train.reduce sum %p [0] : tensor<97x40xf32> -> tensor<1x40xf32>
    train.yield %r : tensor<1x40xf32>
  }
  return %y : tensor<1x40xf32>
}

// 4 × 6 × 4 rows: one dimension has no more than 6 parts, all together have 12. The scale of a column, which only the third
// kernel reads, is computed in the second one; the activation is stored by the first kernel and read by the third.
// CHECK-LABEL: func.func @pixels
// CHECK: %[[X:.*]] = train.reshape %arg0 : tensor<4x6x4x40xf32> -> tensor<12x8x40xf32>
// CHECK: %[[P:.*]]:2 = train.fused(%[[X]]{{.*}}) : (tensor<12x8x40xf32>, tensor<1x1x40xf32>) -> (tensor<12x1x40xf32>, tensor<12x8x40xf32>)
// CHECK: train.reduce sum %{{.*}} [1] : tensor<12x8x40xf32> -> tensor<12x1x40xf32>
// CHECK: %[[Q:.*]] = train.reshape %[[P]]#0 : tensor<12x1x40xf32> -> tensor<12x1x1x40xf32>
// CHECK: %[[S:.*]] = train.fused(%[[Q]]) : (tensor<12x1x1x40xf32>) -> tensor<1x1x1x40xf32>
// CHECK: train.reduce sum %{{.*}} [0]
// CHECK: train.rsqrt
// CHECK: %[[Y:.*]] = train.reshape %[[P]]#1 : tensor<12x8x40xf32> -> tensor<4x6x4x40xf32>
// CHECK: train.fused(%[[S]], %[[Y]])
// CHECK-NOT: train.rsqrt
// CHECK: train.mul
func.func @pixels(%x: tensor<4x6x4x40xf32> {train.name = "x"}, %s: tensor<1x1x1x40xf32> {train.name = "s"}) -> (tensor<4x6x4x40xf32> {train.name = "y"}, tensor<4x6x4x40xf32> {train.name = "z"}) attributes {train.entry = "pixels"} {
  %y, %z = train.fused(%x, %s) : (tensor<4x6x4x40xf32>, tensor<1x1x1x40xf32>) -> (tensor<4x6x4x40xf32>, tensor<4x6x4x40xf32>) {
  ^bb0(%p: tensor<4x6x4x40xf32>, %q: tensor<1x1x1x40xf32>):
    %c = train.broadcast %q : tensor<1x1x1x40xf32> -> tensor<4x6x4x40xf32>
    %m = train.mul %p, %c : tensor<4x6x4x40xf32>
    %r = train.reduce sum %m [0, 1, 2] : tensor<4x6x4x40xf32> -> tensor<1x1x1x40xf32>
    %e = train.rsqrt %r : tensor<1x1x1x40xf32>
    %b = train.broadcast %e : tensor<1x1x1x40xf32> -> tensor<4x6x4x40xf32>
    %n = train.mul %m, %b : tensor<4x6x4x40xf32>
    train.yield %m, %n : tensor<4x6x4x40xf32>, tensor<4x6x4x40xf32>
  }
  return %y, %z : tensor<4x6x4x40xf32>, tensor<4x6x4x40xf32>
}

// A factor of each image: rows of different images do not share a dimension.
// CHECK-LABEL: func.func @images
// CHECK: train.reduce sum %{{.*}} [0, 2, 3] : tensor<4x6x1x4x40xf32> -> tensor<1x6x1x1x40xf32>
func.func @images(%x: tensor<4x6x4x40xf32> {train.name = "x"}, %s: tensor<4x1x1x1xf32> {train.name = "s"}) -> (tensor<1x1x1x40xf32> {train.name = "y"}) attributes {train.entry = "images"} {
  %y = train.fused(%x, %s) : (tensor<4x6x4x40xf32>, tensor<4x1x1x1xf32>) -> tensor<1x1x1x40xf32> {
  ^bb0(%p: tensor<4x6x4x40xf32>, %q: tensor<4x1x1x1xf32>):
    %c = train.broadcast %q : tensor<4x1x1x1xf32> -> tensor<4x6x4x40xf32>
    %m = train.mul %p, %c : tensor<4x6x4x40xf32>
    %r = train.reduce sum %m [0, 1, 2] : tensor<4x6x4x40xf32> -> tensor<1x1x1x40xf32>
    train.yield %r : tensor<1x1x1x40xf32>
  }
  return %y : tensor<1x1x1x40xf32>
}
}
