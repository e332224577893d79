//===- Contraction.td - matrix product, convolution, pooling ---------------===//
#ifndef TCC_DIALECT_CONTRACTION_TD
#define TCC_DIALECT_CONTRACTION_TD
include "compiler/dialect/FourBits.td"
include "compiler/dialect/TrainDialect.td"

class Train_LibraryOp<string mnemonic, string text, list<Trait> traits = []>
    : Train_PureOp<mnemonic, traits # [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>,
                                       DeclareOpInterfaceMethods<Train_LibraryCall>, Train_Autocast]> {
  let summary = text;
  let hasVerifier = 1;
}
def Train_MatMulOp : Train_PureOp<"matmul", [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>,
                                             DeclareOpInterfaceMethods<Train_LibraryCall, ["getInPlaceOperand"]>,
                                             DeclareOpInterfaceMethods<Train_Autocast, ["getAutocastOperands"]>]> {
  let summary = "batched product of [B, M, K] and [B, K, N], added to `addend` if there is one";
  let description = [{
    `transA`: lhs is [B, K, M]; `transB`: rhs is [B, N, K]. Always rank 3; the importer reshapes. The result of 16-bit operands
    may be f32: then no sum is rounded. With a bf16 `lhs`, `rhs` may be f32: the kernel rounds it to bf16 while reading.
    `addend` has the result's type, and the result overwrites it: each element is addend + product, the product summed
    first. emitElement generates the kernel for types without a library kernel, and the oracle of the library's.
  }];
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs, Optional<Train_Tensor>:$addend,
                       DefaultValuedAttr<BoolAttr, "false">:$transA, DefaultValuedAttr<BoolAttr, "false">:$transB);
  let results = (outs Train_Tensor:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$lhs, "::mlir::Value":$rhs, CArg<"bool", "false">:$transA,
                                 CArg<"bool", "false">:$transB),
                            [{ build($_builder, $_state, result, lhs, rhs, ::mlir::Value(), transA, transB); }]>];
  let assemblyFormat = "$lhs `,` $rhs (`add` $addend^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_MatMulEpilogueOp : Train_Op<"matmul_epilogue", [Pure, Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Cost>,
                                                          DeclareOpInterfaceMethods<Train_LibraryCall, ["buildKernels"]>]> {
  let summary = "a product, and what its call computes beside it";
  let description = [{
    Let P be the product. `bias` gives P + b, b the first of `operands`, a vector for all rows (in a batch, also one for
    each product); `gelu` gives gelu(P + b) in the tanh form, and with `keeps` gelu's input as a second result;
    `gelu_gradient` gives P times gelu's derivative at the first operand, a matrix of P's type; `none` gives P. `sums` adds
    a last result: with
    `gelu_gradient` the sum of the `result` over its rows, with `none` the sum of `lhs` or `rhs` over K. The result of
    16-bit factors may be f32. Everything else has the result's type: the call rounds once, when it stores.
    fuse-epilogues creates it if the target has a call for it. The target's library computes it: its bits are not those
    of gelu and reduce.

    Where a library has no algorithm for the call, kernels finish the plain product, with the bits of a program without
    epilogues: they add the second operand, the bias before it was rounded to P's type. Then the value that `keeps` gives
    is P itself, and `gelu_gradient` adds the bias to it again. Kernels sum a matrix of `sumShape`; its dimension
    `partsDim`, if there is one, is reduced last.
  }];
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs, Variadic<Train_Tensor>:$added, StrAttr:$kind,
                       UnitAttr:$keeps, DefaultValuedAttr<StrAttr, "\"\"">:$sums,
                       DefaultValuedAttr<BoolAttr, "false">:$transA, DefaultValuedAttr<BoolAttr, "false">:$transB,
                       OptionalAttr<DenseI64ArrayAttr>:$sumShape, OptionalAttr<I64Attr>:$partsDim);
  let results = (outs Variadic<Train_Tensor>:$results);
  let assemblyFormat = "$kind `(` operands `)` attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = [{
    /// The bias or matrix that the library reads; null for `none`.
    ::mlir::Value getEpilogueOperand() { return getAdded().empty() ? ::mlir::Value() : getAdded().front(); }
    /// The bias that kernels add; null if there is none.
    ::mlir::Value getKernelBias() {
      return getAdded().size() > 1 || (!getAdded().empty() && getKind() != "gelu_gradient") ? getAdded().back() : ::mlir::Value();
    }
  }];
  let hasVerifier = 1;
}
def Train_MatMulUnpackOp : Train_Op<"matmul_unpack", [Pure, AttrSizedOperandSegments, Train_NotDifferentiable,
                                                      DeclareOpInterfaceMethods<Train_Cost>, DeclareOpInterfaceMethods<Train_LibraryCall>]> {
  let summary = "product of [1, M, K] and a matrix that is stored in 4 or 8 bits";
  let description = [{
    `transA`: lhs is [1, K, M]. Element (k, n) of the matrix has the code number k·strides[0] + n·strides[1]; its value is
    that of train.unpack, whose `blocks` and strides are along k and n here, rounded to bf16 if lhs is bf16; of `int8` the
    codes are numbers, and bytes and scales have any shape. select-kernels
    creates it if the target has a call that unpacks as it copies the matrix into panels; the result has the bits of the
    product with the unpacked matrix.
  }];
  let arguments = !con((ins StaticShapeTensorOf<[F32, BF16]>:$lhs, StaticShapeTensorOf<[UI8, I8]>:$bytes,
                            StaticShapeTensorOf<[UI8, F32]>:$scales, Optional<StaticShapeTensorOf<[UI8, F32]>>:$zeros,
                            Optional<StaticShapeTensorOf<[F32]>>:$nested, Train_FourBitCode:$code, I64Attr:$block,
                            DenseI64ArrayAttr:$strides, DefaultValuedAttr<BoolAttr, "false">:$transA), Train_BlockGrid);
  let results = (outs StaticShapeTensorOf<[F32, BF16]>:$result);
  let assemblyFormat = [{
    $code $lhs `,` $bytes `,` $scales (`minus` $zeros^)? (`nested` $nested^)? `block` `=` $block `strides` `=` $strides attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}
defvar Train_ConvWindow = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$padsBegin,
                               DenseI64ArrayAttr:$padsEnd, DefaultValuedAttr<I64Attr, "1">:$groups,
                               DefaultValuedAttr<BoolAttr, "false">:$channelsLast);
class Train_ConvBase<string mnemonic, string text> : Train_LibraryOp<mnemonic, text> {
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Train_ConvOp : Train_ConvBase<"conv", "grouped cross-correlation, N C spatial (N spatial C if `channelsLast`), 1 to 3 spatial dimensions"> {
  let arguments = !con((ins Train_FloatTensor:$input, Train_FloatTensor:$weight), Train_ConvWindow);
}
def Train_ConvEpilogueOp : Train_Op<"conv_epilogue", [Pure, Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Cost>,
                                                      DeclareOpInterfaceMethods<Train_LibraryCall, ["buildKernels"]>]> {
  let summary = "conv and a bias for each feature";
  let description = [{
    Rounded once, when it is stored. fuse-epilogues creates it where the target has a call for it. Where the library has
    none, a kernel adds `exactBias`, the bias before it was rounded to the result's type.
  }];
  let arguments = !con((ins Train_FloatTensor:$input, Train_FloatTensor:$weight, Train_FloatTensor:$bias, Optional<Train_FloatTensor>:$exactBias), Train_ConvWindow);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_ConvInputGradOp : Train_ConvBase<"conv_input_grad", "derivative of conv with respect to its input"> {
  let arguments = !con((ins Train_FloatTensor:$grad, Train_FloatTensor:$weight), Train_ConvWindow);
}
def Train_ConvWeightGradOp : Train_ConvBase<"conv_weight_grad", "derivative of conv with respect to its weight"> {
  let arguments = !con((ins Train_FloatTensor:$input, Train_FloatTensor:$grad), Train_ConvWindow);
}

defvar Train_PoolWindow = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                               DenseI64ArrayAttr:$padsBegin, DefaultValuedAttr<BoolAttr, "false">:$channelsLast);
class Train_PoolBase<string mnemonic, string text, list<Trait> traits = []>
    : Train_PureOp<mnemonic, traits # [DeclareOpInterfaceMethods<Train_Fusible>]> {
  let summary = text;
  let hasVerifier = 1;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Train_Winners : StaticShapeTensorOf<[UI8, I32]>;
def Train_MaxPoolOp : Train_PoolBase<"max_pool", "largest element of each window, and its position in the window",
                                     [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    The first of equal elements wins, as in PyTorch. Padding never wins. A winner is the offset in its window, row-major
    over `kernel`: a byte (255: nothing but padding) if the window has at most 254 elements, else an i32 (-1). The
    backward pass keeps it, so it has the narrowest type that fits.
  }];
  let arguments = !con((ins Train_Tensor:$input), Train_PoolWindow);
  let results = (outs Train_Tensor:$result, Train_Winners:$winners);
  let extraClassDeclaration = [{
    /// Element type of the winners of windows of this size.
    static ::mlir::Type getWinnerType(::mlir::MLIRContext *context, ::llvm::ArrayRef<int64_t> kernel);
    /// i64: the flat spatial index in the input of each winner; -1 if there is none.
    ::mlir::Value buildIndices(::mlir::OpBuilder &builder);
  }];
}
def Train_MaxPoolGradOp : Train_PoolBase<"max_pool_grad", "scatter the gradient of each window to its largest element",
                                         [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let arguments = !con((ins Train_Tensor:$grad, Train_Winners:$winners), Train_PoolWindow);
  let results = (outs Train_Tensor:$result);
}
def Train_SumPoolOp : Train_PoolBase<"sum_pool", "sum of each window", [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let arguments = !con((ins Train_Tensor:$input), Train_PoolWindow);
  let results = (outs Train_Tensor:$result);
}
def Train_SumPoolGradOp : Train_PoolBase<"sum_pool_grad", "sum the gradients of all windows that hold an element",
                                         [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let arguments = !con((ins Train_Tensor:$grad), Train_PoolWindow);
  let results = (outs Train_Tensor:$result);
}
#endif // TCC_DIALECT_CONTRACTION_TD
