// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=all})" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=bias})" | FileCheck %s --check-prefix=BIAS
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(select-kernels,fuse-kernels),fuse-epilogues{level=exact})" | FileCheck %s --check-prefix=NONE
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels),fuse-epilogues)" | FileCheck %s --check-prefix=CPU

// An engine with a bias sums in another order: no convolution would keep its bits.
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

// A vector along the rows of pixels is no bias, even if there are as many features.
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

// Mixed precision, channels last: the bias is cast to 16 bits.
// BIAS-LABEL: func.func @narrow
// BIAS: %[[B:.*]] = train.fused(%arg2) : (tensor<8xf32>) -> tensor<8xbf16>
// BIAS: train.conv_epilogue %arg0, %arg1, %[[B]], %arg2 {{{.*}}finish: BIAS{{.*}}} : (tensor<2x8x8x3xbf16>, tensor<8x3x3x3xbf16>, tensor<8xbf16>, tensor<8xf32>) -> tensor<2x8x8x8xbf16>
// BIAS: return
func.func @narrow(%x: tensor<2x8x8x3xbf16> {train.name = "x"}, %w: tensor<8x3x3x3xbf16> {train.name = "w"}, %b: tensor<8xf32> {train.variable = "b"})
    -> (tensor<2x8x8x8xbf16> {train.name = "y"}) attributes {train.entry = "narrow"} {
  %p = train.conv %x, %w {channelsLast = true, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x8x3xbf16>, tensor<8x3x3x3xbf16>) -> tensor<2x8x8x8xbf16>
  %c = train.cast %p : tensor<2x8x8x8xbf16> -> tensor<2x8x8x8xf32>
  %bb = train.broadcast %b : tensor<8xf32> -> tensor<2x8x8x8xf32>
  %s = train.add %c, %bb : tensor<2x8x8x8xf32>
  %y = train.cast %s : tensor<2x8x8x8xf32> -> tensor<2x8x8x8xbf16>
  return %y : tensor<2x8x8x8xbf16>
}

// ReLU stays a kernel at every level: cuDNN's ReLU of a NaN is 0.
// CHECK-LABEL: func.func @relu
// CHECK-NOT: conv_epilogue
// CHECK: return
func.func @relu(%x: tensor<2x3x8x8xf32> {train.name = "x"}, %w: tensor<8x3x3x3xf32> {train.variable = "w"}, %b: tensor<8xf32> {train.variable = "b"})
    -> (tensor<2x8x8x8xf32> {train.name = "y"}) attributes {train.entry = "relu"} {
  %p = train.conv %x, %w {dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x8x8xf32>
  %r = train.reshape %b : tensor<8xf32> -> tensor<1x8x1x1xf32>
  %bb = train.broadcast %r : tensor<1x8x1x1xf32> -> tensor<2x8x8x8xf32>
  %s = train.add %p, %bb : tensor<2x8x8x8xf32>
  %y = train.relu %s : tensor<2x8x8x8xf32>
  return %y : tensor<2x8x8x8xf32>
}
}
