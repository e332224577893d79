// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v3},func.func(assign-layouts))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(assign-layouts))" | FileCheck %s --check-prefix=CARD

// Convolutions and the ops between them get channels last: one transpose of the input remains, the sum over space has the
// same result in both layouts, and a reduction that keeps the channels becomes two. A weight's gradient is no activation.

// CHECK-LABEL: func.func @step
// CHECK: %[[X:.*]] = train.transpose %arg0 [0, 2, 3, 1] : tensor<8x16x28x28xf32> -> tensor<8x28x28x16xf32>
// CHECK: %[[A:.*]] = train.conv %[[X]], %arg1 {{.*}}channelsLast = true{{.*}} -> tensor<8x28x28x64xf32>
// CHECK: %[[ROWS:.*]] = train.reduce sum %[[A]] [2] : tensor<8x28x28x64xf32> -> tensor<8x28x1x64xf32>
// CHECK: %[[SUM:.*]] = train.reduce sum %[[ROWS]] [0, 1] : tensor<8x28x1x64xf32> -> tensor<1x1x1x64xf32>
// CHECK: %[[MEAN:.*]] = train.broadcast %[[SUM]] : tensor<1x1x1x64xf32> -> tensor<8x28x28x64xf32>
// CHECK: %[[B:.*]] = train.sub %[[A]], %[[MEAN]] : tensor<8x28x28x64xf32>
// CHECK: train.conv %[[B]], %arg2 {{.*}}channelsLast = true
// CHECK: train.max_pool {{.*}}channelsLast = true
// CHECK: train.concat dim = 3
// CHECK: train.conv_weight_grad {{.*}}channelsLast = true{{.*}} -> tensor<64x64x3x3xf32>
// CHECK-NOT: train.transpose
// CHECK: return
func.func @step(%x: tensor<8x16x28x28xf32>, %v: tensor<64x16x3x3xf32>, %w: tensor<64x64x3x3xf32>)
    -> (tensor<8x128x1x1xf32>, tensor<64x64x3x3xf32>) attributes {train.entry = "step"} {
  %a = train.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x16x28x28xf32>, tensor<64x16x3x3xf32>) -> tensor<8x64x28x28xf32>
  %s = train.reduce sum %a [0, 2, 3] : tensor<8x64x28x28xf32> -> tensor<1x64x1x1xf32>
  %m = train.broadcast %s : tensor<1x64x1x1xf32> -> tensor<8x64x28x28xf32>
  %b = train.sub %a, %m : tensor<8x64x28x28xf32>
  %c = train.conv %b, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  %d = train.conv %c, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  %p, %i = train.max_pool %d {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>} : (tensor<8x64x28x28xf32>) -> (tensor<8x64x14x14xf32>, tensor<8x64x14x14xui8>)
  %e = train.concat dim = 1 %p, %p : (tensor<8x64x14x14xf32>, tensor<8x64x14x14xf32>) -> tensor<8x128x14x14xf32>
  %r = train.reduce sum %e [2, 3] : tensor<8x128x14x14xf32> -> tensor<8x128x1x1xf32>
  %g = train.conv_weight_grad %b, %c {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<8x64x28x28xf32>) -> tensor<64x64x3x3xf32>
  return %r, %g : tensor<8x128x1x1xf32>, tensor<64x64x3x3xf32>
}

// One convolution between tensors whose other readers want N, C, spatial: two transposes would cost more than they save.

// CHECK-LABEL: func.func @alone
// CHECK-NOT: train.transpose
// CHECK-NOT: channelsLast = true
// CHECK: return
func.func @alone(%x: tensor<8x64x28x28xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32> attributes {train.entry = "alone"} {
  %a = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  return %a : tensor<8x64x28x28xf32>
}

// The model itself changes between the layouts, as for a norm over its channels: these transposes disappear.

// CHECK-LABEL: func.func @mixed
// CHECK-NOT: train.transpose
// CHECK: train.conv {{.*}}channelsLast = true
// CHECK-NOT: train.transpose
// CHECK: train.mul
// CHECK-NOT: train.transpose
// CHECK: train.conv {{.*}}channelsLast = true
// CHECK-NOT: train.transpose
// CHECK: return
func.func @mixed(%x: tensor<8x28x28x64xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<8x28x28x64xf32> attributes {train.entry = "mixed"} {
  %t = train.transpose %x [0, 3, 1, 2] : tensor<8x28x28x64xf32> -> tensor<8x64x28x28xf32>
  %a = train.conv %t, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  %l = train.transpose %a [0, 2, 3, 1] : tensor<8x64x28x28xf32> -> tensor<8x28x28x64xf32>
  %n = train.mul %l, %l : tensor<8x28x28x64xf32>
  %f = train.transpose %n [0, 3, 1, 2] : tensor<8x28x28x64xf32> -> tensor<8x64x28x28xf32>
  %c = train.conv %f, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  %r = train.transpose %c [0, 2, 3, 1] : tensor<8x64x28x28xf32> -> tensor<8x28x28x64xf32>
  return %r : tensor<8x28x28x64xf32>
}

// A function that is no entry, and is differentiated later, stays as it is.

// CHECK-LABEL: func.func @forward
// CHECK-NOT: channelsLast = true
func.func @forward(%x: tensor<8x28x28x64xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<8x28x28x64xf32> {
  %t = train.transpose %x [0, 3, 1, 2] : tensor<8x28x28x64xf32> -> tensor<8x64x28x28xf32>
  %a = train.conv %t, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  %l = train.transpose %a [0, 2, 3, 1] : tensor<8x64x28x28xf32> -> tensor<8x28x28x64xf32>
  return %l : tensor<8x28x28x64xf32>
}

// split-reductions cuts reductions for a card, so the one over pixels stays whole there, and the mean takes its layout: no
// reshape keeps it out of the reduction's kernel.

// CHECK-LABEL: func.func @mean
// CHECK: train.reduce sum %{{.*}} [0, 1] : tensor<8x28x1x64xf32> -> tensor<1x1x1x64xf32>
// CHECK: train.mul %{{.*}} : tensor<1x64x1x1xf32>
// CARD-LABEL: func.func @mean
// CARD: %[[A:.*]] = train.conv {{.*}}channelsLast = true
// CARD: %[[W:.*]] = train.cast %[[A]]
// CARD: %[[S:.*]] = train.reduce sum %[[W]] [0, 1, 2] : tensor<8x28x28x64xf32> -> tensor<1x1x1x64xf32>
// CARD: train.mul %[[S]], %{{.*}} : tensor<1x1x1x64xf32>
// CARD: train.sub %[[W]]
func.func @mean(%x: tensor<8x28x28x64xbf16>, %v: tensor<64x64x3x3xbf16>, %k: tensor<64xf32>) -> tensor<8x28x28x64xbf16> attributes {train.entry = "mean"} {
  %t = train.transpose %x [0, 3, 1, 2] : tensor<8x28x28x64xbf16> -> tensor<8x64x28x28xbf16>
  %a = train.conv %t, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %w = train.cast %a : tensor<8x64x28x28xbf16> -> tensor<8x64x28x28xf32>
  %s = train.reduce sum %w [0, 2, 3] : tensor<8x64x28x28xf32> -> tensor<1x64x1x1xf32>
  %c = train.reshape %k : tensor<64xf32> -> tensor<1x64x1x1xf32>
  %m = train.mul %s, %c : tensor<1x64x1x1xf32>
  %b = train.broadcast %m : tensor<1x64x1x1xf32> -> tensor<8x64x28x28xf32>
  %d = train.sub %w, %b : tensor<8x64x28x28xf32>
  %e = train.cast %d : tensor<8x64x28x28xf32> -> tensor<8x64x28x28xbf16>
  %f = train.conv %e, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %l = train.transpose %f [0, 2, 3, 1] : tensor<8x64x28x28xbf16> -> tensor<8x28x28x64xbf16>
  return %l : tensor<8x28x28x64xbf16>
}
