//===- Quantization.td - ops of quantisation-aware training ---------------===//
#ifndef TCC_DIALECT_QUANTIZATION_TD
#define TCC_DIALECT_QUANTIZATION_TD
include "compiler/dialect/Elementwise.td"
include "compiler/dialect/FourBits.td"

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
def Train_UnpackOp : Train_PureOp<"unpack", [AttrSizedOperandSegments, Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Fusible>,
                                             DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]> {
  let summary = "the f32 elements of a tensor that is stored in 4 bits, or its slices at `indices` along `axis`";
  let description = [{
    Element (i, j, …) of a tensor of `shape` has the code number n = i·strides[0] + j·strides[1] + …, half a byte of
    `bytes`; its value is that of the code times scales[n / block] (runtime/plan/FourBits.h). With `blocks`, as files have
    them, `block` is 0: the number of the scale is (i / blocks[0])·scaleStrides[0] + …, that of the zero point, a code or an
    f32, the same with zeroStrides, and the value is (number − zero point)·scale. Nested `scales` are codes c of the
    dynamic map, whose numbers are `map`: scale i is map[c]·nested[1 + i / 256] + nested[0]. With `indices` the result is
    the gather of the tensor: indices as in train.gather.
  }];
  let arguments = !con((ins StaticShapeTensorOf<[UI8]>:$bytes, StaticShapeTensorOf<[UI8, F32]>:$scales,
                            Optional<StaticShapeTensorOf<[UI8, F32]>>:$zeros, Optional<StaticShapeTensorOf<[F32]>>:$nested,
                            Optional<StaticShapeTensorOf<[F32]>>:$map, Optional<Train_IntTensor>:$indices,
                            Train_FourBitCode:$code, I64Attr:$block, DenseI64ArrayAttr:$shape, DenseI64ArrayAttr:$strides,
                            DefaultValuedAttr<I64Attr, "0">:$axis), Train_BlockGrid);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let extraClassDeclaration = Train_readsOneElement;
  let assemblyFormat = [{
    $code $bytes `,` $scales (`minus` $zeros^)? (`nested` $nested^ `by` $map)? (`at` $indices^)? `block` `=` $block `shape` `=` $shape
    `strides` `=` $strides attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_QUANTIZATION_TD
