// RUN: tcc-opt %s --pass-pipeline="builtin.module(func.func(mark-narrow))" | FileCheck %s

// The chain reads a product of 16 bits and a small bias, and is rounded.
// CHECK-LABEL: func.func @activation
// CHECK: train.gelu %{{.*}} {train.of_narrow}
func.func @activation(%p: tensor<8x64xbf16>, %bias: tensor<64xf32>) -> tensor<8x8x8xbf16> {
  %x = train.cast %p : tensor<8x64xbf16> -> tensor<8x64xf32>
  %b = train.broadcast %bias : tensor<64xf32> -> tensor<8x64xf32>
  %y = train.add %x, %b : tensor<8x64xf32>
  %z = train.gelu %y : tensor<8x64xf32>
  %v = train.reshape %z : tensor<8x64xf32> -> tensor<8x8x8xf32>
  %r = train.cast %v : tensor<8x8x8xf32> -> tensor<8x8x8xbf16>
  return %r : tensor<8x8x8xbf16>
}

// Its gradient is rounded, and summed for the bias.
// CHECK-LABEL: func.func @gradient
// CHECK: train.gelu_derivative %{{.*}} {tanh = true, train.of_narrow}
func.func @gradient(%p: tensor<8x64xbf16>, %g: tensor<8x64xbf16>) -> (tensor<8x64xbf16>, tensor<1x64xf32>) {
  %x = train.cast %p : tensor<8x64xbf16> -> tensor<8x64xf32>
  %h = train.cast %g : tensor<8x64xbf16> -> tensor<8x64xf32>
  %d = train.gelu_derivative %x {tanh = true} : tensor<8x64xf32>
  %m = train.mul %h, %d : tensor<8x64xf32>
  %s = train.reduce sum %m [0] : tensor<8x64xf32> -> tensor<1x64xf32>
  %r = train.cast %m : tensor<8x64xf32> -> tensor<8x64xbf16>
  return %r, %s : tensor<8x64xbf16>, tensor<1x64xf32>
}

// All ops of 16 bits are.
// CHECK-LABEL: func.func @half
// CHECK: train.tanh %{{.*}} {train.of_narrow}
func.func @half(%x: tensor<64xf16>) -> tensor<64xf16> {
  %y = train.tanh %x : tensor<64xf16>
  return %y : tensor<64xf16>
}

// A residual of f32 holds more digits than 16 bits; so does a result that is returned as f32, and one of f32 alone.
// CHECK-LABEL: func.func @wide
// CHECK-NOT: train.of_narrow
func.func @wide(%p: tensor<8x64xbf16>, %residual: tensor<8x64xf32>, %bias: tensor<64xf32>)
    -> (tensor<8x64xbf16>, tensor<8x64xf32>, tensor<8x64xbf16>, tensor<8x64xbf16>) {
  %x = train.cast %p : tensor<8x64xbf16> -> tensor<8x64xf32>
  %sum = train.add %x, %residual : tensor<8x64xf32>
  %a = train.sigmoid %sum : tensor<8x64xf32>
  %ra = train.cast %a : tensor<8x64xf32> -> tensor<8x64xbf16>
  %b = train.erf %x : tensor<8x64xf32>
  %rb = train.cast %b : tensor<8x64xf32> -> tensor<8x64xbf16>
  %wide = train.broadcast %bias : tensor<64xf32> -> tensor<8x64xf32>
  %c = train.softplus %wide : tensor<8x64xf32>
  %rc = train.cast %c : tensor<8x64xf32> -> tensor<8x64xbf16>
  %d = train.exp %x : tensor<8x64xf32>
  %e = train.add %d, %residual : tensor<8x64xf32>
  %re = train.cast %e : tensor<8x64xf32> -> tensor<8x64xbf16>
  return %ra, %b, %rc, %re : tensor<8x64xbf16>, tensor<8x64xf32>, tensor<8x64xbf16>, tensor<8x64xbf16>
}
