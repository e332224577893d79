// RUN: tcc-opt %s --settle-casts | FileCheck %s

// A product that becomes a weight's gradient keeps its f32 sums, through views and sums of such products; a product that
// continues as a gradient of activations is rounded. A widening followed by a narrowing disappears.
// CHECK-LABEL: func @backward
// CHECK: %[[G:.*]] = train.matmul %arg0, %arg1 {transA = true} : {{.*}} -> tensor<1x4x2xf32>
// CHECK: %[[H:.*]] = train.matmul %arg0, %arg0 {transA = true} : {{.*}} -> tensor<1x4x4xf32>
// CHECK: %[[T:.*]] = train.transpose %[[G]] [0, 2, 1] : tensor<1x4x2xf32> -> tensor<1x2x4xf32>
// CHECK: %[[F:.*]] = train.reshape %[[T]] : tensor<1x2x4xf32> -> tensor<8xf32>
// CHECK: %[[D:.*]] = train.matmul %arg1, %arg1 {{.*}} -> tensor<1x8x8xbf16>
// CHECK: train.matmul %[[D]], %arg1
// CHECK: return %{{.*}}, %{{.*}}, %[[F]], %[[H]]
// CHECK-SAME: tensor<8xf32>, tensor<1x4x4xf32>
func.func @backward(%x: tensor<1x8x4xbf16>, %dy: tensor<1x8x2xbf16>)
    -> (tensor<f32>, tensor<1x8x2xbf16>, tensor<8xf32> {train.gradient_of = "w"}, tensor<1x4x4xf32> {train.gradient_of = "v"}) {
  %loss = train.constant dense<0.0> : tensor<f32>
  %g = train.matmul %x, %dy {transA = true} : (tensor<1x8x4xbf16>, tensor<1x8x2xbf16>) -> tensor<1x4x2xbf16>
  %h = train.matmul %x, %x {transA = true} : (tensor<1x8x4xbf16>, tensor<1x8x4xbf16>) -> tensor<1x4x4xbf16>
  %dv = train.cast %h : tensor<1x4x4xbf16> -> tensor<1x4x4xf32>
  %t = train.transpose %g [0, 2, 1] : tensor<1x4x2xbf16> -> tensor<1x2x4xbf16>
  %wide = train.cast %t : tensor<1x2x4xbf16> -> tensor<1x2x4xf32>
  %dw = train.reshape %wide : tensor<1x2x4xf32> -> tensor<8xf32>
  %d = train.matmul %dy, %dy {transB = true} : (tensor<1x8x2xbf16>, tensor<1x8x2xbf16>) -> tensor<1x8x8xbf16>
  %up = train.cast %d : tensor<1x8x8xbf16> -> tensor<1x8x8xf32>
  %down = train.cast %up : tensor<1x8x8xf32> -> tensor<1x8x8xbf16>
  %e = train.matmul %down, %dy : (tensor<1x8x8xbf16>, tensor<1x8x2xbf16>) -> tensor<1x8x2xbf16>
  return %loss, %e, %dw, %dv : tensor<f32>, tensor<1x8x2xbf16>, tensor<8xf32>, tensor<1x4x4xf32>
}
