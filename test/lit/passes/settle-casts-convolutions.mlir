// RUN: tcc-opt %s --settle-casts | FileCheck %s
// RUN: tcc-opt %s --settle-casts=round-convolutions=true | FileCheck %s --check-prefix=ROUND

// A convolution's weight gradient keeps its f32 sums, unless the target's library has none: then it is rounded to the type of
// its operands. A product keeps its sums in both cases. A parameter added to a
// convolution's input has the input's gradient, which no convolution gives in f32.
// CHECK: train.conv_weight_grad %arg0, %arg1 {{.*}} -> tensor<2x3x3x3xf32>
// CHECK: train.matmul %arg2, %arg2 {{.*}} -> tensor<1x4x4xf32>
// CHECK: %[[I:.*]] = train.conv_input_grad %arg1, %arg3 {{.*}} -> tensor<4x3x8x8xbf16>
// CHECK: train.cast %[[I]] : tensor<4x3x8x8xbf16> -> tensor<4x3x8x8xf32>
// CHECK-NOT: train.cast
// ROUND: %[[G:.*]] = train.conv_weight_grad %arg0, %arg1 {{.*}} -> tensor<2x3x3x3xbf16>
// ROUND: %[[W:.*]] = train.cast %[[G]] : tensor<2x3x3x3xbf16> -> tensor<2x3x3x3xf32>
// ROUND: train.matmul %arg2, %arg2 {{.*}} -> tensor<1x4x4xf32>
// ROUND: train.conv_input_grad
// ROUND: train.cast
// ROUND-NOT: train.cast
// ROUND: return %{{.*}}, %[[W]]
func.func @backward(%x: tensor<4x3x8x8xbf16>, %dy: tensor<4x2x6x6xbf16>, %m: tensor<1x8x4xbf16>, %k: tensor<2x3x3x3xbf16>)
    -> (tensor<f32>, tensor<2x3x3x3xf32> {train.gradient_of = "w"}, tensor<1x4x4xf32> {train.gradient_of = "v"},
        tensor<4x3x8x8xf32> {train.gradient_of = "p"}) {
  %loss = train.constant dense<0.0> : tensor<f32>
  %g = train.conv_weight_grad %x, %dy {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>,
                                       padsEnd = array<i64: 0, 0>} : (tensor<4x3x8x8xbf16>, tensor<4x2x6x6xbf16>) -> tensor<2x3x3x3xbf16>
  %dw = train.cast %g : tensor<2x3x3x3xbf16> -> tensor<2x3x3x3xf32>
  %h = train.matmul %m, %m {transA = true} : (tensor<1x8x4xbf16>, tensor<1x8x4xbf16>) -> tensor<1x4x4xbf16>
  %dv = train.cast %h : tensor<1x4x4xbf16> -> tensor<1x4x4xf32>
  %i = train.conv_input_grad %dy, %k {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>,
                                      padsEnd = array<i64: 0, 0>} : (tensor<4x2x6x6xbf16>, tensor<2x3x3x3xbf16>) -> tensor<4x3x8x8xbf16>
  %dp = train.cast %i : tensor<4x3x8x8xbf16> -> tensor<4x3x8x8xf32>
  return %loss, %dw, %dv, %dp : tensor<f32>, tensor<2x3x3x3xf32>, tensor<1x4x4xf32>, tensor<4x3x8x8xf32>
}
