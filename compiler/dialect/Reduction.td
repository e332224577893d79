//===- Reduction.td - reductions, softmax and normalisations --------------===//
#ifndef TCC_DIALECT_REDUCTION_TD
#define TCC_DIALECT_REDUCTION_TD
include "compiler/dialect/TrainDialect.td"

def Train_ReduceKind : I32EnumAttr<"ReduceKind", "reduction", [
    I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>, I32EnumAttrCase<"prod", 3>]> {
  let cppNamespace = "::tcc::train";
}
def Train_ReduceOp : Train_PureOp<"reduce", [DeclareOpInterfaceMethods<Train_Reducible>, DeclareOpInterfaceMethods<Train_Fusible>,
                                             DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "reduction over `dims`, which keep extent 1";
  let description = [{
    The gradient of max and min is shared equally by the elements that attain it, as PyTorch's amax.
    emitElement emits a loop: it serves kernels that compute the whole reduction for each element.
  }];
  let arguments = (ins Train_ReduceKind:$kind, Train_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$kind $input $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}
def Train_ArgMaxOp : Train_PureOp<"argmax", [Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Fusible>]> {
  let summary = "index of the first (or last) largest (`smallest`: smallest) element along `dim`, which keeps extent 1";
  let arguments = (ins Train_Tensor:$input, I64Attr:$dim, DefaultValuedAttr<BoolAttr, "false">:$smallest, DefaultValuedAttr<BoolAttr, "false">:$last);
  let results = (outs StaticShapeTensorOf<[I64]>:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}
class Train_Composite<string mnemonic, string text, list<Trait> traits = []>
    : Train_PureOp<mnemonic, traits # [DeclareOpInterfaceMethods<Train_Differentiable>, DeclareOpInterfaceMethods<Train_Decomposable>]> {
  let summary = text;
}
def Train_SoftmaxOp : Train_Composite<"softmax", "e^(x−max) / Σ along `dim`", [SameOperandsAndResultType]> {
  let arguments = (ins Train_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}
def Train_LogSoftmaxOp : Train_Composite<"log_softmax", "x − logsumexp(x) along `dim`", [SameOperandsAndResultType]> {
  let arguments = (ins Train_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}
def Train_LogSumExpOp : Train_Composite<"logsumexp", "ln Σ e^x along `dim`, which keeps extent 1; computed around the maximum"> {
  let arguments = (ins Train_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}
def Train_LayerNormOp : Train_Composite<"layer_norm", "(x − mean)·rstd·scale + bias over the dimensions from `axis` on"> {
  let description = [{
    Ba et al., arXiv:1607.06450. Variance is biased. `mean` and `rstd` = 1/√(variance + epsilon) have extent 1 in the
    normalised dimensions. `scale` and `bias` have the shape of the normalised dimensions. f32 statistics for f16 and bf16.
  }];
  let arguments = (ins Train_FloatTensor:$input, Train_FloatTensor:$scale, Optional<Train_FloatTensor>:$bias, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Train_FloatTensor:$result, Train_FloatTensor:$mean, Train_FloatTensor:$rstd);
  let assemblyFormat = [{
    $input `,` $scale (`,` $bias^)? `axis` `=` $axis `epsilon` `=` $epsilon attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_REDUCTION_TD
