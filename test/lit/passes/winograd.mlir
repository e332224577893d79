// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(winograd))" | FileCheck %s

// A 3x3 convolution of stride 1 and both its gradients: that of the input is the convolution with reversed taps, padded by
// what remains of the kernel; that of the weights is computed in parts.

// CHECK-LABEL: func.func @step
// CHECK: train.winograd_conv %arg0, %arg1 {padsBegin = array<i64: 1, 0>} : (tensor<8x28x28x64xf32>, tensor<96x64x3x3xf32>) -> tensor<8x28x26x96xf32>
// CHECK: train.winograd_conv %{{.*}}, %arg1 {padsBegin = array<i64: 1, 2>, transposed = true} : (tensor<8x28x26x96xf32>, tensor<96x64x3x3xf32>) -> tensor<8x28x28x64xf32>
// CHECK: %[[PARTS:.*]] = train.winograd_weight_grad %arg0, %{{.*}} {padsBegin = array<i64: 1, 0>} : (tensor<8x28x28x64xf32>, tensor<8x28x26x96xf32>) -> tensor<[[N:[0-9]+]]x96x64x3x3xf32>
// CHECK: %[[SUM:.*]] = train.reduce sum %[[PARTS]] [0] : tensor<[[N]]x96x64x3x3xf32> -> tensor<1x96x64x3x3xf32>
// CHECK: train.reshape %[[SUM]] : tensor<1x96x64x3x3xf32> -> tensor<96x64x3x3xf32>
// CHECK-NOT: train.conv
// CHECK: return
func.func @step(%x: tensor<8x28x28x64xf32>, %w: tensor<96x64x3x3xf32>) -> (tensor<8x28x28x64xf32>, tensor<96x64x3x3xf32>) attributes {train.entry = "step"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 0>, padsEnd = array<i64: 1, 0>, channelsLast = true} : (tensor<8x28x28x64xf32>, tensor<96x64x3x3xf32>) -> tensor<8x28x26x96xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 0>, padsEnd = array<i64: 1, 0>, channelsLast = true} : (tensor<8x28x26x96xf32>, tensor<96x64x3x3xf32>) -> tensor<8x28x28x64xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 0>, padsEnd = array<i64: 1, 0>, channelsLast = true} : (tensor<8x28x28x64xf32>, tensor<8x28x26x96xf32>) -> tensor<96x64x3x3xf32>
  return %dx, %dw : tensor<8x28x28x64xf32>, tensor<96x64x3x3xf32>
}

// 16-bit activations are transformed and summed in f32; the gradient of a weight is rounded once, from the sum.

// CHECK-LABEL: func.func @narrow
// CHECK: train.winograd_conv {{.*}} -> tensor<8x28x28x64xbf16>
// CHECK: train.winograd_weight_grad {{.*}} -> tensor<{{[0-9]+}}x64x64x3x3xf32>
// CHECK: train.cast %{{.*}} : tensor<64x64x3x3xf32> -> tensor<64x64x3x3xbf16>
func.func @narrow(%x: tensor<8x28x28x64xbf16>, %w: tensor<64x64x3x3xbf16>) -> tensor<64x64x3x3xbf16> attributes {train.entry = "narrow"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<8x28x28x64xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x28x28x64xbf16>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<8x28x28x64xbf16>, tensor<8x28x28x64xbf16>) -> tensor<64x64x3x3xbf16>
  return %dw : tensor<64x64x3x3xbf16>
}

// Outputs that are a dilation apart form tiles of their own; if these grids have fewer rows than a tile, there is no gain.

// CHECK-LABEL: func.func @dilated
// CHECK: train.winograd_conv %arg0, %arg1 {dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>}
// CHECK: train.winograd_conv %{{.*}}, %arg1 {dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>, transposed = true}
// CHECK: train.winograd_weight_grad %arg0, %{{.*}} {dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>}
// CHECK: train.conv %
// CHECK: return
func.func @dilated(%x: tensor<8x32x32x64xf32>, %w: tensor<64x64x3x3xf32>) -> (tensor<8x32x32x64xf32>, tensor<64x64x3x3xf32>, tensor<8x32x32x64xf32>) attributes {train.entry = "dilated"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>, padsEnd = array<i64: 2, 4>, channelsLast = true} : (tensor<8x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x32x32x64xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>, padsEnd = array<i64: 2, 4>, channelsLast = true} : (tensor<8x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x32x32x64xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 2, 4>, padsBegin = array<i64: 2, 4>, padsEnd = array<i64: 2, 4>, channelsLast = true} : (tensor<8x32x32x64xf32>, tensor<8x32x32x64xf32>) -> tensor<64x64x3x3xf32>
  %z = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 14, 14>, padsBegin = array<i64: 14, 14>, padsEnd = array<i64: 14, 14>, channelsLast = true} : (tensor<8x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x32x32x64xf32>
  return %dx, %dw, %z : tensor<8x32x32x64xf32>, tensor<64x64x3x3xf32>, tensor<8x32x32x64xf32>
}

// These stay: strides, groups, few channels, f64, too few tiles for the weights' transform, activations
// that are not channels-last.

// CHECK-LABEL: func.func @others
// CHECK-NOT: train.winograd
// CHECK: return
func.func @others(%x: tensor<8x28x28x64xf32>, %w: tensor<64x64x3x3xf32>, %grouped: tensor<64x1x3x3xf32>, %rgb: tensor<8x28x28x3xf32>, %first: tensor<64x3x3x3xf32>,
                  %dx: tensor<8x28x28x64xf64>, %dw: tensor<64x64x3x3xf64>, %small: tensor<1x4x4x64xf32>, %planar: tensor<8x64x28x28xf32>) -> tensor<8x64x28x28xf32> attributes {train.entry = "others"} {
  %a = train.conv %x, %w {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x28x28x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x14x14x64xf32>
  %b = train.conv %x, %grouped {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, groups = 64, channelsLast = true} : (tensor<8x28x28x64xf32>, tensor<64x1x3x3xf32>) -> tensor<8x28x28x64xf32>
  %d = train.conv %rgb, %first {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<8x28x28x3xf32>, tensor<64x3x3x3xf32>) -> tensor<8x28x28x64xf32>
  %e = train.conv %dx, %dw {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<8x28x28x64xf64>, tensor<64x64x3x3xf64>) -> tensor<8x28x28x64xf64>
  %f = train.conv %small, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<1x4x4x64xf32>, tensor<64x64x3x3xf32>) -> tensor<1x4x4x64xf32>
  %g = train.conv %planar, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  return %g : tensor<8x64x28x28xf32>
}
