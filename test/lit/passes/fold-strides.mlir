// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(fold-strides))" --split-input-file | FileCheck %s

// Queries, keys and values are slices of one tensor, and their gradients become one tensor: two kernels, and nothing beside
// them. The gradient reads the output from where the forward pass wrote it.
// CHECK-LABEL: func.func @stacked
// CHECK: %[[F:.*]]:3 = train.fused(%arg0) {train.scratch = #train.scratch<{{.*}}>} : (tensor<2x64x3x4x32xf32>) -> (tensor<2x64x4x32xf32>, tensor<2x4x64x1xf32>, tensor<2x4x64x1xf32>)
// CHECK: ^bb0(%[[X:.*]]: tensor<2x64x3x4x32xf32>):
// CHECK: %[[T:.*]] = train.transpose %[[X]] [2, 0, 3, 1, 4]
// CHECK: train.slice %[[T]] starts [0, 0, 0, 0, 0]
// CHECK: train.slice %[[T]] starts [1, 0, 0, 0, 0]
// CHECK: train.slice %[[T]] starts [2, 0, 0, 0, 0]
// CHECK: %[[O:.*]], %[[L:.*]], %[[R:.*]] = train.attention
// CHECK: %[[B:.*]] = train.transpose %[[O]] [0, 2, 1, 3]
// CHECK: train.yield %[[B]], %[[L]], %[[R]]
// CHECK: train.fused(%arg0, %[[F]]#0, %[[F]]#1, %[[F]]#2, %arg1)
// CHECK-SAME: -> tensor<2x64x3x4x32xf32>
// CHECK: %[[Q:.*]], %[[K:.*]], %[[V:.*]] = train.attention_grad
// CHECK: %[[C:.*]] = train.concat dim = 0
// CHECK: %[[G:.*]] = train.transpose %[[C]] [1, 3, 0, 2, 4]
// CHECK: train.yield %[[G]]
// CHECK-NOT: train.pad
// CHECK-NOT: train.add
func.func @stacked(%x: tensor<2x64x3x4x32xf32>, %g: tensor<2x64x4x32xf32>) -> (tensor<2x64x4x32xf32>, tensor<2x64x3x4x32xf32>) attributes {train.entry = "step"} {
  %t = train.transpose %x [2, 0, 3, 1, 4] : tensor<2x64x3x4x32xf32> -> tensor<3x2x4x64x32xf32>
  %q0 = train.slice %t starts [0, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] : tensor<3x2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %k0 = train.slice %t starts [1, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] : tensor<3x2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %v0 = train.slice %t starts [2, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] : tensor<3x2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %q = train.reshape %q0 : tensor<1x2x4x64x32xf32> -> tensor<2x4x64x32xf32>
  %k = train.reshape %k0 : tensor<1x2x4x64x32xf32> -> tensor<2x4x64x32xf32>
  %v = train.reshape %v0 : tensor<1x2x4x64x32xf32> -> tensor<2x4x64x32xf32>
  %o, %l, %l_rest = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>) -> (tensor<2x4x64x32xf32>, tensor<2x4x64x1xf32>, tensor<2x4x64x1xf32>)
  %y = train.transpose %o [0, 2, 1, 3] : tensor<2x4x64x32xf32> -> tensor<2x64x4x32xf32>
  %h = train.transpose %g [0, 2, 1, 3] : tensor<2x64x4x32xf32> -> tensor<2x4x64x32xf32>
  %gq, %gk, %gv = train.attention_grad %q, %k, %v, %o, %l, %l_rest, %h {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1>, scale = 0.5} : (tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>, tensor<2x4x64x1xf32>, tensor<2x4x64x1xf32>, tensor<2x4x64x32xf32>) -> (tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>, tensor<2x4x64x32xf32>)
  %v1 = train.reshape %gv : tensor<2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %k1 = train.reshape %gk : tensor<2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %q1 = train.reshape %gq : tensor<2x4x64x32xf32> -> tensor<1x2x4x64x32xf32>
  %v2 = train.pad %v1 low [2, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] value 0.0 : tensor<1x2x4x64x32xf32> -> tensor<3x2x4x64x32xf32>
  %k2 = train.pad %k1 low [1, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] value 0.0 : tensor<1x2x4x64x32xf32> -> tensor<3x2x4x64x32xf32>
  %q2 = train.pad %q1 low [0, 0, 0, 0, 0] steps [1, 1, 1, 1, 1] value 0.0 : tensor<1x2x4x64x32xf32> -> tensor<3x2x4x64x32xf32>
  %s = train.add %v2, %k2 : tensor<3x2x4x64x32xf32>
  %s2 = train.add %s, %q2 : tensor<3x2x4x64x32xf32>
  %z = train.transpose %s2 [1, 3, 0, 2, 4] : tensor<3x2x4x64x32xf32> -> tensor<2x64x3x4x32xf32>
  return %y, %z : tensor<2x64x4x32xf32>, tensor<2x64x3x4x32xf32>
}

// -----

// One cast for all comes before the slices; after the output's transpose the two casts meet and cancel.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[X:.*]] = train.cast %arg0 : tensor<2x64x24xf32> -> tensor<2x64x24xbf16>
// CHECK-NOT: train.cast
// CHECK: %[[F:.*]]:3 = train.fused(%[[X]])
// CHECK-COUNT-3: train.slice %{{.*}} : tensor<2x64x24xbf16>
// CHECK: train.yield
// CHECK-NOT: train.cast
// CHECK: %[[R:.*]] = train.reshape %[[F]]#0 : tensor<2x64x2x4xbf16> -> tensor<2x64x8xbf16>
// CHECK: return %[[R]]
func.func @rounded(%x: tensor<2x64x24xf32>) -> tensor<2x64x8xbf16> attributes {train.entry = "step"} {
  %q0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<2x64x24xf32> -> tensor<2x64x8xf32>
  %k0 = train.slice %x starts [0, 0, 8] steps [1, 1, 1] : tensor<2x64x24xf32> -> tensor<2x64x8xf32>
  %v0 = train.slice %x starts [0, 0, 16] steps [1, 1, 1] : tensor<2x64x24xf32> -> tensor<2x64x8xf32>
  %q1 = train.reshape %q0 : tensor<2x64x8xf32> -> tensor<2x64x2x4xf32>
  %k1 = train.reshape %k0 : tensor<2x64x8xf32> -> tensor<2x64x2x4xf32>
  %v1 = train.reshape %v0 : tensor<2x64x8xf32> -> tensor<2x64x2x4xf32>
  %q2 = train.transpose %q1 [0, 2, 1, 3] : tensor<2x64x2x4xf32> -> tensor<2x2x64x4xf32>
  %k2 = train.transpose %k1 [0, 2, 1, 3] : tensor<2x64x2x4xf32> -> tensor<2x2x64x4xf32>
  %v2 = train.transpose %v1 [0, 2, 1, 3] : tensor<2x64x2x4xf32> -> tensor<2x2x64x4xf32>
  %q = train.cast %q2 : tensor<2x2x64x4xf32> -> tensor<2x2x64x4xbf16>
  %k = train.cast %k2 : tensor<2x2x64x4xf32> -> tensor<2x2x64x4xbf16>
  %v = train.cast %v2 : tensor<2x2x64x4xf32> -> tensor<2x2x64x4xbf16>
  %o, %l, %l_rest = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<2x2x64x4xbf16>, tensor<2x2x64x4xbf16>, tensor<2x2x64x4xbf16>) -> (tensor<2x2x64x4xbf16>, tensor<2x2x64x1xf32>, tensor<2x2x64x1xf32>)
  %w = train.cast %o : tensor<2x2x64x4xbf16> -> tensor<2x2x64x4xf32>
  %y = train.transpose %w [0, 2, 1, 3] : tensor<2x2x64x4xf32> -> tensor<2x64x2x4xf32>
  %z = train.reshape %y : tensor<2x64x2x4xf32> -> tensor<2x64x8xf32>
  %r = train.cast %z : tensor<2x64x8xf32> -> tensor<2x64x8xbf16>
  return %r : tensor<2x64x8xbf16>
}

// -----

// Values are a third of a tensor: read in place, they would keep all of it. Keys have another reader as they
// are, and the loops cannot follow a transpose that makes features a stride. Each stays as it was.
// CHECK-LABEL: func.func @left
// CHECK-NOT: train.fused
// CHECK: train.attention
// CHECK-NOT: train.fused
func.func @left(%x: tensor<2x3x8x64x4xf32>, %y: tensor<2x64x8x4xf32>, %z: tensor<2x8x4x64xf32>) -> (tensor<2x8x64x4xf32>, tensor<2x8x64x4xf32>) attributes {train.entry = "step"} {
  %v0 = train.slice %x starts [0, 2, 0, 0, 0] steps [1, 1, 1, 1, 1] : tensor<2x3x8x64x4xf32> -> tensor<2x1x8x64x4xf32>
  %v = train.reshape %v0 : tensor<2x1x8x64x4xf32> -> tensor<2x8x64x4xf32>
  %k = train.transpose %y [0, 2, 1, 3] : tensor<2x64x8x4xf32> -> tensor<2x8x64x4xf32>
  %q = train.transpose %z [0, 1, 3, 2] : tensor<2x8x4x64xf32> -> tensor<2x8x64x4xf32>
  %o, %l, %l_rest = train.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<2x8x64x4xf32>, tensor<2x8x64x4xf32>, tensor<2x8x64x4xf32>) -> (tensor<2x8x64x4xf32>, tensor<2x8x64x1xf32>, tensor<2x8x64x1xf32>)
  return %o, %k : tensor<2x8x64x4xf32>, tensor<2x8x64x4xf32>
}

// -----

// One tensor for all three, read once in its own layout and once through another view.
// CHECK-LABEL: func.func @shared
// CHECK: train.fused(%arg0)
// CHECK: train.attention
// CHECK-NOT: train.transpose
// CHECK: return
func.func @shared(%x: tensor<1x64x8x4xf32>) -> tensor<1x8x64x4xf32> attributes {train.entry = "step"} {
  %k = train.transpose %x [0, 2, 1, 3] : tensor<1x64x8x4xf32> -> tensor<1x8x64x4xf32>
  %p = train.reshape %k : tensor<1x8x64x4xf32> -> tensor<8x64x4xf32>
  %q = train.reshape %p : tensor<8x64x4xf32> -> tensor<1x8x64x4xf32>
  %o, %l, %l_rest = train.attention %q, %k, %k {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<1x8x64x4xf32>, tensor<1x8x64x4xf32>, tensor<1x8x64x4xf32>) -> (tensor<1x8x64x4xf32>, tensor<1x8x64x1xf32>, tensor<1x8x64x1xf32>)
  return %o : tensor<1x8x64x4xf32>
}

// -----

// Elements that a slice cuts off have no place in its result: loops that wrote every element would overwrite others.
// CHECK-LABEL: func.func @cut
// CHECK-NOT: train.fused
// CHECK: train.attention
// CHECK-NOT: train.fused
// CHECK: train.slice
func.func @cut(%x: tensor<1x8x64x4xf32>) -> tensor<1x8x63x4xf32> attributes {train.entry = "step"} {
  %o, %l, %l_rest = train.attention %x, %x, %x {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 0.5} : (tensor<1x8x64x4xf32>, tensor<1x8x64x4xf32>, tensor<1x8x64x4xf32>) -> (tensor<1x8x64x4xf32>, tensor<1x8x64x1xf32>, tensor<1x8x64x1xf32>)
  %s = train.slice %o starts [0, 0, 0, 0] steps [1, 1, 1, 1] : tensor<1x8x64x4xf32> -> tensor<1x8x63x4xf32>
  return %s : tensor<1x8x63x4xf32>
}
