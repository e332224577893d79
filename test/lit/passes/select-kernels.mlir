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
