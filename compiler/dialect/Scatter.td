//===- Scatter.td - scatter and gather with an index for each element -----===//
#ifndef TCC_DIALECT_SCATTER_TD
#define TCC_DIALECT_SCATTER_TD
include "compiler/dialect/TrainDialect.td"

def Train_ScatterKind : I32EnumAttr<"ScatterKind", "combination of an update with the element at its index", [
    I32EnumAttrCase<"set", 0>, I32EnumAttrCase<"add", 1>, I32EnumAttrCase<"mul", 2>, I32EnumAttrCase<"max", 3>, I32EnumAttrCase<"min", 4>]> {
  let cppNamespace = "::tcc::train";
}
def Train_GatherElementsOp : Train_PureOp<"gather_elements", [DeclareOpInterfaceMethods<Train_Fusible>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "result[.., m, ..] = input[.., indices[.., m, ..], ..] along `axis`";
  let description = [{
    `input`, `indices` and result have the same rank. The result may be smaller than `input` in other dimensions;
    `indices` have its shape, or extent 1 in other dimensions to share an index. Negative indices count from the
    end; out-of-range ones are clamped.
  }];
  let arguments = (ins Train_Tensor:$input, Train_IntTensor:$indices, I64Attr:$axis);
  let results = (outs Train_Tensor:$result);
  let extraClassDeclaration = Train_readsOneElement;
  let assemblyFormat = "$input `,` $indices `axis` `=` $axis attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Train_ScatterOp : Train_PureOp<"scatter", [DeclareOpInterfaceMethods<Train_LoopKernel, ["getInPlaceOperand", "getGroupTileCount", "emitGroupTile"]>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "`init` with `updates` written at `indices` along `axis`, in order";
  let description = [{
    Shapes are those of gather_elements, with `init` as its input and `updates` as its result. The gradient of `set`
    goes to the last write of an element; that of `mul` is the product of the other factors, also if one is zero; that
    of `max` and `min` is shared equally by all that attain the extreme, the initial element among them, as
    PyTorch's scatter_reduce does.
  }];
  let arguments = (ins Train_ScatterKind:$kind, Train_Tensor:$init, Train_IntTensor:$indices, Train_Tensor:$updates, I64Attr:$axis);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$kind $init `,` $indices `,` $updates `axis` `=` $axis attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_SCATTER_TD
