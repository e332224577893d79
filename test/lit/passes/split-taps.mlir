// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(split-taps),canonicalize)" | FileCheck %s

// A tap whose offset is most of the image reaches few outputs. Each tap becomes a product over the outputs that it reaches;
// the results are added to these outputs, and a gradient has one product for each tap.

// CHECK-LABEL: func.func @step
// CHECK: train.slice %arg0 starts [0, 0, 0] steps [1, 1, 1] : tensor<64x32x512xf32> -> tensor<64x4x512xf32>
// CHECK: train.matmul {{.*}} {transB = true} : (tensor<1x256x512xf32>, tensor<1x384x512xf32>) -> tensor<1x256x384xf32>
// CHECK: train.pad %{{.*}} low [0, 28, 0] steps [1, 1, 1] value 0.000000e+00 : tensor<64x4x384xf32> -> tensor<64x32x384xf32>
// CHECK: train.matmul {{.*}} {transB = true} : (tensor<1x2048x512xf32>, tensor<1x384x512xf32>) -> tensor<1x2048x384xf32>
// CHECK: train.slice %arg0 starts [0, 28, 0] steps [1, 1, 1] : tensor<64x32x512xf32> -> tensor<64x4x512xf32>
// CHECK: train.matmul {{.*}} {transB = true} : (tensor<1x256x512xf32>, tensor<1x384x512xf32>) -> tensor<1x256x384xf32>
// CHECK: train.pad %{{.*}} low [0, 0, 0] steps [1, 1, 1] value 0.000000e+00 : tensor<64x4x384xf32> -> tensor<64x32x384xf32>

// CHECK: train.slice %[[Y:.*]] starts [0, 28, 0] steps [1, 1, 1] : tensor<64x32x384xf32> -> tensor<64x4x384xf32>
// CHECK: train.matmul {{.*}} : (tensor<1x256x384xf32>, tensor<1x384x512xf32>) -> tensor<1x256x512xf32>
// CHECK: train.pad %{{.*}} low [0, 0, 0] steps [1, 1, 1] value 0.000000e+00 : tensor<64x4x512xf32> -> tensor<64x32x512xf32>

// CHECK: train.matmul {{.*}} {transA = true} : (tensor<1x256x384xf32>, tensor<1x256x512xf32>) -> tensor<1x384x512xf32>
// CHECK: train.matmul {{.*}} {transA = true} : (tensor<1x2048x384xf32>, tensor<1x2048x512xf32>) -> tensor<1x384x512xf32>
// CHECK: train.matmul {{.*}} {transA = true} : (tensor<1x256x384xf32>, tensor<1x256x512xf32>) -> tensor<1x384x512xf32>
// CHECK: train.concat dim = 0
// CHECK-NOT: train.conv
// CHECK: return
func.func @step(%x: tensor<64x32x512xf32>, %w: tensor<384x512x3xf32>) -> (tensor<64x32x512xf32>, tensor<384x512x3xf32>) attributes {train.entry = "step"} {
  %y = train.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x512xf32>, tensor<384x512x3xf32>) -> tensor<64x32x384xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x384xf32>, tensor<384x512x3xf32>) -> tensor<64x32x512xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x512xf32>, tensor<64x32x384xf32>) -> tensor<384x512x3xf32>
  return %dx, %dw : tensor<64x32x512xf32>, tensor<384x512x3xf32>
}

// 16-bit operands: products in f32, rounded once when they are added up.

// CHECK-LABEL: func.func @narrow
// CHECK-COUNT-3: -> tensor<1x{{[0-9]+}}x384xf32>
// CHECK: train.cast %{{.*}} : tensor<64x32x384xf32> -> tensor<64x32x384xbf16>
// CHECK: return
func.func @narrow(%x: tensor<64x32x512xbf16>, %w: tensor<384x512x3xbf16>) -> tensor<64x32x384xbf16> attributes {train.entry = "narrow"} {
  %y = train.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x512xbf16>, tensor<384x512x3xbf16>) -> tensor<64x32x384xbf16>
  return %y : tensor<64x32x384xbf16>
}

// These stay: dilations that are a small part of the image, strides, groups, and few channels, whose copies would take as
// long as the products save.

// CHECK-LABEL: func.func @others
// CHECK-NOT: train.matmul
// CHECK: return
func.func @others(%x: tensor<64x32x512xf32>, %w: tensor<384x512x3xf32>, %grouped: tensor<384x256x3xf32>, %few: tensor<64x32x4xf32>, %small: tensor<4x4x3xf32>) -> (tensor<64x32x384xf32>, tensor<64x16x384xf32>, tensor<64x32x384xf32>, tensor<64x32x4xf32>) attributes {train.entry = "others"} {
  %a = train.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 8>, padsBegin = array<i64: 8>, padsEnd = array<i64: 8>, channelsLast = true} : (tensor<64x32x512xf32>, tensor<384x512x3xf32>) -> tensor<64x32x384xf32>
  %b = train.conv %x, %w {strides = array<i64: 2>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x512xf32>, tensor<384x512x3xf32>) -> tensor<64x16x384xf32>
  %c = train.conv %x, %grouped {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, groups = 2, channelsLast = true} : (tensor<64x32x512xf32>, tensor<384x256x3xf32>) -> tensor<64x32x384xf32>
  %d = train.conv %few, %small {strides = array<i64: 1>, dilations = array<i64: 28>, padsBegin = array<i64: 28>, padsEnd = array<i64: 28>, channelsLast = true} : (tensor<64x32x4xf32>, tensor<4x4x3xf32>) -> tensor<64x32x4xf32>
  return %a, %b, %c, %d : tensor<64x32x384xf32>, tensor<64x16x384xf32>, tensor<64x32x384xf32>, tensor<64x32x4xf32>
}
