// RUN: tcc-opt %s --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(assign-layouts,select-kernels))" | FileCheck %s
// RUN: sed 's/module {/module attributes {train.convolution_kernels} {/' %s | tcc-opt --pass-pipeline="builtin.module(set-target{name=cuda:sm_90},func.func(assign-layouts,select-kernels))" | FileCheck %s --check-prefix=KERNELS

// Convolutions of bf16, f16 and f32 are calls of cuDNN: on tensor cores with channels last, in f32 as they are. f64 stays a
// generated kernel, and so does everything if the recipe asks for it.
module {
// CHECK-LABEL: func @narrow
// CHECK: train.conv {{.*}}channelsLast = true{{.*}}dtype: BF16{{.*}}channels_last: true{{.*}}implementation: CUDNN{{.*}}library_scratch_bytes
// CHECK: train.conv {{.*}}channelsLast = true{{.*}}implementation: CUDNN
// KERNELS-NOT: CUDNN
func.func @narrow(%x: tensor<8x64x28x28xbf16>, %w: tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16> attributes {train.entry = "predict"} {
  %a = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %b = train.conv %a, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %c = train.conv %b, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %d = train.conv %c, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %e = train.conv %d, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  %f = train.conv %e, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x28x28xbf16>
  return %f : tensor<8x64x28x28xbf16>
}
// CHECK-LABEL: func @wide
// CHECK: train.conv %arg0, %arg1
// CHECK-NOT: channels_last
// CHECK-SAME: dtype: F32{{.*}}implementation: CUDNN
func.func @wide(%x: tensor<8x64x28x28xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32> attributes {train.entry = "predict"} {
  %a = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x28x28xf32>
  return %a : tensor<8x64x28x28xf32>
}
// CHECK-LABEL: func @double
// CHECK-NOT: CUDNN
func.func @double(%x: tensor<8x4x8x8xf64>, %w: tensor<4x4x3x3xf64>) -> tensor<8x4x8x8xf64> attributes {train.entry = "predict"} {
  %a = train.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, padsBegin = array<i64: 1, 1>, padsEnd = array<i64: 1, 1>} : (tensor<8x4x8x8xf64>, tensor<4x4x3x3xf64>) -> tensor<8x4x8x8xf64>
  return %a : tensor<8x4x8x8xf64>
}
}
