// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(fuse-column-sums{parts=16 rows=2}))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(fuse-column-sums{parts=16 rows=2},split-reductions))" | FileCheck %s --check-prefix=PARTS
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(fuse-column-sums))" | FileCheck %s --check-prefix=APART
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(fuse-column-sums{parts=16 rows=2}))" | FileCheck %s --check-prefix=APART

// By its own model the target leaves 64 rows apart: they are too few. Workers of a processor never walk.
// APART-NOT: train.parts

module {
// One kernel has the gradient of the input and the sums for scale, shift and bias. The bias's kernel sees the gradient
// as a matrix of rows. Nothing but that sum reads the gradient in f32, so it is no longer stored.
// CHECK-LABEL: func.func @norm
// CHECK-NOT: train.fused
// CHECK: %[[ALL:.*]]:4 = train.fused(%arg0, %arg1, %arg2) {train.parts = 16 : i64}
// CHECK-SAME: -> (tensor<1x1x40xf32>, tensor<1x1x40xf32>, tensor<1x1x40xf32>, tensor<4x16x40xbf16>)
// CHECK: %[[P:.*]] = train.mul
// CHECK: train.reduce sum %[[P]] [2] : tensor<4x16x40xf32> -> tensor<4x16x1xf32>
// CHECK: %[[R:.*]] = train.sub
// CHECK: %[[S:.*]] = train.reduce sum %[[P]] [0, 1] : tensor<4x16x40xf32> -> tensor<1x1x40xf32>
// CHECK: %[[G:.*]] = train.reduce sum %{{.*}} [0, 1] : tensor<4x16x40xf32> -> tensor<1x1x40xf32>
// CHECK: %[[B:.*]] = train.reduce sum %[[R]] [0, 1] : tensor<4x16x40xf32> -> tensor<1x1x40xf32>
// CHECK: train.exp %[[B]]
// CHECK: train.reshape %[[ALL]]#2 : tensor<1x1x40xf32> -> tensor<1x40xf32>
// CHECK-NOT: train.fused

// A part has the four samples' rows of one position.
// PARTS-LABEL: func.func @norm
// PARTS: train.fused
// PARTS-SAME: -> (tensor<1x16x1x40xf32>, tensor<1x16x1x40xf32>, tensor<1x16x1x40xf32>, tensor<4x16x1x40xbf16>)
// PARTS: %[[P:.*]] = train.mul
// PARTS-DAG: train.reduce sum %[[P]] [3] : tensor<4x16x1x40xf32> -> tensor<4x16x1x1xf32>
// PARTS-DAG: train.reduce sum %[[P]] [0, 2] : tensor<4x16x1x40xf32> -> tensor<1x16x1x40xf32>
// PARTS: %[[R:.*]] = train.sub
// PARTS: train.reduce sum %[[R]] [0, 2] : tensor<4x16x1x40xf32> -> tensor<1x16x1x40xf32>
// PARTS: train.fused
// PARTS-COUNT-3: train.reduce sum %{{.*}} [1] : tensor<1x16x40xf32> -> tensor<1x1x40xf32>
// PARTS: train.exp
func.func @norm(%g: tensor<4x16x40xbf16> {train.name = "g"}, %x: tensor<4x16x40xf32> {train.name = "x"}, %s: tensor<40xf32> {train.variable = "s"})
    -> (tensor<4x16x40xbf16> {train.name = "d"}, tensor<1x1x40xf32> {train.name = "scale"}, tensor<1x1x40xf32> {train.name = "shift"}, tensor<1x40xf32> {train.name = "bias"}) attributes {train.entry = "norm"} {
  %d, %n = train.fused(%g, %x, %s) : (tensor<4x16x40xbf16>, tensor<4x16x40xf32>, tensor<40xf32>) -> (tensor<4x16x40xf32>, tensor<4x16x40xbf16>) {
  ^bb0(%p: tensor<4x16x40xbf16>, %q: tensor<4x16x40xf32>, %t: tensor<40xf32>):
    %w = train.cast %p : tensor<4x16x40xbf16> -> tensor<4x16x40xf32>
    %m = train.mul %w, %q : tensor<4x16x40xf32>
    %r = train.reduce sum %m [2] : tensor<4x16x40xf32> -> tensor<4x16x1xf32>
    %b = train.broadcast %r : tensor<4x16x1xf32> -> tensor<4x16x40xf32>
    %c = train.broadcast %t : tensor<40xf32> -> tensor<4x16x40xf32>
    %e = train.mul %b, %c : tensor<4x16x40xf32>
    %o = train.sub %w, %e : tensor<4x16x40xf32>
    %h = train.cast %o : tensor<4x16x40xf32> -> tensor<4x16x40xbf16>
    train.yield %o, %h : tensor<4x16x40xf32>, tensor<4x16x40xbf16>
  }
  %scale, %shift = train.fused(%g, %x) : (tensor<4x16x40xbf16>, tensor<4x16x40xf32>) -> (tensor<1x1x40xf32>, tensor<1x1x40xf32>) {
  ^bb0(%p: tensor<4x16x40xbf16>, %q: tensor<4x16x40xf32>):
    %w = train.cast %p : tensor<4x16x40xbf16> -> tensor<4x16x40xf32>
    %m = train.mul %w, %q : tensor<4x16x40xf32>
    %r = train.reduce sum %m [0, 1] : tensor<4x16x40xf32> -> tensor<1x1x40xf32>
    %o = train.reduce sum %w [0, 1] : tensor<4x16x40xf32> -> tensor<1x1x40xf32>
    train.yield %r, %o : tensor<1x1x40xf32>, tensor<1x1x40xf32>
  }
  %v = train.reshape %d : tensor<4x16x40xf32> -> tensor<64x40xf32>
  %bias = train.fused(%v) : (tensor<64x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<64x40xf32>):
    %r = train.reduce sum %p [0] : tensor<64x40xf32> -> tensor<1x40xf32>
    %e = train.exp %r : tensor<1x40xf32>
    train.yield %e : tensor<1x40xf32>
  }
  return %n, %scale, %shift, %bias : tensor<4x16x40xbf16>, tensor<1x1x40xf32>, tensor<1x1x40xf32>, tensor<1x40xf32>
}

// Of a kernel that sums columns of two norms, each norm takes its own. What reads a sum before the kernel of rows moves
// behind it.
// CHECK-LABEL: func.func @shared
// CHECK: %[[ONE:.*]]:2 = train.fused(%arg0, %arg2) {train.parts = 16 : i64}
// CHECK: %[[NEXT:.*]] = train.fused(%[[ONE]]#0) : (tensor<1x40xf32>) -> tensor<1x40xf32>
// CHECK: train.exp
// CHECK: %[[TWO:.*]]:2 = train.fused(%arg1, %arg2) {train.parts = 16 : i64}
// CHECK: return %[[ONE]]#1, %[[TWO]]#1, %[[NEXT]], %[[TWO]]#0
func.func @shared(%g: tensor<64x40xf32> {train.name = "g"}, %h: tensor<64x40xf32> {train.name = "h"}, %x: tensor<64x40xf32> {train.name = "x"})
    -> (tensor<64x40xf32> {train.name = "a"}, tensor<64x40xf32> {train.name = "b"}, tensor<1x40xf32> {train.name = "c"}, tensor<1x40xf32> {train.name = "d"}) attributes {train.entry = "shared"} {
  %c, %d = train.fused(%g, %h, %x) : (tensor<64x40xf32>, tensor<64x40xf32>, tensor<64x40xf32>) -> (tensor<1x40xf32>, tensor<1x40xf32>) {
  ^bb0(%p: tensor<64x40xf32>, %q: tensor<64x40xf32>, %t: tensor<64x40xf32>):
    %m = train.mul %p, %t : tensor<64x40xf32>
    %r = train.reduce sum %m [0] : tensor<64x40xf32> -> tensor<1x40xf32>
    %n = train.mul %q, %t : tensor<64x40xf32>
    %o = train.reduce sum %n [0] : tensor<64x40xf32> -> tensor<1x40xf32>
    train.yield %r, %o : tensor<1x40xf32>, tensor<1x40xf32>
  }
  %e = train.fused(%c) : (tensor<1x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<1x40xf32>):
    %r = train.exp %p : tensor<1x40xf32>
    train.yield %r : tensor<1x40xf32>
  }
  %a = train.fused(%g, %x) : (tensor<64x40xf32>, tensor<64x40xf32>) -> tensor<64x40xf32> {
  ^bb0(%p: tensor<64x40xf32>, %t: tensor<64x40xf32>):
    %m = train.mul %p, %t : tensor<64x40xf32>
    %r = train.reduce sum %m [1] : tensor<64x40xf32> -> tensor<64x1xf32>
    %b = train.broadcast %r : tensor<64x1xf32> -> tensor<64x40xf32>
    %o = train.sub %p, %b : tensor<64x40xf32>
    train.yield %o : tensor<64x40xf32>
  }
  %b = train.fused(%h, %x) : (tensor<64x40xf32>, tensor<64x40xf32>) -> tensor<64x40xf32> {
  ^bb0(%p: tensor<64x40xf32>, %t: tensor<64x40xf32>):
    %m = train.mul %p, %t : tensor<64x40xf32>
    %r = train.reduce sum %m [1] : tensor<64x40xf32> -> tensor<64x1xf32>
    %b = train.broadcast %r : tensor<64x1xf32> -> tensor<64x40xf32>
    %o = train.sub %p, %b : tensor<64x40xf32>
    train.yield %o : tensor<64x40xf32>
  }
  return %a, %b, %e, %d : tensor<64x40xf32>, tensor<64x40xf32>, tensor<1x40xf32>, tensor<1x40xf32>
}

// Neither 6 positions nor 4 samples have 8 to 12 parts; together they have 12, of two neighbouring rows each. Operands
// that vary along one of the two dimensions only are cut along it.
// CHECK-LABEL: func.func @joint
// CHECK: train.fused(%arg0, %arg1, %arg2) {train.parts = 12 : i64}
// PARTS-LABEL: func.func @joint
// PARTS-DAG: train.reshape %arg0 : tensor<4x6x40xf32> -> tensor<4x1x3x2x40xf32>
// PARTS-DAG: train.reshape %arg1 : tensor<1x6x1xf32> -> tensor<1x1x3x2x1xf32>
// PARTS-DAG: train.reshape %arg2 : tensor<4x1x40xf32> -> tensor<4x1x1x1x40xf32>
// PARTS: train.fused
// PARTS-SAME: -> (tensor<4x1x3x1x40xf32>, tensor<4x1x3x2x40xf32>)
// PARTS-DAG: train.broadcast %{{.*}} : tensor<1x1x3x2x1xf32> -> tensor<4x1x3x2x40xf32>
// PARTS-DAG: train.broadcast %{{.*}} : tensor<4x1x1x1x40xf32> -> tensor<4x1x3x2x40xf32>
// PARTS-DAG: train.reduce sum %{{.*}} [4] : tensor<4x1x3x2x40xf32> -> tensor<4x1x3x2x1xf32>
// PARTS-DAG: train.reduce sum %{{.*}} [1, 3] : tensor<4x1x3x2x40xf32> -> tensor<4x1x3x1x40xf32>
// PARTS: train.reshape %{{.*}} : tensor<4x1x3x1x40xf32> -> tensor<12x1x40xf32>
// PARTS: train.reduce sum %{{.*}} [0] : tensor<12x1x40xf32> -> tensor<1x1x40xf32>
func.func @joint(%g: tensor<4x6x40xf32> {train.name = "g"}, %p: tensor<1x6x1xf32> {train.name = "p"}, %s: tensor<4x1x40xf32> {train.name = "s"})
    -> (tensor<4x6x40xf32> {train.name = "a"}, tensor<1x1x40xf32> {train.name = "b"}) attributes {train.entry = "joint"} {
  %a = train.fused(%g, %p, %s) : (tensor<4x6x40xf32>, tensor<1x6x1xf32>, tensor<4x1x40xf32>) -> tensor<4x6x40xf32> {
  ^bb0(%x: tensor<4x6x40xf32>, %y: tensor<1x6x1xf32>, %z: tensor<4x1x40xf32>):
    %c = train.broadcast %y : tensor<1x6x1xf32> -> tensor<4x6x40xf32>
    %d = train.broadcast %z : tensor<4x1x40xf32> -> tensor<4x6x40xf32>
    %m = train.mul %x, %c : tensor<4x6x40xf32>
    %n = train.mul %m, %d : tensor<4x6x40xf32>
    %r = train.reduce sum %n [2] : tensor<4x6x40xf32> -> tensor<4x6x1xf32>
    %b = train.broadcast %r : tensor<4x6x1xf32> -> tensor<4x6x40xf32>
    %o = train.sub %n, %b : tensor<4x6x40xf32>
    train.yield %o : tensor<4x6x40xf32>
  }
  %b = train.fused(%a) : (tensor<4x6x40xf32>) -> tensor<1x1x40xf32> {
  ^bb0(%x: tensor<4x6x40xf32>):
    %r = train.reduce sum %x [0, 1] : tensor<4x6x40xf32> -> tensor<1x1x40xf32>
    train.yield %r : tensor<1x1x40xf32>
  }
  return %a, %b : tensor<4x6x40xf32>, tensor<1x1x40xf32>
}

// The rows need the sum: it comes first, in a kernel of its own.
// CHECK-LABEL: func.func @needed
// CHECK-NOT: train.parts
// CHECK: return
func.func @needed(%g: tensor<64x40xf32> {train.name = "g"}) -> (tensor<64x40xf32> {train.name = "a"}) attributes {train.entry = "needed"} {
  %c = train.fused(%g) : (tensor<64x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<64x40xf32>):
    %r = train.reduce sum %p [0] : tensor<64x40xf32> -> tensor<1x40xf32>
    train.yield %r : tensor<1x40xf32>
  }
  %a = train.fused(%g, %c) : (tensor<64x40xf32>, tensor<1x40xf32>) -> tensor<64x40xf32> {
  ^bb0(%p: tensor<64x40xf32>, %q: tensor<1x40xf32>):
    %r = train.reduce sum %p [1] : tensor<64x40xf32> -> tensor<64x1xf32>
    %b = train.broadcast %r : tensor<64x1xf32> -> tensor<64x40xf32>
    %e = train.broadcast %q : tensor<1x40xf32> -> tensor<64x40xf32>
    %m = train.mul %p, %e : tensor<64x40xf32>
    %o = train.sub %m, %b : tensor<64x40xf32>
    train.yield %o : tensor<64x40xf32>
  }
  return %a : tensor<64x40xf32>
}

// A sum that reads a tensor which the rows do not have would not save anything; 67 rows have no parts; rows of 8192
// elements leave no registers for sums.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: train.parts
// CHECK: return
func.func @apart(%g: tensor<64x40xf32> {train.name = "g"}, %h: tensor<64x40xf32> {train.name = "h"}, %i: tensor<67x40xf32> {train.name = "i"}, %j: tensor<64x8192xf32> {train.name = "j"})
    -> (tensor<64x40xf32> {train.name = "a"}, tensor<1x40xf32> {train.name = "b"}, tensor<67x1xf32> {train.name = "c"}, tensor<1x40xf32> {train.name = "d"}, tensor<64x1xf32> {train.name = "e"}, tensor<1x8192xf32> {train.name = "f"}) attributes {train.entry = "apart"} {
  %a = train.fused(%g) : (tensor<64x40xf32>) -> tensor<64x40xf32> {
  ^bb0(%p: tensor<64x40xf32>):
    %r = train.reduce sum %p [1] : tensor<64x40xf32> -> tensor<64x1xf32>
    %b = train.broadcast %r : tensor<64x1xf32> -> tensor<64x40xf32>
    %o = train.sub %p, %b : tensor<64x40xf32>
    train.yield %o : tensor<64x40xf32>
  }
  %b = train.fused(%g, %h) : (tensor<64x40xf32>, tensor<64x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<64x40xf32>, %q: tensor<64x40xf32>):
    %m = train.mul %p, %q : tensor<64x40xf32>
    %r = train.reduce sum %m [0] : tensor<64x40xf32> -> tensor<1x40xf32>
    train.yield %r : tensor<1x40xf32>
  }
  %c = train.fused(%i) : (tensor<67x40xf32>) -> tensor<67x1xf32> {
  ^bb0(%p: tensor<67x40xf32>):
    %r = train.reduce sum %p [1] : tensor<67x40xf32> -> tensor<67x1xf32>
    train.yield %r : tensor<67x1xf32>
  }
  %d = train.fused(%i) : (tensor<67x40xf32>) -> tensor<1x40xf32> {
  ^bb0(%p: tensor<67x40xf32>):
    %r = train.reduce sum %p [0] : tensor<67x40xf32> -> tensor<1x40xf32>
    train.yield %r : tensor<1x40xf32>
  }
  %e = train.fused(%j) : (tensor<64x8192xf32>) -> tensor<64x1xf32> {
  ^bb0(%p: tensor<64x8192xf32>):
    %r = train.reduce sum %p [1] : tensor<64x8192xf32> -> tensor<64x1xf32>
    train.yield %r : tensor<64x1xf32>
  }
  %f = train.fused(%j) : (tensor<64x8192xf32>) -> tensor<1x8192xf32> {
  ^bb0(%p: tensor<64x8192xf32>):
    %r = train.reduce sum %p [0] : tensor<64x8192xf32> -> tensor<1x8192xf32>
    train.yield %r : tensor<1x8192xf32>
  }
  return %a, %b, %c, %d, %e, %f : tensor<64x40xf32>, tensor<1x40xf32>, tensor<67x1xf32>, tensor<1x40xf32>, tensor<64x1xf32>, tensor<1x8192xf32>
}
}
