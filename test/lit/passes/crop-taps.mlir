// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(crop-taps))" | FileCheck %s

// Taps that read padding for all outputs are removed from the weights; their gradient is 0.

// CHECK-LABEL: func.func @step
// CHECK: %[[W:.*]] = train.slice %arg1 starts [0, 0, 1, 0] steps [1, 1, 1, 1] : tensor<64x64x3x3xf32> -> tensor<64x64x1x3xf32>
// CHECK: train.conv %arg0, %[[W]] {channelsLast = true, dilations = array<i64: 36, 24>, padsBegin = array<i64: 0, 24>, padsEnd = array<i64: 0, 24>, strides = array<i64: 1, 1>} : (tensor<2x32x32x64xf32>, tensor<64x64x1x3xf32>) -> tensor<2x32x32x64xf32>
// CHECK: %[[V:.*]] = train.slice %arg1 starts [0, 0, 1, 0]
// CHECK: train.conv_input_grad %{{.*}}, %[[V]] {channelsLast = true, dilations = array<i64: 36, 24>, padsBegin = array<i64: 0, 24>, padsEnd = array<i64: 0, 24>
// CHECK: %[[G:.*]] = train.conv_weight_grad %{{.*}} padsBegin = array<i64: 0, 24>, {{.*}} -> tensor<64x64x1x3xf32>
// CHECK: train.pad %[[G]] low [0, 0, 1, 0] steps [1, 1, 1, 1] value 0.000000e+00 : tensor<64x64x1x3xf32> -> tensor<64x64x3x3xf32>
func.func @step(%x: tensor<2x32x32x64xf32>, %w: tensor<64x64x3x3xf32>) -> (tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>) attributes {train.entry = "step"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 36, 24>, padsBegin = array<i64: 36, 24>, padsEnd = array<i64: 36, 24>, channelsLast = true} : (tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<2x32x32x64xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 36, 24>, padsBegin = array<i64: 36, 24>, padsEnd = array<i64: 36, 24>, channelsLast = true} : (tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<2x32x32x64xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 36, 24>, padsBegin = array<i64: 36, 24>, padsEnd = array<i64: 36, 24>, channelsLast = true} : (tensor<2x32x32x64xf32>, tensor<2x32x32x64xf32>) -> tensor<64x64x3x3xf32>
  return %dx, %dw : tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>
}

// With a stride, and a kernel larger than the image. Only taps on one side are removed; the pads need not be equal.

// CHECK-LABEL: func.func @strided
// CHECK: train.slice %arg1 starts [0, 0, 3, 0] steps [1, 1, 1, 1] : tensor<8x8x7x3xf32> -> tensor<8x8x2x3xf32>
// CHECK: train.conv {{.*}} padsBegin = array<i64: 0, 1>, padsEnd = array<i64: 1, 0>, strides = array<i64: 2, 1>
func.func @strided(%x: tensor<8x2x9x8xf32>, %w: tensor<8x8x7x3xf32>) -> tensor<8x1x8x8xf32> attributes {train.entry = "strided"} {
  %y = train.conv %x, %w {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 3, 1>, padsEnd = array<i64: 3, 0>, channelsLast = true} : (tensor<8x2x9x8xf32>, tensor<8x8x7x3xf32>) -> tensor<8x1x8x8xf32>
  return %y : tensor<8x1x8x8xf32>
}

// These stay: taps that each reach some output, activations that are not channels-last, and weights whose copy costs more
// than the few multiplications that it would save.

// CHECK-LABEL: func.func @others
// CHECK-NOT: train.slice
// CHECK: return
func.func @others(%x: tensor<2x32x32x64xf32>, %w: tensor<64x64x3x3xf32>, %planar: tensor<2x64x32x32xf32>, %sound: tensor<2x49x64xf32>, %wide: tensor<64x4x128xf32>) -> (tensor<2x32x32x64xf32>, tensor<2x64x32x32xf32>, tensor<2x50x64xf32>) attributes {train.entry = "others"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 24, 24>, padsBegin = array<i64: 24, 24>, padsEnd = array<i64: 24, 24>, channelsLast = true} : (tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<2x32x32x64xf32>
  %z = train.conv %planar, %w {strides = array<i64: 1, 1>, dilations = array<i64: 36, 36>, padsBegin = array<i64: 36, 36>, padsEnd = array<i64: 36, 36>} : (tensor<2x64x32x32xf32>, tensor<64x64x3x3xf32>) -> tensor<2x64x32x32xf32>
  %s = train.conv %sound, %wide {strides = array<i64: 1>, dilations = array<i64: 1>, padsBegin = array<i64: 64>, padsEnd = array<i64: 64>, groups = 16, channelsLast = true} : (tensor<2x49x64xf32>, tensor<64x4x128xf32>) -> tensor<2x50x64xf32>
  return %y, %z, %s : tensor<2x32x32x64xf32>, tensor<2x64x32x32xf32>, tensor<2x50x64xf32>
}
