// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v3},func.func(select-kernels))" | FileCheck %s
// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cpu:v3},func.func(select-kernels{library=false}))" | FileCheck %s --check-prefix=NONE

// The library takes products and convolutions of f32, says what scratch they need, and has nothing for f64. The pass
// changes only entries.

// CHECK-LABEL: func.func @gradients
func.func @gradients(%a: tensor<1x64x48xf32>, %w: tensor<1x48x32xf32>, %h: tensor<1x64x48xf64>, %x: tensor<2x3x8x8xf32>,
                     %k: tensor<4x3x3x3xf32>)
    -> (tensor<1x64x32xf32> {train.name = "c"}, tensor<1x64x64xf64> {train.name = "d"}, tensor<2x4x6x6xf32> {train.name = "e"}) attributes {train.entry = "gradients"} {
  // CHECK: train.matmul {{.*}}{train.call = #train.call<{{.*}}>, train.scratch = #train.scratch<slot = {{[0-9]+}}, shared = 0, tiles = {{[0-9]+}}, partial = 0>} : (tensor<1x64x48xf32>
  // NONE: train.matmul %{{[^ ]*}}, %{{[^ ]*}} : (tensor<1x64x48xf32>
  %c = train.matmul %a, %w : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  // CHECK: train.matmul %{{[^ ]*}}, %{{[^ ]*}} {transB = true} : (tensor<1x64x48xf64>
  %d = train.matmul %h, %h {transB = true} : (tensor<1x64x48xf64>, tensor<1x64x48xf64>) -> tensor<1x64x64xf64>
  // CHECK: train.conv {{.*}}train.call = #train.call<{{.*}}>
  // NONE-NOT: train.call = #train.call<{{.*}}>
  %e = train.conv %x, %k {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 0, 0>, padsEnd = array<i64: 0, 0>} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  return %c, %d, %e : tensor<1x64x32xf32>, tensor<1x64x64xf64>, tensor<2x4x6x6xf32>
}

// CHECK-LABEL: func.func @helper
// CHECK-NOT: train.call = #train.call<{{.*}}>
func.func @helper(%a: tensor<1x64x48xf32>, %w: tensor<1x48x32xf32>) -> tensor<1x64x32xf32> {
  %c = train.matmul %a, %w : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  return %c : tensor<1x64x32xf32>
}

// A product reads codes of 4 bits instead of the unpacked matrix, along K or along the columns; one whose matrix is on the
// left does not.
// CHECK-LABEL: func.func @four
// CHECK: train.unpack
// CHECK: train.matmul_unpack nf4 %arg0, %arg1, %arg2 block = 64 strides = [1, 48] {train.call
// CHECK: train.matmul_unpack nf4 %arg3, %arg1, %arg2 block = 64 strides = [48, 1] {train.call
// CHECK: train.matmul %
// NONE-LABEL: func.func @four
// NONE-NOT: train.matmul_unpack
func.func @four(%x: tensor<1x64x48xf32> {train.name = "x"}, %q: tensor<768xui8> {train.variable = "w"},
                %s: tensor<24xf32> {train.variable = "w/absmax"}, %g: tensor<1x64x32xf32> {train.name = "g"})
    -> (tensor<1x64x32xf32> {train.name = "y"}, tensor<1x64x48xf32> {train.name = "d"}, tensor<1x32x64xf32> {train.name = "l"}) attributes {train.entry = "gradients"} {
  %w = train.unpack nf4 %q, %s block = 64 shape = [48, 32] strides = [1, 48] : (tensor<768xui8>, tensor<24xf32>) -> tensor<48x32xf32>
  %v = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %y = train.matmul %x, %v : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  %d = train.matmul %g, %v {transB = true} : (tensor<1x64x32xf32>, tensor<1x48x32xf32>) -> tensor<1x64x48xf32>
  %l = train.matmul %v, %x {transA = true, transB = true} : (tensor<1x48x32xf32>, tensor<1x64x48xf32>) -> tensor<1x32x64xf32>
  return %y, %d, %l : tensor<1x64x32xf32>, tensor<1x64x48xf32>, tensor<1x32x64xf32>
}

// So does a product in bf16, forward and for the gradient of the input: its call rounds the values as the cast does. The
// result is bf16 or f32. A product in f32 of rounded values does not.
// CHECK-LABEL: func.func @rounded
// CHECK: train.matmul_unpack nf4 %arg0, %arg1, %arg2 block = 64 strides = [1, 48] {{.*}} -> tensor<1x64x32xbf16>
// CHECK: train.matmul_unpack nf4 %arg3, %arg1, %arg2 block = 64 strides = [48, 1] {{.*}} -> tensor<1x64x48xf32>
// CHECK: train.matmul %arg4
// NONE-LABEL: func.func @rounded
// NONE-NOT: train.matmul_unpack
func.func @rounded(%x: tensor<1x64x48xbf16> {train.name = "x"}, %q: tensor<768xui8> {train.variable = "w"},
                   %s: tensor<24xf32> {train.variable = "w/absmax"}, %g: tensor<1x64x32xbf16> {train.name = "g"}, %h: tensor<1x64x48xf32> {train.name = "h"})
    -> (tensor<1x64x32xbf16> {train.name = "y"}, tensor<1x64x48xf32> {train.name = "d"}, tensor<1x64x32xf32> {train.name = "z"}) attributes {train.entry = "gradients"} {
  %w = train.unpack nf4 %q, %s block = 64 shape = [32, 48] strides = [48, 1] : (tensor<768xui8>, tensor<24xf32>) -> tensor<32x48xf32>
  %n = train.cast %w : tensor<32x48xf32> -> tensor<32x48xbf16>
  %v = train.reshape %n : tensor<32x48xbf16> -> tensor<1x32x48xbf16>
  %y = train.matmul %x, %v {transB = true} : (tensor<1x64x48xbf16>, tensor<1x32x48xbf16>) -> tensor<1x64x32xbf16>
  %d = train.matmul %g, %v : (tensor<1x64x32xbf16>, tensor<1x32x48xbf16>) -> tensor<1x64x48xf32>
  %u = train.cast %v : tensor<1x32x48xbf16> -> tensor<1x32x48xf32>
  %z = train.matmul %h, %u {transB = true} : (tensor<1x64x48xf32>, tensor<1x32x48xf32>) -> tensor<1x64x32xf32>
  return %y, %d, %z : tensor<1x64x32xbf16>, tensor<1x64x48xf32>, tensor<1x64x32xf32>
}

// Blocks, scales and zero points of a file's matrix [n, k] follow its transposition.
// CHECK-LABEL: func.func @grid
// CHECK-NOT: train.unpack
// CHECK: train.matmul_unpack uint4 %arg0, %arg1, %arg2 minus %arg3 block = 0 strides = [1, 64] {blocks = array<i64: 32, 1>, scaleStrides = array<i64: 1, 2>, train.call{{.*}}, zeroStrides = array<i64: 1, 2>}
// CHECK: train.matmul_unpack uint4 %arg4, %arg1, %arg2 minus %arg3 block = 0 strides = [64, 1] {blocks = array<i64: 1, 32>, scaleStrides = array<i64: 2, 1>, train.call{{.*}}, zeroStrides = array<i64: 2, 1>}
func.func @grid(%x: tensor<1x64x48xf32> {train.name = "x"}, %q: tensor<1024xui8> {train.variable = "w"}, %s: tensor<64xf32> {train.variable = "s"},
                %z: tensor<32xui8> {train.variable = "z"}, %g: tensor<1x64x32xf32> {train.name = "g"})
    -> (tensor<1x64x32xf32> {train.name = "y"}, tensor<1x64x48xf32> {train.name = "d"}) attributes {train.entry = "gradients"} {
  %w = train.unpack uint4 %q, %s minus %z block = 0 shape = [32, 48] strides = [64, 1] {blocks = array<i64: 1, 32>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>} : (tensor<1024xui8>, tensor<64xf32>, tensor<32xui8>) -> tensor<32x48xf32>
  %v = train.reshape %w : tensor<32x48xf32> -> tensor<1x32x48xf32>
  %y = train.matmul %x, %v {transB = true} : (tensor<1x64x48xf32>, tensor<1x32x48xf32>) -> tensor<1x64x32xf32>
  %d = train.matmul %g, %v : (tensor<1x64x32xf32>, tensor<1x32x48xf32>) -> tensor<1x64x48xf32>
  return %y, %d : tensor<1x64x32xf32>, tensor<1x64x48xf32>
}

// A product in bf16 rounds the values of such a matrix, too.
// CHECK-LABEL: func.func @rounded_grid
// CHECK-NOT: train.unpack
// CHECK: train.matmul_unpack uint4 %arg0, %arg1, %arg2 minus %arg3 block = 0 strides = [1, 64] {blocks = array<i64: 32, 1>, {{.*}} -> tensor<1x64x32xbf16>
func.func @rounded_grid(%x: tensor<1x64x48xbf16> {train.name = "x"}, %q: tensor<1024xui8> {train.variable = "w"}, %s: tensor<64xf32> {train.variable = "s"},
                        %z: tensor<64xf32> {train.variable = "z"}) -> (tensor<1x64x32xbf16> {train.name = "y"}) attributes {train.entry = "gradients"} {
  %w = train.unpack uint4 %q, %s minus %z block = 0 shape = [32, 48] strides = [64, 1] {blocks = array<i64: 1, 32>, scaleStrides = array<i64: 2, 1>, zeroStrides = array<i64: 2, 1>} : (tensor<1024xui8>, tensor<64xf32>, tensor<64xf32>) -> tensor<32x48xf32>
  %n = train.cast %w : tensor<32x48xf32> -> tensor<32x48xbf16>
  %v = train.reshape %n : tensor<32x48xbf16> -> tensor<1x32x48xbf16>
  %y = train.matmul %x, %v {transB = true} : (tensor<1x64x48xbf16>, tensor<1x32x48xbf16>) -> tensor<1x64x32xbf16>
  return %y : tensor<1x64x32xbf16>
}

// Nested scales are read as they are; the call knows the map.
// CHECK-LABEL: func.func @nested
// CHECK-NOT: train.constant
// CHECK: train.matmul_unpack nf4 %arg0, %arg1, %arg2 nested %arg3 block = 64 strides = [1, 48] {train.call
// NONE-LABEL: func.func @nested
// NONE-NOT: train.matmul_unpack
func.func @nested(%x: tensor<1x64x48xf32> {train.name = "x"}, %q: tensor<768xui8> {train.variable = "w"}, %s: tensor<24xui8> {train.variable = "w/absmax"},
                  %n: tensor<2xf32> {train.variable = "w/nested_absmax"}) -> (tensor<1x64x32xf32> {train.name = "y"}) attributes {train.entry = "gradients"} {
  %m = train.constant dense<0.5> : tensor<256xf32>
  %w = train.unpack nf4 %q, %s nested %n by %m block = 64 shape = [48, 32] strides = [1, 48] : (tensor<768xui8>, tensor<24xui8>, tensor<2xf32>, tensor<256xf32>) -> tensor<48x32xf32>
  %v = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %y = train.matmul %x, %v : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  return %y : tensor<1x64x32xf32>
}

// A matrix of bytes times scales is read so, too: with a scale for each column, or for each index of K, and rounded to bf16. A
// scale for each element is none.
// CHECK-LABEL: func.func @bytes
// CHECK: train.matmul_unpack int8 %arg0, %arg1, %arg2 block = 0 strides = [32, 1] {blocks = array<i64: 48, 1>, scaleStrides = array<i64: 0, 1>, {{.*}} -> tensor<1x64x32xf32>
// CHECK: train.matmul_unpack int8 %arg3, %arg1, %arg2 block = 0 strides = [1, 32] {blocks = array<i64: 1, 48>, scaleStrides = array<i64: 1, 0>, {{.*}} -> tensor<1x64x48xbf16>
// CHECK: train.mul
// CHECK: train.matmul %arg0
// NONE-LABEL: func.func @bytes
// NONE-NOT: train.matmul_unpack
func.func @bytes(%x: tensor<1x64x48xf32> {train.name = "x"}, %q: tensor<48x32xi8> {train.variable = "w"}, %s: tensor<1x32xf32> {train.variable = "w/scale"},
                 %g: tensor<1x64x32xbf16> {train.name = "g"}, %t: tensor<48x32xf32> {train.variable = "t"})
    -> (tensor<1x64x32xf32> {train.name = "y"}, tensor<1x64x48xbf16> {train.name = "d"}, tensor<1x64x32xf32> {train.name = "z"}) attributes {train.entry = "gradients"} {
  %c = train.cast %q : tensor<48x32xi8> -> tensor<48x32xf32>
  %b = train.broadcast %s : tensor<1x32xf32> -> tensor<48x32xf32>
  %w = train.mul %c, %b : tensor<48x32xf32>
  %v = train.reshape %w : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %y = train.matmul %x, %v : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  %n = train.cast %v : tensor<1x48x32xf32> -> tensor<1x48x32xbf16>
  %d = train.matmul %g, %n {transB = true} : (tensor<1x64x32xbf16>, tensor<1x48x32xbf16>) -> tensor<1x64x48xbf16>
  %e = train.mul %c, %t : tensor<48x32xf32>
  %f = train.reshape %e : tensor<48x32xf32> -> tensor<1x48x32xf32>
  %z = train.matmul %x, %f : (tensor<1x64x48xf32>, tensor<1x48x32xf32>) -> tensor<1x64x32xf32>
  return %y, %d, %z : tensor<1x64x32xf32>, tensor<1x64x48xbf16>, tensor<1x64x32xf32>
}
