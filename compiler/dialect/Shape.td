//===- Shape.td - constants, views and data movement -----------------------===//
#ifndef TCC_DIALECT_SHAPE_TD
#define TCC_DIALECT_SHAPE_TD
include "compiler/dialect/TrainDialect.td"

def Train_ConstantOp : Train_PureOp<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>, Train_NotDifferentiable,
                                                 DeclareOpInterfaceMethods<Train_Fusible>]> {
  let summary = "a constant tensor; splats are inlined into kernels, others are stored in the plan";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
}
def Train_IotaOp : Train_PureOp<"iota", [Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Fusible>,
                                         DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]> {
  let summary = "the coordinate along `dim`";
  let arguments = (ins I64Attr:$dim);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "`dim` `=` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

class Train_Movement<string mnemonic, string text, list<Trait> traits = [], list<string> fusible = []>
    : Train_PureOp<mnemonic, traits # [DeclareOpInterfaceMethods<Train_Fusible, fusible>, DeclareOpInterfaceMethods<Train_Differentiable>,
                                       DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]> {
  let summary = text;
  let results = (outs Train_Tensor:$result);
  let extraClassDeclaration = Train_readsOneElement;
  let hasVerifier = 1;
}
def Train_ReshapeOp : Train_Movement<"reshape", "the same elements in row-major order under another shape", [Train_View]> {
  let arguments = (ins Train_Tensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Train_TransposeOp : Train_Movement<"transpose", "result dimension i is operand dimension permutation[i]", [], ["readsNeighbours"]> {
  let arguments = (ins Train_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Train_BroadcastOp : Train_Movement<"broadcast", "numpy's broadcasting: right-aligned, extent 1 repeats", [], ["readsNeighbours"]> {
  let arguments = (ins Train_Tensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Train_SliceOp : Train_Movement<"slice", "elements start + i·step per dimension; steps may be negative", [], ["readsNeighbours"]> {
  let arguments = (ins Train_Tensor:$input, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$steps);
  let assemblyFormat = "$input `starts` $starts `steps` $steps attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}
def Train_PadOp : Train_Movement<"pad", "`value` around (and, with steps above 1, between) the elements", [], ["readsNeighbours"]> {
  let description = [{
    Result coordinate low + i·step holds input element i; everything else is `value`. With steps above 1 it is the
    derivative of a strided slice. Lows and steps are not negative; step ≥ 1.
  }];
  let arguments = (ins Train_Tensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$steps, F64Attr:$value);
  let assemblyFormat = "$input `low` $low `steps` $steps `value` $value attr-dict `:` type($input) `->` type($result)";
}
def Train_ReverseOp : Train_Movement<"reverse", "mirrored along `dims`"> {
  let arguments = (ins Train_Tensor:$input, DenseI64ArrayAttr:$dims);
  let assemblyFormat = "$input $dims attr-dict `:` type($input) `->` type($result)";
}
def Train_ConcatOp : Train_Movement<"concat", "operands one after another along `dim`", [], ["getResultMap"]> {
  let arguments = (ins Variadic<Train_Tensor>:$inputs, I64Attr:$dim);
  let assemblyFormat = "`dim` `=` $dim $inputs attr-dict `:` functional-type($inputs, $result)";
}
#endif // TCC_DIALECT_SHAPE_TD
