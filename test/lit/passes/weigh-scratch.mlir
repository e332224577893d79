// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(select-kernels,fuse-kernels),weigh-scratch)" --split-input-file | FileCheck %s

// Beside values of 11 MB, the scratch of eight tiles decides the arena's size: the convolution keeps fewer channels at a time.
module attributes {train.slots = 8 : i64} {
// CHECK-LABEL: func.func @peak
// CHECK: train.scratch = #train.scratch<slot = {{[0-9]+}},
// CHECK: train.winograd_conv {{.*}}channelBlock = {{32|64}} : i64
func.func @peak(%x: tensor<16x7x7x512xf32> {train.name = "x"}, %w: tensor<512x512x3x3xf32> {train.name = "w"})
    -> (tensor<16x7x7x512xf32> {train.name = "y"}) attributes {train.entry = "peak"} {
  %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>} : (tensor<16x7x7x512xf32>, tensor<512x512x3x3xf32>) -> tensor<16x7x7x512xf32>
  return %y : tensor<16x7x7x512xf32>
}
}

// -----

// Later 64 MB live at once, more than scratch and values together at the convolution: it stays as it was.
module attributes {train.slots = 8 : i64} {
// CHECK-LABEL: func.func @beside
// CHECK: train.winograd_conv
// CHECK-NOT: channelBlock
// CHECK: return
func.func @beside(%x: tensor<16x7x7x512xf32> {train.name = "x"}, %w: tensor<512x512x3x3xf32> {train.name = "w"})
    -> (tensor<40x16x7x7x512xf32> {train.name = "y"}) attributes {train.entry = "beside"} {
  %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>} : (tensor<16x7x7x512xf32>, tensor<512x512x3x3xf32>) -> tensor<16x7x7x512xf32>
  %r = train.reshape %y : tensor<16x7x7x512xf32> -> tensor<1x16x7x7x512xf32>
  %b = train.broadcast %r : tensor<1x16x7x7x512xf32> -> tensor<40x16x7x7x512xf32>
  return %b : tensor<40x16x7x7x512xf32>
}
}

// -----

// Another entry makes the arena as large.
module attributes {train.slots = 8 : i64} {
// CHECK-LABEL: func.func @small
// CHECK: train.winograd_conv
// CHECK-NOT: channelBlock
// CHECK: return
func.func @small(%x: tensor<16x7x7x512xf32> {train.name = "x"}, %w: tensor<512x512x3x3xf32> {train.name = "w"})
    -> (tensor<16x7x7x512xf32> {train.name = "y"}) attributes {train.entry = "small"} {
  %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>} : (tensor<16x7x7x512xf32>, tensor<512x512x3x3xf32>) -> tensor<16x7x7x512xf32>
  return %y : tensor<16x7x7x512xf32>
}
func.func @large(%x: tensor<64x1024x1024xf32> {train.name = "x"}) -> (tensor<64x1024x1024xf32> {train.name = "y"}) attributes {train.entry = "large"} {
  %y = train.exp %x : tensor<64x1024x1024xf32>
  return %y : tensor<64x1024x1024xf32>
}
}
