// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=all})" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=gelu})" | FileCheck %s --check-prefix=GELU
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=bias})" | FileCheck %s --check-prefix=BIAS
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=exact})" | FileCheck %s --check-prefix=EXACT
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=auto narrow=bias narrow-why=measured})" | FileCheck %s --check-prefix=AUTO
// RUN: not tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=some})" 2>&1 | FileCheck %s --check-prefix=WRONG

// WRONG: fuse-epilogues has no level 'some'

// By default 16-bit products become what the target says, others stay exact; the report names the reason.
// AUTO: module attributes {{{.*}}kind = "epilogue", subject = "products", text = "the default for cuda:sm_90: measured"
// AUTO: kind = "epilogue", subject = "products", text = "the default: biases keep their bits"
// AUTO-LABEL: func.func @layer
// AUTO-NOT: matmul_epilogue
// AUTO: func.func @linear
// AUTO: train.matmul_epilogue "bias"({{.*}}) {{.*}} -> tensor<1x64x24xbf16>
// AUTO: train.matmul_epilogue "bias"({{.*}}) {{.*}} -> tensor<1x64x24xf32>
// AUTO: func.func @batches
// AUTO: train.matmul_epilogue "bias"({{.*}}) {{.*}} -> tensor<3x8x24xf32>

module attributes {train.slots = 2 : i64} {

// As autocast writes it: kernels widen the product, compute in f32, and narrow. A small kernel narrows the bias for the
// call; the gradient's sums come in 16 bits and are widened. Below `gelu`, kernels do both.
// CHECK-LABEL: func.func @layer
// CHECK: %[[B:.*]] = train.fused(%arg2) : (tensor<128xf32>) -> tensor<128xbf16>
// CHECK: %[[H:.*]]:2 = train.matmul_epilogue "gelu"(%arg0, %arg1, %[[B]], %arg2) {keeps, {{.*}}epilogue { kind: GELU keeps_input: true exact_bias: true }{{.*}}} : (tensor<1x64x32xbf16>, tensor<1x32x128xbf16>, tensor<128xbf16>, tensor<128xf32>) -> (tensor<1x64x128xbf16>, tensor<1x64x128xbf16>)
// CHECK: %[[D:.*]]:2 = train.matmul_epilogue "gelu_gradient"(%arg4, %arg3, %[[H]]#1, %arg2) {{{.*}}sums = "result"
// CHECK: train.fused(%[[D]]#1) : (tensor<128xbf16>) -> tensor<128xf32>
// CHECK-NOT: train.gelu
// CHECK: return
// BIAS-LABEL: func.func @layer
// BIAS-NOT: matmul_epilogue
// BIAS: return
func.func @layer(%x: tensor<1x64x32xbf16> {train.name = "x"}, %w: tensor<1x32x128xbf16> {train.name = "w"}, %b: tensor<128xf32> {train.variable = "b"}, %v: tensor<1x128x16xbf16> {train.name = "v"}, %g: tensor<1x64x16xbf16> {train.name = "g"})
    -> (tensor<1x64x16xbf16> {train.name = "y"}, tensor<64x128xbf16> {train.name = "d"}, tensor<128xf32> {train.name = "db"}) attributes {train.entry = "layer"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xbf16>, tensor<1x32x128xbf16>) -> tensor<1x64x128xbf16>
  %q = train.reshape %p : tensor<1x64x128xbf16> -> tensor<64x128xbf16>
  %c = train.cast %q : tensor<64x128xbf16> -> tensor<64x128xf32>
  %bb = train.broadcast %b : tensor<128xf32> -> tensor<64x128xf32>
  %s = train.add %c, %bb : tensor<64x128xf32>
  %h = train.gelu %s {tanh = true} : tensor<64x128xf32>
  %n = train.cast %h : tensor<64x128xf32> -> tensor<64x128xbf16>
  %hh = train.reshape %n : tensor<64x128xbf16> -> tensor<1x64x128xbf16>
  %y = train.matmul %hh, %v : (tensor<1x64x128xbf16>, tensor<1x128x16xbf16>) -> tensor<1x64x16xbf16>
  %e = train.matmul %g, %v {transB = true} : (tensor<1x64x16xbf16>, tensor<1x128x16xbf16>) -> tensor<1x64x128xbf16>
  %f = train.reshape %e : tensor<1x64x128xbf16> -> tensor<64x128xbf16>
  %fc = train.cast %f : tensor<64x128xbf16> -> tensor<64x128xf32>
  %c2 = train.cast %q {train.repeated} : tensor<64x128xbf16> -> tensor<64x128xf32>
  %bb2 = train.broadcast %b {train.repeated} : tensor<128xf32> -> tensor<64x128xf32>
  %s2 = train.add %c2, %bb2 {train.repeated} : tensor<64x128xf32>
  %t = train.gelu_derivative %s2 {tanh = true} : tensor<64x128xf32>
  %m = train.mul %fc, %t : tensor<64x128xf32>
  %r = train.reduce sum %m [0] : tensor<64x128xf32> -> tensor<1x128xf32>
  %db = train.reshape %r : tensor<1x128xf32> -> tensor<128xf32>
  %d = train.cast %m : tensor<64x128xf32> -> tensor<64x128xbf16>
  return %y, %d, %db : tensor<1x64x16xbf16>, tensor<64x128xbf16>, tensor<128xf32>
}

// The bias of a 16-bit result is rounded together with the sum; that of an f32 result has the bits of a kernel.
// CHECK-LABEL: func.func @linear
// CHECK-COUNT-2: train.matmul_epilogue "bias"
// BIAS-LABEL: func.func @linear
// BIAS: train.matmul_epilogue "bias"({{.*}}) {train.call{{.*}}} : (tensor<1x64x32xbf16>, tensor<1x32x24xbf16>, tensor<24xbf16>, tensor<24xf32>) -> tensor<1x64x24xbf16>
// BIAS: train.matmul_epilogue "bias"
// EXACT-LABEL: func.func @linear
// EXACT-NOT: tensor<24xbf16>
// EXACT: train.matmul_epilogue "bias"(%arg0, %arg1, %arg2) {train.call{{.*}}result_dtype: F32{{.*}}} : (tensor<1x64x32xbf16>, tensor<1x32x24xbf16>, tensor<24xf32>) -> tensor<1x64x24xf32>
// EXACT: return
func.func @linear(%x: tensor<1x64x32xbf16> {train.name = "x"}, %w: tensor<1x32x24xbf16> {train.name = "w"}, %b: tensor<24xf32> {train.variable = "b"})
    -> (tensor<1x64x24xbf16> {train.name = "y"}, tensor<1x64x24xf32> {train.name = "z"}) attributes {train.entry = "linear"} {
  %p = train.matmul %x, %w : (tensor<1x64x32xbf16>, tensor<1x32x24xbf16>) -> tensor<1x64x24xbf16>
  %c = train.cast %p : tensor<1x64x24xbf16> -> tensor<1x64x24xf32>
  %bb = train.broadcast %b : tensor<24xf32> -> tensor<1x64x24xf32>
  %s = train.add %c, %bb : tensor<1x64x24xf32>
  %y = train.cast %s : tensor<1x64x24xf32> -> tensor<1x64x24xbf16>
  %q = train.matmul %x, %w : (tensor<1x64x32xbf16>, tensor<1x32x24xbf16>) -> tensor<1x64x24xf32>
  %z = train.add %q, %bb : tensor<1x64x24xf32>
  return %y, %z : tensor<1x64x24xbf16>, tensor<1x64x24xf32>
}

// The bias's gradient sums the 16-bit matrix that the weight gradient multiplies; the product is f32, and so are its sums.
// In 16 bits cuBLASLt also has sums of the first factor.
// CHECK-LABEL: func.func @sums
// CHECK: train.matmul_epilogue "none"(%{{.*}}, %arg1) {{{.*}}sums = "lhs", {{.*}}} : (tensor<1x64x24xbf16>, tensor<1x64x32xbf16>) -> (tensor<1x24x32xf32>, tensor<24xf32>)
// CHECK-NOT: train.reduce
// CHECK: return
// GELU-LABEL: func.func @sums
// GELU-NOT: matmul_epilogue
// GELU: return
func.func @sums(%n: tensor<64x24xbf16> {train.name = "n"}, %x: tensor<1x64x32xbf16> {train.name = "x"})
    -> (tensor<1x24x32xf32> {train.name = "dw"}, tensor<1x24xf32> {train.name = "db"}) attributes {train.entry = "sums"} {
  %nn = train.reshape %n : tensor<64x24xbf16> -> tensor<1x64x24xbf16>
  %dw = train.matmul %nn, %x {transA = true} : (tensor<1x64x24xbf16>, tensor<1x64x32xbf16>) -> tensor<1x24x32xf32>
  %e = train.cast %n : tensor<64x24xbf16> -> tensor<64x24xf32>
  %db = train.reduce sum %e [0] : tensor<64x24xf32> -> tensor<1x24xf32>
  return %dw, %db : tensor<1x24x32xf32>, tensor<1x24xf32>
}

// A batch has one bias for all products, or one for each.
// EXACT-LABEL: func.func @batches
// EXACT: train.matmul_epilogue "bias"(%arg0, %arg1, %arg2) {train.call{{.*}}epilogue { kind: BIAS }{{.*}}} : (tensor<3x8x16xf32>, tensor<3x16x24xf32>, tensor<24xf32>) -> tensor<3x8x24xf32>
// EXACT: train.matmul_epilogue "bias"({{.*}}) {train.call{{.*}}epilogue { kind: BIAS bias_of_each: true }{{.*}}} : (tensor<3x8x16xf32>, tensor<3x16x24xf32>, tensor<3x24xf32>) -> tensor<3x8x24xf32>
// EXACT-NOT: train.fused
// EXACT: return
func.func @batches(%x: tensor<3x8x16xf32> {train.name = "x"}, %w: tensor<3x16x24xf32> {train.variable = "w"}, %b: tensor<24xf32> {train.variable = "b"}, %c: tensor<3x1x24xf32> {train.variable = "c"})
    -> (tensor<3x8x24xf32> {train.name = "y"}, tensor<3x8x24xf32> {train.name = "z"}) attributes {train.entry = "batches"} {
  %p = train.matmul %x, %w : (tensor<3x8x16xf32>, tensor<3x16x24xf32>) -> tensor<3x8x24xf32>
  %bb = train.broadcast %b : tensor<24xf32> -> tensor<3x8x24xf32>
  %y = train.add %p, %bb : tensor<3x8x24xf32>
  %q = train.matmul %y, %w {transB = true} : (tensor<3x8x24xf32>, tensor<3x16x24xf32>) -> tensor<3x8x16xf32>
  %r = train.matmul %q, %w : (tensor<3x8x16xf32>, tensor<3x16x24xf32>) -> tensor<3x8x24xf32>
  %cc = train.broadcast %c : tensor<3x1x24xf32> -> tensor<3x8x24xf32>
  %z = train.add %r, %cc : tensor<3x8x24xf32>
  return %y, %z : tensor<3x8x24xf32>, tensor<3x8x24xf32>
}

// This bias is not along the rows of each product: a kernel adds it.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: matmul_epilogue
// CHECK: return
func.func @rows(%x: tensor<8x8x16xf32> {train.name = "x"}, %w: tensor<8x16x8xf32> {train.variable = "w"}, %b: tensor<8x1xf32> {train.variable = "b"})
    -> (tensor<8x8x8xf32> {train.name = "y"}) attributes {train.entry = "rows"} {
  %p = train.matmul %x, %w : (tensor<8x8x16xf32>, tensor<8x16x8xf32>) -> tensor<8x8x8xf32>
  %bb = train.broadcast %b : tensor<8x1xf32> -> tensor<8x8x8xf32>
  %y = train.add %p, %bb : tensor<8x8x8xf32>
  return %y : tensor<8x8x8xf32>
}
}
