//===- Scan.td - scans and sorts along a dimension ------------------------===//
#ifndef TCC_DIALECT_SCAN_TD
#define TCC_DIALECT_SCAN_TD
include "compiler/dialect/TrainDialect.td"

class Train_Scan<string mnemonic, string text>
    : Train_PureOp<mnemonic, [SameOperandsAndResultType, DeclareOpInterfaceMethods<Train_LoopKernel>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = text;
  let results = (outs Train_Tensor:$result);
  let hasVerifier = 1;
}
def Train_CumSumOp : Train_Scan<"cumsum", "running sum along `dim`"> {
  let arguments = (ins Train_Tensor:$input, I64Attr:$dim, DefaultValuedAttr<BoolAttr, "false">:$exclusive, DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($result)";
}
def Train_CumProdOp : Train_Scan<"cumprod", "running product along `dim`"> {
  let description = "Gradient without division: product of the elements before times a linear scan of those after.";
  let arguments = (ins Train_Tensor:$input, I64Attr:$dim, DefaultValuedAttr<BoolAttr, "false">:$exclusive, DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($result)";
}
def Train_LinearScanOp : Train_Scan<"linear_scan", "h_i = factor_i · h_(i−1) + term_i along `dim`, from h = 0 on"> {
  let arguments = (ins Train_Tensor:$factor, Train_Tensor:$term, I64Attr:$dim, DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let assemblyFormat = "$factor `,` $term `dim` `=` $dim attr-dict `:` type($result)";
}
def Train_SortOp : Train_PureOp<"sort", [DeclareOpInterfaceMethods<Train_LoopKernel>, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "the first elements of `input` in sorted order along `dim`, and their indices";
  let description = [{
    The results' extent along `dim` is the number of elements: all of them, or the first k. Equal elements keep their
    order; NaN is larger than every number, as in PyTorch. Each row is a heap of the best k so far, in the results'
    own memory: n elements take n·log k steps and no scratch.
  }];
  let arguments = (ins Train_Tensor:$input, I64Attr:$dim, DefaultValuedAttr<BoolAttr, "false">:$descending);
  let results = (outs Train_Tensor:$values, StaticShapeTensorOf<[I64]>:$indices);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($input) `->` type($values) `,` type($indices)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_SCAN_TD
