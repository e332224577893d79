//===- Collective.td - what the ranks of a job compute together ------------===//
#ifndef TCC_DIALECT_COLLECTIVE_TD
#define TCC_DIALECT_COLLECTIVE_TD
include "compiler/dialect/TrainDialect.td"

class Train_CollectiveOp<string mnemonic, string text, list<Trait> traits = []>
    : Train_Op<mnemonic, traits # [Pure, DeclareOpInterfaceMethods<Train_Collective>, DeclareOpInterfaceMethods<Train_Cost>]> {
  let summary = text;
  let hasVerifier = 1;
}
def Train_AllReduceOp : Train_CollectiveOp<"all_reduce", "each operand's sum over all ranks",
                                           [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    The operands are a bucket: one message moves them all. They have one element type. The sum of ranks [a, b) is that of
    [a, m) plus that of [m, b), m - a the largest power of two below b - a; 16-bit types are added in f32 and rounded once.
    Its derivative is the sum of the gradients of all ranks.

    ```mlir
    %sums:2 = train.all_reduce(%dw, %db) : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    ```
  }];
  let arguments = (ins Variadic<Train_FloatTensor>:$inputs);
  let results = (outs Variadic<Train_FloatTensor>:$results);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
}
def Train_RankBroadcastOp : Train_CollectiveOp<"rank_broadcast", "the operands of rank `root`, on every rank",
                                               [Train_NotDifferentiable]> {
  let arguments = (ins Variadic<Train_Tensor>:$inputs, DefaultValuedAttr<I64Attr, "0">:$root);
  let results = (outs Variadic<Train_Tensor>:$results);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
}

#endif // TCC_DIALECT_COLLECTIVE_TD
