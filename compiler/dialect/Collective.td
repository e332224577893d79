//===- Collective.td - collectives of the ranks of a job ------------------===//
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
    Its derivative is the sum of the gradients of all ranks. With `within` = K the sum is over the K consecutive ranks
    of a node; with `across` = K over the ranks with the same number in every node of K.

    ```mlir
    %sums:2 = train.all_reduce(%dw, %db) : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    ```
  }];
  let arguments = (ins Variadic<Train_FloatTensor>:$inputs, DefaultValuedAttr<I64Attr, "0">:$within,
                       DefaultValuedAttr<I64Attr, "0">:$across);
  let results = (outs Variadic<Train_FloatTensor>:$results);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
}
def Train_RankBroadcastOp : Train_CollectiveOp<"rank_broadcast", "the operands of rank `root`, on every rank",
                                               [Train_NotDifferentiable]> {
  let arguments = (ins Variadic<Train_Tensor>:$inputs, DefaultValuedAttr<I64Attr, "0">:$root);
  let results = (outs Variadic<Train_Tensor>:$results);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
}

// Shards. Of a tensor of E elements in row-major order, rank r of `ranks` owns elements [r·S, min((r + 1)·S, E)) with
// S = ceil(E / ranks), in a tensor of S elements that is padded with zeros. If the job has more ranks, each `ranks`
// consecutive ones form a node, and each node computes alone.
class Train_ShardOp<string mnemonic, string text, Type type, list<Trait> traits>
    : Train_CollectiveOp<mnemonic, text, traits> {
  let arguments = (ins Variadic<type>:$inputs, I64Attr:$ranks);
  let results = (outs Variadic<type>:$results);
  let assemblyFormat = "`(` $inputs `)` `ranks` `=` $ranks attr-dict `:` functional-type($inputs, $results)";
  let extraClassDeclaration = "bool isInPlace() { return false; }";
}
def Train_ReduceScatterOp : Train_ShardOp<"reduce_scatter", "the own shard of each operand's sum over all ranks",
                                          Train_FloatTensor, [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    The sum is that of all_reduce, bit for bit. Its derivative gathers the gradients of all shards.

    ```mlir
    %shard = train.reduce_scatter(%dw) ranks = 4 : (tensor<5x3xf32>) -> tensor<4xf32>
    ```
  }];
}
def Train_AllGatherOp : Train_ShardOp<"all_gather", "tensors from the shards of all ranks", Train_Tensor,
                                      [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let description = [{
    The derivative is the own shard of the sum of all ranks' gradients.

    ```mlir
    %w = train.all_gather(%shard) ranks = 4 : (tensor<4xf32>) -> tensor<5x3xf32>
    ```
  }];
}
def Train_OwnShardOp : Train_ShardOp<"own_shard", "the own shard of tensors that every rank has", Train_Tensor,
                                     [Train_NotDifferentiable]> {
  let description = "Moves nothing between ranks, but the elements that it takes depend on the rank's number.";
}

#endif // TCC_DIALECT_COLLECTIVE_TD
