// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-epilogues{level=gelu}))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-epilogues{level=bias}))" | FileCheck %s --check-prefix=BIAS
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels,fuse-epilogues{level=exact}))" | FileCheck %s --check-prefix=NONE
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels,fuse-epilogues))" | FileCheck %s --check-prefix=CPU

// Another engine adds in another order: no convolution keeps its bits.
// NONE-NOT: conv_epilogue
// CPU-NOT: conv_epilogue

module attributes {train.slots = 2 : i64} {

// BIAS-LABEL: func.func @bias
// BIAS: train.conv_epilogue %arg0, %arg1, %arg2 {{{.*}}finish: BIAS{{.*}}} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>, tensor<8xf32>) -> tensor<2x8x8x8xf32>
// BIAS-NOT: train.fused
// BIAS: return
func.func @bias(%x: tensor<2x3x8x8xf32> {train.name = "x"}, %w: tensor<8x3x3x3xf32> {train.variable = "w"}, %b: tensor<8xf32> {train.variable = "b"})
    -> (tensor<2x8x8x8xf32> {train.name = "y"}) attributes {train.entry = "bias"} {
  %p = train.conv %x, %w {dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x8x8xf32>
  %r = train.reshape %b : tensor<8xf32> -> tensor<1x8x1x1xf32>
  %bb = train.broadcast %r : tensor<1x8x1x1xf32> -> tensor<2x8x8x8xf32>
  %y = train.add %p, %bb : tensor<2x8x8x8xf32>
  return %y : tensor<2x8x8x8xf32>
}

// A vector along the rows of pixels is no bias, though features are as many.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: conv_epilogue
// CHECK: return
func.func @columns(%x: tensor<2x3x8x8xf32> {train.name = "x"}, %w: tensor<8x3x3x3xf32> {train.variable = "w"}, %b: tensor<8xf32> {train.variable = "b"})
    -> (tensor<2x8x8x8xf32> {train.name = "y"}) attributes {train.entry = "columns"} {
  %p = train.conv %x, %w {dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x8x8xf32>
  %bb = train.broadcast %b : tensor<8xf32> -> tensor<2x8x8x8xf32>
  %y = train.add %p, %bb : tensor<2x8x8x8xf32>
  return %y : tensor<2x8x8x8xf32>
}

// Mixed precision, channels last. The gradient asks which results are above 0: its kernel reads the result, which the
// next convolution's weight gradient keeps, in place of a mask. Below `gelu` that is a kernel.
// CHECK-LABEL: func.func @trained
// CHECK: %[[B:.*]] = train.fused(%arg2) : (tensor<8xf32>) -> tensor<8xbf16>
// CHECK: %[[Y:.*]] = train.conv_epilogue %arg0, %arg1, %[[B]] {{{.*}}relu{{.*}}finish: BIAS_RELU{{.*}}} : (tensor<2x8x8x3xbf16>, tensor<8x3x3x3xbf16>, tensor<8xbf16>) -> tensor<2x8x8x8xbf16>
// CHECK: train.fused({{.*}}%[[Y]]{{.*}}) : ({{.*}}tensor<2x8x8x8xbf16>{{.*}}) -> tensor<2x8x8x8xbf16>
// CHECK: train.compare gt
// CHECK-NOT: tensor<2x8x8x8xi1>) -> (
// CHECK: return
// BIAS-LABEL: func.func @trained
// BIAS-NOT: conv_epilogue
// BIAS: return
func.func @trained(%x: tensor<2x8x8x3xbf16> {train.name = "x"}, %w: tensor<8x3x3x3xbf16> {train.name = "w"}, %b: tensor<8xf32> {train.variable = "b"}, %v: tensor<8x8x3x3xbf16> {train.name = "v"}, %g: tensor<2x8x8x8xbf16> {train.name = "g"})
    -> (tensor<2x8x8x8xbf16> {train.name = "y"}, tensor<8x8x3x3xbf16> {train.name = "dv"}, tensor<8x3x3x3xbf16> {train.name = "dw"}) attributes {train.entry = "trained"} {
  %p = train.conv %x, %w {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x3xbf16>, tensor<8x3x3x3xbf16>) -> tensor<2x8x8x8xbf16>
  %c = train.cast %p : tensor<2x8x8x8xbf16> -> tensor<2x8x8x8xf32>
  %bb = train.broadcast %b : tensor<8xf32> -> tensor<2x8x8x8xf32>
  %s = train.add %c, %bb : tensor<2x8x8x8xf32>
  %r = train.relu %s : tensor<2x8x8x8xf32>
  %zero = train.constant dense<0.0> : tensor<2x8x8x8xf32>
  %m = train.compare gt %r, %zero : tensor<2x8x8x8xf32> -> tensor<2x8x8x8xi1>
  %n = train.cast %r : tensor<2x8x8x8xf32> -> tensor<2x8x8x8xbf16>
  %y = train.conv %n, %v {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x8xbf16>, tensor<8x8x3x3xbf16>) -> tensor<2x8x8x8xbf16>
  %dv = train.conv_weight_grad %n, %g {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x8xbf16>, tensor<2x8x8x8xbf16>) -> tensor<8x8x3x3xbf16>
  %dn = train.conv_input_grad %g, %v {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x8xbf16>, tensor<8x8x3x3xbf16>) -> tensor<2x8x8x8xbf16>
  %dc = train.cast %dn : tensor<2x8x8x8xbf16> -> tensor<2x8x8x8xf32>
  %d = train.select %m, %dc, %zero : tensor<2x8x8x8xi1>, tensor<2x8x8x8xf32>
  %db = train.cast %d : tensor<2x8x8x8xf32> -> tensor<2x8x8x8xbf16>
  %dw = train.conv_weight_grad %x, %db {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x3xbf16>, tensor<2x8x8x8xbf16>) -> tensor<8x3x3x3xbf16>
  return %y, %dv, %dw : tensor<2x8x8x8xbf16>, tensor<8x8x3x3xbf16>, tensor<8x3x3x3xbf16>
}
}
