// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4},func.func(pointwise-convolutions))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v4-bf16},func.func(pointwise-convolutions))" | FileCheck %s --check-prefix=PAIRS

// Where bf16 is widened, panels read it in its own layout: the convolution and both its gradients are products of the tensors
// seen as matrices. A level that multiplies pairs of bf16 keeps the convolutions.

// CHECK-LABEL: func.func @step
// CHECK: %[[X:.*]] = train.reshape %arg0 : tensor<8x14x14x256xbf16> -> tensor<1x1568x256xbf16>
// CHECK: %[[W:.*]] = train.reshape %arg1 : tensor<128x256x1x1xbf16> -> tensor<1x128x256xbf16>
// CHECK: %[[P:.*]] = train.matmul %[[X]], %[[W]] {transB = true} : {{.*}} -> tensor<1x1568x128xbf16>
// CHECK: %[[Y:.*]] = train.reshape %[[P]] : tensor<1x1568x128xbf16> -> tensor<8x14x14x128xbf16>
// CHECK: %[[D:.*]] = train.reshape %[[Y]] : tensor<8x14x14x128xbf16> -> tensor<1x1568x128xbf16>
// CHECK: %[[Q:.*]] = train.matmul %[[D]], %{{.*}} : (tensor<1x1568x128xbf16>, tensor<1x128x256xbf16>) -> tensor<1x1568x256xbf16>
// CHECK: %[[DX:.*]] = train.reshape %[[Q]] : tensor<1x1568x256xbf16> -> tensor<8x14x14x256xbf16>
// CHECK: %[[R:.*]] = train.matmul %{{.*}}, %{{.*}} {transA = true} : (tensor<1x1568x128xbf16>, tensor<1x1568x256xbf16>) -> tensor<1x128x256xf32>
// CHECK: %[[DW:.*]] = train.reshape %[[R]] : tensor<1x128x256xf32> -> tensor<128x256x1x1xf32>
// CHECK: return %[[DX]], %[[DW]]
// PAIRS-LABEL: func.func @step
// PAIRS-NOT: train.matmul
// PAIRS: return
func.func @step(%x: tensor<8x14x14x256xbf16>, %w: tensor<128x256x1x1xbf16>) -> (tensor<8x14x14x256xbf16>, tensor<128x256x1x1xf32>) attributes {train.entry = "step"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xbf16>, tensor<128x256x1x1xbf16>) -> tensor<8x14x14x128xbf16>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x128xbf16>, tensor<128x256x1x1xbf16>) -> tensor<8x14x14x256xbf16>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xbf16>, tensor<8x14x14x128xbf16>) -> tensor<128x256x1x1xf32>
  return %dx, %dw : tensor<8x14x14x256xbf16>, tensor<128x256x1x1xf32>
}

// With strides, the pixels that count are gathered, and their gradients spread among zeros.

// CHECK-LABEL: func.func @strided
// CHECK: %[[SOME:.*]] = train.slice %arg0 starts [0, 0, 0, 0] steps [1, 2, 3, 1] : tensor<8x14x13x256xbf16> -> tensor<8x7x5x256xbf16>
// CHECK: train.reshape %[[SOME]] : tensor<8x7x5x256xbf16> -> tensor<1x280x256xbf16>
// CHECK: train.matmul {{.*}} {transB = true}
// CHECK: train.matmul
// CHECK: %[[SPREAD:.*]] = train.pad %{{.*}} low [0, 0, 0, 0] steps [1, 2, 3, 1] value 0.000000e+00 : tensor<8x7x5x256xbf16> -> tensor<8x14x13x256xbf16>
// CHECK: train.slice %arg0 starts [0, 0, 0, 0] steps [1, 2, 3, 1]
// CHECK: train.matmul {{.*}} {transA = true}
// CHECK: return %[[SPREAD]],
func.func @strided(%x: tensor<8x14x13x256xbf16>, %w: tensor<128x256x1x1xbf16>) -> (tensor<8x14x13x256xbf16>, tensor<128x256x1x1xf32>) attributes {train.entry = "strided"} {
  %y = train.conv %x, %w {strides = array<i64: 2, 3>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x13x256xbf16>, tensor<128x256x1x1xbf16>) -> tensor<8x7x5x128xbf16>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 2, 3>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x7x5x128xbf16>, tensor<128x256x1x1xbf16>) -> tensor<8x14x13x256xbf16>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 2, 3>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x13x256xbf16>, tensor<8x7x5x128xbf16>) -> tensor<128x256x1x1xf32>
  return %dx, %dw : tensor<8x14x13x256xbf16>, tensor<128x256x1x1xf32>
}

// Where nothing is widened, convolutions whose weights are small beside the pixels stay with the library.

// CHECK-LABEL: func.func @single
// CHECK-NOT: train.matmul
// CHECK: return
// PAIRS-LABEL: func.func @single
// PAIRS-NOT: train.matmul
// PAIRS: return
func.func @single(%x: tensor<8x14x14x256xf32>, %w: tensor<128x256x1x1xf32>) -> (tensor<8x14x14x256xf32>, tensor<128x256x1x1xf32>) attributes {train.entry = "single"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xf32>, tensor<128x256x1x1xf32>) -> tensor<8x14x14x128xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x128xf32>, tensor<128x256x1x1xf32>) -> tensor<8x14x14x256xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xf32>, tensor<8x14x14x128xf32>) -> tensor<128x256x1x1xf32>
  return %dx, %dw : tensor<8x14x14x256xf32>, tensor<128x256x1x1xf32>
}

// Each part of the batch copies its partial sums once: for an input's gradient, the limit on pixels is therefore lower.

// CHECK-LABEL: func.func @large
// CHECK: train.conv %
// CHECK: train.conv_input_grad
// CHECK: train.matmul {{.*}} {transA = true}
// PAIRS-LABEL: func.func @large
// PAIRS: train.conv %
// PAIRS: train.conv_input_grad
// PAIRS: train.matmul {{.*}} {transA = true}
func.func @large(%x: tensor<8x14x14x256xf32>, %w: tensor<1024x256x1x1xf32>) -> (tensor<8x14x14x256xf32>, tensor<1024x256x1x1xf32>) attributes {train.entry = "large"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xf32>, tensor<1024x256x1x1xf32>) -> tensor<8x14x14x1024xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x1024xf32>, tensor<1024x256x1x1xf32>) -> tensor<8x14x14x256xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xf32>, tensor<8x14x14x1024xf32>) -> tensor<1024x256x1x1xf32>
  return %dx, %dw : tensor<8x14x14x256xf32>, tensor<1024x256x1x1xf32>
}

// CHECK-LABEL: func.func @few
// CHECK: train.conv %
// CHECK: train.matmul
// CHECK: train.matmul {{.*}} {transA = true}
func.func @few(%x: tensor<8x7x7x256xf32>, %w: tensor<1024x256x1x1xf32>) -> (tensor<8x7x7x256xf32>, tensor<1024x256x1x1xf32>) attributes {train.entry = "few"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x7x7x256xf32>, tensor<1024x256x1x1xf32>) -> tensor<8x7x7x1024xf32>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x7x7x1024xf32>, tensor<1024x256x1x1xf32>) -> tensor<8x7x7x256xf32>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x7x7x256xf32>, tensor<8x7x7x1024xf32>) -> tensor<1024x256x1x1xf32>
  return %dx, %dw : tensor<8x7x7x256xf32>, tensor<1024x256x1x1xf32>
}

// These stay: weights with few features, whose gradient has too few rows for panels; windows of several elements, pads,
// groups, f64, activations that are not channels-last.

// CHECK-LABEL: func.func @narrow
// CHECK: train.matmul
// CHECK: train.matmul
// CHECK: train.conv_weight_grad
func.func @narrow(%x: tensor<8x14x14x256xbf16>, %w: tensor<32x256x1x1xbf16>) -> (tensor<8x14x14x256xbf16>, tensor<32x256x1x1xf32>) attributes {train.entry = "narrow"} {
  %y = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xbf16>, tensor<32x256x1x1xbf16>) -> tensor<8x14x14x32xbf16>
  %dx = train.conv_input_grad %y, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x32xbf16>, tensor<32x256x1x1xbf16>) -> tensor<8x14x14x256xbf16>
  %dw = train.conv_weight_grad %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<8x14x14x256xbf16>, tensor<8x14x14x32xbf16>) -> tensor<32x256x1x1xf32>
  return %dx, %dw : tensor<8x14x14x256xbf16>, tensor<32x256x1x1xf32>
}

// CHECK-LABEL: func.func @others
// CHECK-NOT: train.matmul
// CHECK-NOT: train.reshape
// CHECK: return
func.func @others(%g: tensor<2x14x14x512xf32>, %taps: tensor<512x512x3x3xf32>, %w: tensor<512x512x1x1xf32>, %grouped: tensor<512x256x1x1xf32>, %dg: tensor<2x14x14x512xf64>,
                  %dw: tensor<512x512x1x1xf64>, %planar: tensor<2x512x14x14xf32>) -> tensor<2x512x14x14xf32> attributes {train.entry = "others"} {
  %a = train.conv_input_grad %g, %taps {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<2x14x14x512xf32>, tensor<512x512x3x3xf32>) -> tensor<2x14x14x512xf32>
  %b = train.conv_input_grad %g, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>, channelsLast = true} : (tensor<2x14x14x512xf32>, tensor<512x512x1x1xf32>) -> tensor<2x12x12x512xf32>
  %c = train.conv_input_grad %g, %grouped {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, groups = 2, channelsLast = true} : (tensor<2x14x14x512xf32>, tensor<512x256x1x1xf32>) -> tensor<2x14x14x512xf32>
  %d = train.conv_input_grad %dg, %dw {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>, channelsLast = true} : (tensor<2x14x14x512xf64>, tensor<512x512x1x1xf64>) -> tensor<2x14x14x512xf64>
  %e = train.conv_input_grad %planar, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>} : (tensor<2x512x14x14xf32>, tensor<512x512x1x1xf32>) -> tensor<2x512x14x14xf32>
  return %e : tensor<2x512x14x14xf32>
}
