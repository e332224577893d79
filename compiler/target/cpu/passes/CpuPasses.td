//===- CpuPasses.td - passes of the CPU target, with IR before and after ---===//
#ifndef TCC_TARGET_CPU_PASSES_TD
#define TCC_TARGET_CPU_PASSES_TD

include "mlir/Pass/PassBase.td"

def CropTapsPass : Pass<"crop-taps", "::mlir::func::FuncOp"> {
  let summary = "Leave out taps that read nothing but padding";
  let description = [{
    If a kernel or its dilation is larger than the image, its outer taps read only padding, for all outputs. The pass
    removes them from channels-last convolutions and their gradients (docs/design/convolutions.md); their own gradient
    is 0.

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, dilations = array<i64: 36, 36>, padsBegin = array<i64: 36, 36>, ...}
        : (tensor<2x32x32x64xf32>, tensor<64x64x3x3xf32>) -> tensor<2x32x32x64xf32>
    // becomes
    %0 = train.slice %w starts [0, 0, 1, 1] steps [1, 1, 1, 1] : tensor<64x64x3x3xf32> -> tensor<64x64x1x1xf32>
    %y = train.conv %x, %0 {channelsLast = true, dilations = array<i64: 36, 36>, padsBegin = array<i64: 0, 0>, ...}
        : (tensor<2x32x32x64xf32>, tensor<64x64x1x1xf32>) -> tensor<2x32x32x64xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def SplitTapsPass : Pass<"split-taps", "::mlir::func::FuncOp"> {
  let summary = "Make a convolution whose taps reach few outputs a sum of products";
  let description = [{
    A channels-last convolution of stride 1 whose dilation is so large that most taps read mostly padding becomes one
    product for each tap, over the pixels that it reaches; its gradients likewise (docs/design/convolutions.md).
    Products of 16-bit operands are added in f32.

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, dilations = array<i64: 24>, padsBegin = array<i64: 24>, ...}
        : (tensor<2x32x64xf32>, tensor<64x64x3xf32>) -> tensor<2x32x64xf32>
    // becomes, with %w0 to %w2 the weights of each tap
    %0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<2x32x64xf32> -> tensor<2x8x64xf32>
    %1 = train.matmul %0, %w0 {transB = true} // as matrices
    %2 = train.pad %1 low [0, 24, 0] ... : tensor<2x8x64xf32> -> tensor<2x32x64xf32>
    %3 = train.matmul %x, %w1 {transB = true}
    ...
    %y = train.add %2, %3 ...
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def WinogradPass : Pass<"winograd", "::mlir::func::FuncOp"> {
  let summary = "Replace 3x3 convolutions by Winograd's method where that is cheaper";
  let description = [{
    Channels-last convolutions of stride 1 with 3x3 weights, and their gradients, become generated kernels that multiply
    transformed tiles (Lavin and Gray, CVPR 2016), if by their shapes the transforms cost less than the saved
    multiplications (docs/design/winograd.md). The gradient of a weight is computed in parts, which are then summed.

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, padsBegin = array<i64: 1, 1>, ...}
        : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    // becomes
    %y = train.winograd_conv %x, %w {padsBegin = array<i64: 1, 1>}
        : (tensor<8x56x56x64xf32>, tensor<64x64x3x3xf32>) -> tensor<8x56x56x64xf32>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

def PointwiseConvolutionsPass : Pass<"pointwise-convolutions", "::mlir::func::FuncOp"> {
  let summary = "Replace 1x1 convolutions by matrix products where those copy less";
  let description = [{
    Channels-last 1x1 convolutions without pads and groups, and their gradients, become products of matrices with one
    row for each pixel, if the product's kernels copy less than the convolution's (docs/design/layouts.md). A weight
    gradient that is a product may then go row by row to the kernel of its update (fuse-updates).

    ```mlir
    %y = train.conv %x, %w {channelsLast = true, strides = array<i64: 1, 1>, ...}
        : (tensor<8x7x7x512xbf16>, tensor<2048x512x1x1xbf16>) -> tensor<8x7x7x2048xbf16>
    // becomes
    %0 = train.reshape %x : tensor<8x7x7x512xbf16> -> tensor<1x392x512xbf16>
    %1 = train.reshape %w : tensor<2048x512x1x1xbf16> -> tensor<1x2048x512xbf16>
    %2 = train.matmul %0, %1 {transB = true} : (tensor<1x392x512xbf16>, tensor<1x2048x512xbf16>) -> tensor<1x392x2048xbf16>
    %y = train.reshape %2 : tensor<1x392x2048xbf16> -> tensor<8x7x7x2048xbf16>
    ```
  }];
  let dependentDialects = ["::tcc::train::TrainDialect"];
}

#endif // TCC_TARGET_CPU_PASSES_TD
