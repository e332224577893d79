// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-updates))" | FileCheck %s
// RUN: sed -e "s/slice_bytes = 65536/slice_bytes = 0/" %s | tcc-opt --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-updates))" | FileCheck %s --check-prefix=WHOLE
// RUN: sed -e "s/train.slice_bytes = 65536 : i64, //" %s | tcc-opt --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-updates))" | FileCheck %s --check-prefix=WHOLE

// On a card, 64 KiB hold 64 rows of 256 f32: the gradient's 120 rows become slices of 64 and 56. The target's own
// slices would be larger than these gradients.
// WHOLE-NOT: train.rowwise

module attributes {train.slice_bytes = 65536 : i64, train.slots = 1024 : i64} {

// CHECK-LABEL: func.func @step
// CHECK: train.rowwise(%arg0, %arg1, %arg2) {train.call = #train.call<"{{.*}} tile_m: 64 {{.*}} implementation: BLAS {{.*}}">
// CHECK-SAME: slot = 65792
// CHECK: train.fused({{.*}}) {train.tile_elements = 16384 : i64}
// CHECK: return
func.func @step(%x: tensor<1x64x120xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<120x256xf32> {train.variable = "w"})
    -> (tensor<120x256xf32> {train.variable = "w"}, tensor<120x1xf32> {train.name = "squares"}) attributes {train.entry = "step"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x120xf32>, tensor<1x64x256xf32>) -> tensor<1x120x256xf32>
  %r = train.reshape %g : tensor<1x120x256xf32> -> tensor<120x256xf32>
  %n = train.sub %w, %r : tensor<120x256xf32>
  %q = train.mul %r, %r : tensor<120x256xf32>
  %s = train.reduce sum %q [1] : tensor<120x256xf32> -> tensor<120x1xf32>
  return %n, %s : tensor<120x256xf32>, tensor<120x1xf32>
}

// One slice would hold the whole gradient.
// CHECK-LABEL: func.func @small
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @small(%x: tensor<1x64x64xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<64x256xf32> {train.variable = "w"})
    -> (tensor<64x256xf32> {train.variable = "w"}) attributes {train.entry = "small"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x64xf32>, tensor<1x64x256xf32>) -> tensor<1x64x256xf32>
  %r = train.reshape %g : tensor<1x64x256xf32> -> tensor<64x256xf32>
  %n = train.sub %w, %r : tensor<64x256xf32>
  return %n : tensor<64x256xf32>
}

// The update waits for another gradient. The operands, 30 and 64 KiB, are smaller than this gradient, but not together
// with a slice.
// CHECK-LABEL: func.func @waits
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @waits(%x: tensor<1x64x120xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<120x256xf32> {train.variable = "w"})
    -> (tensor<120x256xf32> {train.variable = "w"}, tensor<1x120x256xf32> {train.name = "other"}) attributes {train.entry = "waits"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x120xf32>, tensor<1x64x256xf32>) -> tensor<1x120x256xf32>
  %r = train.reshape %g : tensor<1x120x256xf32> -> tensor<120x256xf32>
  %c = train.mul %dy, %dy : tensor<1x64x256xf32>
  %h = train.matmul %x, %c {transA = true} : (tensor<1x64x120xf32>, tensor<1x64x256xf32>) -> tensor<1x120x256xf32>
  %o = train.reshape %h : tensor<1x120x256xf32> -> tensor<120x256xf32>
  %n = train.sub %w, %r : tensor<120x256xf32>
  %m = train.sub %n, %o : tensor<120x256xf32>
  return %m, %h : tensor<120x256xf32>, tensor<1x120x256xf32>
}
}
