//===- Quantization.td - ops of quantisation-aware training ---------------===//
#ifndef TCC_DIALECT_QUANTIZATION_TD
#define TCC_DIALECT_QUANTIZATION_TD
include "compiler/dialect/Elementwise.td"

def Train_FakeQuantizeOp : Train_PointwiseOp<"fake_quantize",
    [SameOperandsAndResultType, DeclareOpInterfaceMethods<Train_Differentiable>, DeclareOpInterfaceMethods<Train_StraightThrough>]> {
  let summary = "(clamp(round(x/scale) + zeroPoint, low, high) − zeroPoint)·scale";
  let description = [{
    QuantizeLinear and DequantizeLinear of ONNX in one: ties go to even, NaN stays. The gradient is PyTorch's, of
    fake_quantize_per_tensor_affine: it passes where round(x/scale) + zeroPoint is within [low, high], and is 0 elsewhere.
    Scale and zero point get none.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$scale, Train_FloatTensor:$zeroPoint, I64Attr:$low, I64Attr:$high);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input `,` $scale `,` $zeroPoint `within` $low `to` $high attr-dict `:` type($result)";
}
def Train_ObservedRangeOp : Train_PureOp<"observed_range", [Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Decomposable>,
                                                            DeclareOpInterfaceMethods<Train_ModeDependent>]> {
  let summary = "update moving averages of minimum and maximum by those of x; in inference the identity";
  let description = [{
    PyTorch's MovingAverageMinMaxObserver: low + rate·(min(x) − low), high likewise. A train.write beside the op
    stores the averages in training.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$low, Train_FloatTensor:$high, F64Attr:$rate);
  let results = (outs Train_FloatTensor:$nextLow, Train_FloatTensor:$nextHigh);
  let assemblyFormat = "$input `,` $low `,` $high `rate` `=` $rate attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_QUANTIZATION_TD
