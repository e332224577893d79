// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(plan-memory))" | FileCheck %s

// Sizes in bytes: x, a, b, y 128 (32 × 4); g 256; scalars 16, rounded up to 64; scratch 2 workers × 640 = 1280, above all
// that lives with it; partial sums 512. State lies in the resident arena: −1. Over time ('=': b takes over a's place), in the placement that is found:
//
//   instruction          0      1      2         3         4
//    576 + 512 = 1088    .      .      scratch   partial   .
//    320 + 256 =  576    .      .      scratch   g ──────── g
//    192 + 128 =  320    x      .      y ─────────────────────
//     64 + 128 =  192    a ──── a=b ── b ─────── b         .
//      0 +  64 =   64    scalars ─────────────────────────────
//
// Scratch of 1280 bytes begins at 320, where y ends, and ends at 1600. With more workers it would end later, and nothing
// else would move.
//
// The most is live at instruction 2: 1280 (scratch) + 128 (b) + 128 (y) + 64 (scalars) = 1600.

module attributes {train.slots = 2 : i64} {
// Where memory is planned already, a result stays over the operand over which it was planned, even if the first one dies
// there as well, as may happen once the order has changed.
// CHECK-LABEL: func.func @planned
func.func @planned(%x: tensor<32xf32> {train.name = "x", train.sample_axis = 0 : i64, train.offset = 0 : i64})
    -> (tensor<32xf32> {train.name = "y"}) attributes {train.entry = "planned"} {
  // CHECK: %[[A:.*]] = train.fused(%{{.*}}) {train.offsets = array<i64: [[AT:.*]]>}
  %a = train.fused(%x) {train.offsets = array<i64: 128>} : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  // CHECK: train.fused(%{{.*}}, %[[A]]) {train.offsets = array<i64: [[AT]]>}
  %y = train.fused(%x, %a) {train.offsets = array<i64: 128>} : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>, %q: tensor<32xf32>):
    %r = train.sub %p, %q : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  return %y : tensor<32xf32>
}

// CHECK-LABEL: func.func @step
// CHECK-SAME: train.name = "x", train.offset = 192 : i64
// CHECK-SAME: train.variable = "w"}
// CHECK-SAME: train.offset = 0 : i64, train.scalars
// CHECK-SAME: train.lower_bound_bytes = 1600 : i64, train.transient_bytes = 1600 : i64
func.func @step(%x: tensor<32xf32> {train.name = "x", train.sample_axis = 0 : i64}, %w: tensor<1x8x8xf32> {train.variable = "w"}, %s: tensor<4xf32> {train.scalars})
    -> (tensor<1x4x8xf32> {train.name = "y"}, tensor<1x8x8xf32> {train.variable = "w"}) attributes {train.entry = "step"} {
  // CHECK: train.fused(%{{.*}}) {train.offsets = array<i64: 64>}
  %a = train.fused(%x) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  // CHECK: train.fused(%{{.*}}) {train.offsets = array<i64: 64>}
  %b = train.fused(%a) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  // A view has no place of its own. Results come first, then partial sums.
  // CHECK: train.reshape %{{[^ ]*}} : tensor<32xf32>
  %v = train.reshape %b : tensor<32xf32> -> tensor<1x4x8xf32>
  // CHECK: train.matmul {{.*}}train.offsets = array<i64: 192>{{.*}}train.scratch_offset = 320 : i64
  %y = train.matmul %v, %w {train.call = #train.call<"">, train.scratch = #train.scratch<slot = 640, shared = 0, tiles = 2, partial = 0>} : (tensor<1x4x8xf32>, tensor<1x8x8xf32>) -> tensor<1x4x8xf32>
  // CHECK: train.matmul {{.*}}train.offsets = array<i64: 320, 576>
  // CHECK-NOT: train.scratch_offset
  %g = train.matmul %v, %y {transA = true, train.call = #train.call<"">, train.scratch = #train.scratch<slot = 0, shared = 0, tiles = 2, partial = 512>} : (tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> tensor<1x8x8xf32>
  // CHECK: train.fused({{.*}}) {train.offsets = array<i64: -1>}
  %n = train.fused(%w, %g, %s) : (tensor<1x8x8xf32>, tensor<1x8x8xf32>, tensor<4xf32>) -> tensor<1x8x8xf32> {
  ^bb0(%p: tensor<1x8x8xf32>, %q: tensor<1x8x8xf32>, %t: tensor<4xf32>):
    %r = train.sub %p, %q : tensor<1x8x8xf32>
    train.yield %r : tensor<1x8x8xf32>
  }
  return %y, %n : tensor<1x4x8xf32>, tensor<1x8x8xf32>
}

// a and its exponential b live together, since the sum reads both; b may take the place of x, which is dead by then; the sum
// takes the place of a, which dies in it:
//
//   128 + 128 = 256    a ── a ── a=c
//     0 + 128 = 128    x    b ── b
//
// CHECK-LABEL: func.func @predict
// CHECK-SAME: train.offset = 0 : i64
// CHECK-SAME: train.lower_bound_bytes = 256 : i64, train.transient_bytes = 256 : i64
func.func @predict(%x: tensor<32xf32> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<32xf32> {train.name = "y"}) attributes {train.entry = "predict"} {
  // CHECK: train.fused({{.*}}) {train.offsets = array<i64: 128>}
  %a = train.fused(%x) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  // CHECK: train.fused({{.*}}) {train.offsets = array<i64: 0>}
  %b = train.fused(%a) : (tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>):
    %r = train.exp %p : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  // CHECK: train.fused({{.*}}) {train.offsets = array<i64: 128>}
  %c = train.fused(%a, %b) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32> {
  ^bb0(%p: tensor<32xf32>, %q: tensor<32xf32>):
    %r = train.add %p, %q : tensor<32xf32>
    train.yield %r : tensor<32xf32>
  }
  return %c : tensor<32xf32>
}

// A view reads the same memory at another element: the sum may not overwrite its operand.
// CHECK-LABEL: func.func @read_through_a_view
// CHECK: train.fused(%{{.*}}) {train.offsets = array<i64: [[OPERAND:[0-9]+]]>}
// CHECK-NOT: train.fused(%{{.*}}, %{{.*}}) {train.offsets = array<i64: [[OPERAND]]>}
// CHECK: return
func.func @read_through_a_view(%x: tensor<4x4xf32> {train.name = "x"}) -> (tensor<4x4xf32> {train.name = "y"})
    attributes {train.entry = "predict"} {
  %a = train.fused(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%p: tensor<4x4xf32>):
    %0 = train.exp %p : tensor<4x4xf32>
    train.yield %0 : tensor<4x4xf32>
  }
  %view = train.reshape %a : tensor<4x4xf32> -> tensor<16xf32>
  %b = train.fused(%a, %view) : (tensor<4x4xf32>, tensor<16xf32>) -> tensor<4x4xf32> {
  ^bb0(%p: tensor<4x4xf32>, %q: tensor<16xf32>):
    %last = train.slice %q starts [12] steps [1] : tensor<16xf32> -> tensor<4xf32>
    %rows = train.broadcast %last : tensor<4xf32> -> tensor<4x4xf32>
    %0 = train.add %p, %rows : tensor<4x4xf32>
    train.yield %0 : tensor<4x4xf32>
  }
  return %b : tensor<4x4xf32>
}

// A rung of the ladder brings its own packing, which is kept: 64 unused bytes below the input, the result above both.
// CHECK-LABEL: func.func @rung
// CHECK-SAME: train.offset = 64 : i64
// CHECK-SAME: train.lower_bound_bytes = 192 : i64
// CHECK-SAME: train.transient_bytes = 320 : i64
// CHECK: train.fused({{.*}}) {train.offsets = array<i64: 256>}
func.func @rung(%x: tensor<32xf32> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<16xf32> {train.name = "y"})
    attributes {train.entry = "predict", train.lower_bound_bytes = 192 : i64, train.packed_offsets = array<i64: 64, 256>, train.transient_bytes = 320 : i64} {
  %a = train.fused(%x) : (tensor<32xf32>) -> tensor<16xf32> {
  ^bb0(%p: tensor<32xf32>):
    %q = train.slice %p starts [0] steps [1] : tensor<32xf32> -> tensor<16xf32>
    %r = train.exp %q : tensor<16xf32>
    train.yield %r : tensor<16xf32>
  }
  return %a : tensor<16xf32>
}
}
