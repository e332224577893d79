//===- Winograd.td - 3x3 convolutions by Winograd's method ----------------===//
#ifndef TCC_DIALECT_WINOGRAD_TD
#define TCC_DIALECT_WINOGRAD_TD
include "compiler/dialect/TrainDialect.td"

class Train_WinogradBase<string mnemonic, string text>
    : Train_PureOp<mnemonic, [Train_NotDifferentiable]> {
  let summary = text;
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_WinogradConvOp : Train_WinogradBase<"winograd_conv", "3x3 convolution of stride 1, channels-last, tile by tile of 4x4 outputs"> {
  let description = [{
    Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016): a tile of 6x6 inputs and the 3x3 weights
    are evaluated at 6x6 points, multiplied there, summed over the channels, and interpolated to 4x4 outputs: 36
    multiplications instead of 144. `input` [N, H, W, C], `weight` [K, C, 3, 3], result [N, H', W', K]; elements outside
    the input are 0. With `dilations`, outputs whose index is the same modulo the dilation are tiled by themselves.
    `transposed`: `weight` is [C, K, 3, 3] with its taps in reverse, as in the gradient of an input.
    Sums are f32 (f64 for f64) whatever the operands' type; the result is rounded once.

    `channelBlock`: channels whose transformed weights a tile of the kernel keeps at a time, a divisor of the channels.
    Absent, the shape decides (`WinogradShape::channelBlock`). Results do not depend on it.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$weight, DenseI64ArrayAttr:$padsBegin,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilations, DefaultValuedAttr<BoolAttr, "false">:$transposed,
                       ConfinedAttr<OptionalAttr<I64Attr>, [IntPositive]>:$channelBlock);
}
def Train_WinogradWeightGradOp : Train_WinogradBase<"winograd_weight_grad", "partial sums of the gradient of a 3x3 convolution's weights"> {
  let description = [{
    The transpose of winograd_conv in its weights. `input` [N, H, W, C], `grad` [N, H', W', K]; result [parts, K, C, 3, 3],
    in f32 (f64 for f64): the gradient is its sum over the parts, each of which covers some of the tiles. Their number follows
    from the shapes (`WinogradShape::gradParts`).
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$grad, DenseI64ArrayAttr:$padsBegin,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilations);
}
#endif // TCC_DIALECT_WINOGRAD_TD
