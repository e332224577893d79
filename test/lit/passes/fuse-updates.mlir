// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels,fuse-updates))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels,fuse-updates),materialize-buffers,func.func(schedule,plan-memory))" | FileCheck %s --check-prefix=PLAN

module attributes {train.slots = 2 : i64} {

// The gradient goes row by row to the kernel that subtracts it and sums its squares, and has no place in the arena, which
// has only the panels that both workers share, two slots, and the sums.
// CHECK-LABEL: func.func @step
// CHECK: %[[U:.*]]:2 = train.rowwise(%arg0, %arg1, %arg2) {train.call = #train.call<{{.*}}>, train.scratch = #train.scratch<slot = {{[0-9]+}}, shared = {{[0-9]+}}, tiles = {{[0-9]+}}, partial = 0>}
// CHECK: ^bb0(%[[X:.*]]: tensor<1x64x512xf32>, %[[DY:.*]]: tensor<1x64x256xf32>, %[[W:.*]]: tensor<512x256xf32>):
// CHECK: %[[P:.*]] = train.matmul %[[X]], %[[DY]] {transA = true}
// CHECK: %[[G:.*]] = train.reshape %[[P]]
// CHECK: train.fused(%[[G]], %[[W]]) {train.tile_elements = {{[0-9]+}} : i64}
// CHECK-NOT: train.matmul
// CHECK: return
// PLAN-LABEL: func.func @step
// PLAN: train.rowwise({{.*}}) {train.call = #train.call<{{.*}}>, train.offsets = array<i64: {{[0-9]+}}, -1>, train.scratch = #train.scratch<{{.*}}>, train.scratch_offset
func.func @step(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<512x256xf32> {train.variable = "w"})
    -> (tensor<512x256xf32> {train.variable = "w"}, tensor<512x1xf32> {train.name = "squares"}) attributes {train.entry = "step"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.reshape %g : tensor<1x512x256xf32> -> tensor<512x256xf32>
  %n = train.sub %w, %r : tensor<512x256xf32>
  %q = train.mul %r, %r : tensor<512x256xf32>
  %s = train.reduce sum %q [1] : tensor<512x256xf32> -> tensor<512x1xf32>
  return %n, %s : tensor<512x256xf32>, tensor<512x1xf32>
}

// Weights of a 1x1 convolution: extents of 1 after its rows make no difference.
// CHECK-LABEL: func.func @pointwise
// CHECK: train.rowwise
// CHECK: train.fused({{.*}}) {train.tile_elements = {{[0-9]+}} : i64}
// CHECK-NOT: train.fused
// CHECK: return
func.func @pointwise(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<512x256x1x1xf32> {train.variable = "w"})
    -> (tensor<512x256x1x1xf32> {train.variable = "w"}, tensor<512x1x1x1xf32> {train.name = "squares"}) attributes {train.entry = "pointwise"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.reshape %g : tensor<1x512x256xf32> -> tensor<512x256x1x1xf32>
  %n = train.sub %w, %r : tensor<512x256x1x1xf32>
  %q = train.mul %r, %r : tensor<512x256x1x1xf32>
  %s = train.reduce sum %q [1] : tensor<512x256x1x1xf32> -> tensor<512x1x1x1xf32>
  return %n, %s : tensor<512x256x1x1xf32>, tensor<512x1x1x1xf32>
}

// Another op reads the gradient, so that it is stored.
// CHECK-LABEL: func.func @read_twice
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @read_twice(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<512x256xf32> {train.variable = "w"})
    -> (tensor<512x256xf32> {train.variable = "w"}, tensor<1x512x256xf32> {train.name = "gradient"}) attributes {train.entry = "read_twice"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.reshape %g : tensor<1x512x256xf32> -> tensor<512x256xf32>
  %n = train.sub %w, %r : tensor<512x256xf32>
  return %n, %g : tensor<512x256xf32>, tensor<1x512x256xf32>
}

// An element of the update needs an element of another row of the gradient: all of the gradient has to be in memory.
// CHECK-LABEL: func.func @transposed
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @transposed(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<256x512xf32> {train.variable = "w"})
    -> (tensor<256x512xf32> {train.variable = "w"}) attributes {train.entry = "transposed"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.reshape %g : tensor<1x512x256xf32> -> tensor<512x256xf32>
  %t = train.transpose %r [1, 0] : tensor<512x256xf32> -> tensor<256x512xf32>
  %n = train.sub %w, %t : tensor<256x512xf32>
  return %n : tensor<256x512xf32>
}

// Sums of columns need all rows.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @columns(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64}, %w: tensor<1x256xf32> {train.variable = "w"})
    -> (tensor<1x256xf32> {train.variable = "w"}) attributes {train.entry = "columns"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.reshape %g : tensor<1x512x256xf32> -> tensor<512x256xf32>
  %s = train.reduce sum %r [0] : tensor<512x256xf32> -> tensor<1x256xf32>
  %n = train.sub %w, %s : tensor<1x256xf32>
  return %n : tensor<1x256xf32>
}

// The kernel writes no state: whether it runs again is decided elsewhere.
// CHECK-LABEL: func.func @no_update
// CHECK-NOT: train.rowwise
// CHECK: return
func.func @no_update(%x: tensor<1x64x512xf32> {train.name = "x", train.sample_axis = 1 : i64}, %dy: tensor<1x64x256xf32> {train.name = "dy", train.sample_axis = 1 : i64})
    -> (tensor<1x512x256xf32> {train.name = "y"}) attributes {train.entry = "no_update"} {
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x64x512xf32>, tensor<1x64x256xf32>) -> tensor<1x512x256xf32>
  %r = train.exp %g : tensor<1x512x256xf32>
  return %r : tensor<1x512x256xf32>
}
}
