//===- Indexing.td - gather and scatter ------------------------------------===//
#ifndef TCC_DIALECT_INDEXING_TD
#define TCC_DIALECT_INDEXING_TD
include "compiler/dialect/TrainDialect.td"

def Train_GatherOp : Train_PureOp<"gather", [DeclareOpInterfaceMethods<Train_Fusible, ["readsNeighbours"]>, DeclareOpInterfaceMethods<Train_Differentiable>,
                                             DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]> {
  let summary = "slices of `input` along `axis`: shape input[:axis] ++ indices ++ input[axis+1:]";
  let description = [{
    ONNX Gather. Negative indices count from the end; out-of-range ones are clamped (the loader checks data). Canonicalisation
    makes the lookup in an unpacked tensor a train.unpack of the slices that it takes.
  }];
  let hasCanonicalizeMethod = 1;
  let arguments = (ins Train_Tensor:$input, Train_IntTensor:$indices, I64Attr:$axis);
  let results = (outs Train_Tensor:$result);
  let extraClassDeclaration = Train_readsOneElement;
  let assemblyFormat = "$input `,` $indices `axis` `=` $axis attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_ScatterAddOp : Train_PureOp<"scatter_add", [DeclareOpInterfaceMethods<Train_LoopKernel, ["getInPlaceOperand", "getGroupTileCount", "emitGroupTile"]>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "`init` with the slices of `updates` added at `indices` along `axis`, in order: the derivative of gather";
  let arguments = (ins Train_Tensor:$init, Train_IntTensor:$indices, Train_Tensor:$updates, I64Attr:$axis);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$init `,` $indices `,` $updates `axis` `=` $axis attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_PickOp : Train_PureOp<"pick", [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>,
                                         Train_HandsOutElements]> {
  let summary = "one element along `dim` for each row: result[.., 0, ..] = input[.., index[.., 0, ..], ..]";
  let description = "The target's score in a cross-entropy. An index out of range (such as ignore_index) picks 0.";
  let arguments = (ins Train_Tensor:$input, Train_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Train_Tensor:$result);
  let extraClassDeclaration = Train_readsOneElement;
  let assemblyFormat = "$input `,` $indices `dim` `=` $dim attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_INDEXING_TD
