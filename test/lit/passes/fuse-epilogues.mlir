// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues)" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,split-reductions),fuse-epilogues)" | FileCheck %s --check-prefix=CUT
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels),fuse-epilogues)" | FileCheck %s --check-prefix=CPU

// A CPU's call has no epilogue.
// CPU-NOT: matmul_epilogue

module attributes {train.slots = 2 : i64} {

// Forward, the input of gelu is kept in place of the product; backward, one call gives both gradients. No kernel remains.
// For libraries without these calls they name the bias, and the parts in which kernels sum.
// CHECK-LABEL: func.func @layer
// CHECK-NOT: train.fused
// CHECK: %[[H:.*]]:2 = train.matmul_epilogue "gelu"(%arg0, %arg1, %arg2) {keeps, {{.*}}epilogue { kind: GELU keeps_input: true }{{.*}}} : (tensor<1x64x32xf32>, tensor<1x32x128xf32>, tensor<128xf32>) -> (tensor<1x64x128xf32>, tensor<1x64x128xf32>)
// CHECK: train.matmul %{{.*}}, %arg3
// CHECK: %[[D:.*]]:2 = train.matmul_epilogue "gelu_gradient"(%arg4, %arg3, %[[H]]#1, %arg2) {partsDim = 0 : i64, sumShape = array<i64: 2, 2, 16, 128>, sums = "result", {{.*}}epilogue { kind: GELU_GRADIENT sums: OF_RESULT exact_bias: true sum_parts: 2 }{{.*}}transB = true} : (tensor<1x64x16xf32>, tensor<1x128x16xf32>, tensor<1x64x128xf32>, tensor<128xf32>) -> (tensor<1x64x128xf32>, tensor<128xf32>)
// CHECK: %[[S:.*]] = train.reshape %[[D]]#1
// CHECK-NOT: train.fused
// CHECK: return
func.func @layer(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x128xf32> {train.variable = "w"}, %b: tensor<128xf32> {train.variable = "b"}, %v: tensor<1x128x16xf32> {train.variable = "v"}, %g: tensor<1x64x16xf32> {train.name = "g"})
    -> (tensor<1x64x16xf32> {train.name = "y"}, tensor<4x16x128xf32> {train.name = "d"}, tensor<1x1x128xf32> {train.name = "db"}) attributes {train.entry = "layer"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x128xf32>) -> tensor<1x64x128xf32>
  %q = train.reshape %p : tensor<1x64x128xf32> -> tensor<4x16x128xf32>
  %bb = train.broadcast %b : tensor<128xf32> -> tensor<4x16x128xf32>
  %s = train.add %q, %bb : tensor<4x16x128xf32>
  %h = train.gelu %s {tanh = true} : tensor<4x16x128xf32>
  %hh = train.reshape %h : tensor<4x16x128xf32> -> tensor<1x64x128xf32>
  %y = train.matmul %hh, %v : (tensor<1x64x128xf32>, tensor<1x128x16xf32>) -> tensor<1x64x16xf32>
  %e = train.matmul %g, %v {transB = true} : (tensor<1x64x16xf32>, tensor<1x128x16xf32>) -> tensor<1x64x128xf32>
  %f = train.reshape %e : tensor<1x64x128xf32> -> tensor<4x16x128xf32>
  %bb2 = train.broadcast %b : tensor<128xf32> -> tensor<4x16x128xf32>
  %s2 = train.add %q, %bb2 {train.repeated} : tensor<4x16x128xf32>
  %t = train.gelu_derivative %s2 {tanh = true} : tensor<4x16x128xf32>
  %d = train.mul %f, %t : tensor<4x16x128xf32>
  %db = train.reduce sum %d [0, 1] : tensor<4x16x128xf32> -> tensor<1x1x128xf32>
  return %y, %d, %db : tensor<1x64x16xf32>, tensor<4x16x128xf32>, tensor<1x1x128xf32>
}

// Without a gradient nothing is kept, and rows may have any length.
// CHECK-LABEL: func.func @inference
// CHECK: train.matmul_epilogue "gelu"(%arg0, %arg1, %arg2) {train.call
// CHECK-SAME: -> tensor<1x64x10xf32>
// CHECK-NOT: train.fused
// CHECK: return
func.func @inference(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x10xf32> {train.variable = "w"}, %b: tensor<10xf32> {train.variable = "b"})
    -> (tensor<1x64x10xf32> {train.name = "h"}) attributes {train.entry = "inference"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x10xf32>) -> tensor<1x64x10xf32>
  %bb = train.broadcast %b : tensor<10xf32> -> tensor<1x64x10xf32>
  %s = train.add %p, %bb : tensor<1x64x10xf32>
  %h = train.gelu %s {tanh = true} : tensor<1x64x10xf32>
  return %h : tensor<1x64x10xf32>
}

// The library's gelu is the one by tanh: one by erf stays a kernel.
// CHECK-LABEL: func.func @erf
// CHECK: train.matmul %
// CHECK: train.gelu
// CHECK: return
func.func @erf(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x128xf32> {train.variable = "w"}, %b: tensor<128xf32> {train.variable = "b"})
    -> (tensor<1x64x128xf32> {train.name = "h"}) attributes {train.entry = "erf"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x128xf32>) -> tensor<1x64x128xf32>
  %bb = train.broadcast %b : tensor<128xf32> -> tensor<1x64x128xf32>
  %s = train.add %p, %bb : tensor<1x64x128xf32>
  %h = train.gelu %s : tensor<1x64x128xf32>
  return %h : tensor<1x64x128xf32>
}

// Another reader needs the product without the bias, too: with an epilogue, one more value would be kept.
// CHECK-LABEL: func.func @kept
// CHECK: train.matmul %
// CHECK: train.fused
// CHECK: return
func.func @kept(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x128xf32> {train.variable = "w"}, %b: tensor<128xf32> {train.variable = "b"})
    -> (tensor<1x64x128xf32> {train.name = "h"}, tensor<1x64x128xf32> {train.name = "p"}) attributes {train.entry = "kept"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x128xf32>) -> tensor<1x64x128xf32>
  %bb = train.broadcast %b : tensor<128xf32> -> tensor<1x64x128xf32>
  %s = train.add %p, %bb : tensor<1x64x128xf32>
  %h = train.gelu %s {tanh = true} : tensor<1x64x128xf32>
  return %h, %p : tensor<1x64x128xf32>, tensor<1x64x128xf32>
}

// A kernel that does more than add the bias stays, since an epilogue would save no launch.
// CHECK-LABEL: func.func @residual
// CHECK: train.matmul %
// CHECK: train.fused
// CHECK: return
func.func @residual(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x32xf32> {train.variable = "w"}, %b: tensor<32xf32> {train.variable = "b"})
    -> (tensor<1x64x32xf32> {train.name = "y"}) attributes {train.entry = "residual"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x32xf32>) -> tensor<1x64x32xf32>
  %bb = train.broadcast %b : tensor<32xf32> -> tensor<1x64x32xf32>
  %s = train.add %p, %bb : tensor<1x64x32xf32>
  %y = train.add %s, %x : tensor<1x64x32xf32>
  return %y : tensor<1x64x32xf32>
}

// A bias. The sums of the first factor that a weight's gradient contracts stay a kernel, since cuBLASLt has no algorithm
// for them in f32; the call gives those of the second factor.
// CHECK-LABEL: func.func @linear
// CHECK-DAG: train.matmul_epilogue "bias"(%arg0, %arg1, %arg2)
// CHECK-DAG: train.fused(%arg3) : (tensor<64x24xf32>) -> tensor<1x24xf32>
// CHECK-NOT: sums =
// CHECK: return
func.func @linear(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x24xf32> {train.variable = "w"}, %b: tensor<24xf32> {train.variable = "b"}, %g: tensor<64x24xf32> {train.name = "g"})
    -> (tensor<1x64x24xf32> {train.name = "y"}, tensor<1x24x32xf32> {train.name = "dw"}, tensor<1x24xf32> {train.name = "db"}) attributes {train.entry = "linear"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x24xf32>) -> tensor<1x64x24xf32>
  %bb = train.broadcast %b : tensor<24xf32> -> tensor<1x64x24xf32>
  %y = train.add %p, %bb : tensor<1x64x24xf32>
  %db = train.reduce sum %g [0] : tensor<64x24xf32> -> tensor<1x24xf32>
  %gg = train.reshape %g : tensor<64x24xf32> -> tensor<1x64x24xf32>
  %dw = train.matmul %gg, %x {transA = true} : (tensor<1x64x24xf32>, tensor<1x64x32xf32>) -> tensor<1x24x32xf32>
  return %y, %dw, %db : tensor<1x64x24xf32>, tensor<1x24x32xf32>, tensor<1x24xf32>
}

// CHECK-LABEL: func.func @transposed
// CHECK: train.matmul_epilogue "none"(%arg0, %{{.*}}) {{{.*}}sums = "rhs", {{.*}}transA = true} : (tensor<1x64x32xf32>, tensor<1x64x24xf32>) -> (tensor<1x32x24xf32>, tensor<24xf32>)
// CHECK-NOT: train.fused
// CHECK: return
func.func @transposed(%x: tensor<1x64x32xf32> {train.name = "x"}, %g: tensor<64x24xf32> {train.name = "g"})
    -> (tensor<1x32x24xf32> {train.name = "dw"}, tensor<1x24xf32> {train.name = "db"}) attributes {train.entry = "transposed"} {
  %db = train.reduce sum %g [0] : tensor<64x24xf32> -> tensor<1x24xf32>
  %gg = train.reshape %g : tensor<64x24xf32> -> tensor<1x64x24xf32>
  %dw = train.matmul %x, %gg {transA = true} : (tensor<1x64x32xf32>, tensor<1x64x24xf32>) -> tensor<1x32x24xf32>
  return %dw, %db : tensor<1x32x24xf32>, tensor<1x24xf32>
}

// Sums over the contracted factor's columns are another vector: a kernel adds them.
// CHECK-LABEL: func.func @other
// CHECK: train.fused
// CHECK: return
func.func @other(%x: tensor<1x64x32xf32> {train.name = "x"}, %g: tensor<64x24xf32> {train.name = "g"})
    -> (tensor<1x32x24xf32> {train.name = "dw"}, tensor<64x1xf32> {train.name = "s"}) attributes {train.entry = "other"} {
  %s = train.reduce sum %g [1] : tensor<64x24xf32> -> tensor<64x1xf32>
  %gg = train.reshape %g : tensor<64x24xf32> -> tensor<1x64x24xf32>
  %dw = train.matmul %x, %gg {transA = true} : (tensor<1x64x32xf32>, tensor<1x64x24xf32>) -> tensor<1x32x24xf32>
  return %dw, %s : tensor<1x32x24xf32>, tensor<64x1xf32>
}

// The gradient of relu and the sum of its rows are one kernel, which stays: an epilogue gains nothing before the sum is cut.
// Where it is cut, the epilogue replaces the kernel that adds the parts, and the parts' results.
// CHECK-LABEL: func.func @relu
// CHECK: train.fused
// CHECK: train.reduce sum
// CHECK: train.matmul %
// CHECK: return
// CUT-LABEL: func.func @relu
// CUT: train.fused(%{{.*}}, %{{.*}}) : (tensor<16x32x24xi1>, tensor<16x32x24xf32>) -> tensor<16x32x24xf32>
// CUT-NOT: train.reduce
// CUT: train.matmul_epilogue "none"(%arg0, %{{.*}}) {partsDim = 0 : i64, sumShape = array<i64: 16, 1, 32, 24>, sums = "rhs"
// CUT-NOT: train.fused
// CUT: return
func.func @relu(%x: tensor<1x512x32xf32> {train.name = "x"}, %g: tensor<512x24xf32> {train.name = "g"}, %m: tensor<512x24xi1> {train.name = "m"})
    -> (tensor<1x32x24xf32> {train.name = "dw"}, tensor<1x24xf32> {train.name = "db"}) attributes {train.entry = "relu"} {
  %zero = train.constant dense<0.0> : tensor<512x24xf32>
  %d = train.select %m, %g, %zero : tensor<512x24xi1>, tensor<512x24xf32>
  %db = train.reduce sum %d [0] : tensor<512x24xf32> -> tensor<1x24xf32>
  %dd = train.reshape %d : tensor<512x24xf32> -> tensor<1x512x24xf32>
  %dw = train.matmul %x, %dd {transA = true} : (tensor<1x512x32xf32>, tensor<1x512x24xf32>) -> tensor<1x32x24xf32>
  return %dw, %db : tensor<1x32x24xf32>, tensor<1x24xf32>
}

// Gelu's gradient without sums has no algorithm in f32, either: both directions stay kernels.
// CHECK-LABEL: func.func @alone
// CHECK: train.matmul %
// CHECK: train.gelu %
// CHECK: train.gelu_derivative
// CHECK-NOT: matmul_epilogue
// CHECK: return
func.func @alone(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x16xf32> {train.variable = "w"}, %b: tensor<16xf32> {train.variable = "b"}, %v: tensor<1x16x16xf32> {train.variable = "v"}, %g: tensor<1x64x16xf32> {train.name = "g"})
    -> (tensor<1x64x16xf32> {train.name = "y"}, tensor<1x64x16xf32> {train.name = "d"}) attributes {train.entry = "alone"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x16xf32>) -> tensor<1x64x16xf32>
  %bb = train.broadcast %b : tensor<16xf32> -> tensor<1x64x16xf32>
  %s = train.add %p, %bb : tensor<1x64x16xf32>
  %h = train.gelu %s {tanh = true} : tensor<1x64x16xf32>
  %y = train.matmul %h, %v : (tensor<1x64x16xf32>, tensor<1x16x16xf32>) -> tensor<1x64x16xf32>
  %e = train.matmul %g, %v {transB = true} : (tensor<1x64x16xf32>, tensor<1x16x16xf32>) -> tensor<1x64x16xf32>
  %bb2 = train.broadcast %b : tensor<16xf32> -> tensor<1x64x16xf32>
  %s2 = train.add %p, %bb2 {train.repeated} : tensor<1x64x16xf32>
  %t = train.gelu_derivative %s2 {tanh = true} : tensor<1x64x16xf32>
  %d = train.mul %e, %t : tensor<1x64x16xf32>
  return %y, %d : tensor<1x64x16xf32>, tensor<1x64x16xf32>
}

// As @layer, but a row has 12 elements, which is no multiple of 8: the library does not accept gelu's input then.
// CHECK-LABEL: func.func @twelve
// CHECK: train.matmul %
// CHECK: train.gelu %
// CHECK: train.gelu_derivative
// CHECK: return
func.func @twelve(%x: tensor<1x64x32xf32> {train.name = "x"}, %w: tensor<1x32x12xf32> {train.variable = "w"}, %b: tensor<12xf32> {train.variable = "b"}, %v: tensor<1x12x16xf32> {train.variable = "v"}, %g: tensor<1x64x16xf32> {train.name = "g"})
    -> (tensor<1x64x16xf32> {train.name = "y"}, tensor<1x64x12xf32> {train.name = "d"}) attributes {train.entry = "twelve"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xf32>, tensor<1x32x12xf32>) -> tensor<1x64x12xf32>
  %bb = train.broadcast %b : tensor<12xf32> -> tensor<1x64x12xf32>
  %s = train.add %p, %bb : tensor<1x64x12xf32>
  %h = train.gelu %s {tanh = true} : tensor<1x64x12xf32>
  %y = train.matmul %h, %v : (tensor<1x64x12xf32>, tensor<1x12x16xf32>) -> tensor<1x64x16xf32>
  %e = train.matmul %g, %v {transB = true} : (tensor<1x64x16xf32>, tensor<1x12x16xf32>) -> tensor<1x64x12xf32>
  %bb2 = train.broadcast %b : tensor<12xf32> -> tensor<1x64x12xf32>
  %s2 = train.add %p, %bb2 {train.repeated} : tensor<1x64x12xf32>
  %t = train.gelu_derivative %s2 {tanh = true} : tensor<1x64x12xf32>
  %d = train.mul %e, %t : tensor<1x64x12xf32>
  return %y, %d : tensor<1x64x16xf32>, tensor<1x64x12xf32>
}
}
