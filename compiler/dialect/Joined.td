//===- Joined.td - kernels that share a launch -----------------------------===//
#ifndef TCC_DIALECT_JOINED_TD
#define TCC_DIALECT_JOINED_TD

include "compiler/dialect/TrainDialect.td"

def Train_JoinedOp : Train_Op<"joined", [Pure, IsolatedFromAbove, SingleBlock, NoTerminator]> {
  let summary = "independent kernels that share one launch";
  let description = [{
    The region holds fused kernels that do not read one another's results. The op's operands and results are the
    concatenated ones of the kernels. The kernels divide the blocks of one grid; each gives the same bits as
    alone. join-kernels creates it.
  }];
  let arguments = (ins Variadic<Train_Tensor>:$inputs);
  let results = (outs Variadic<Train_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results) $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::SmallVector<::tcc::train::FusedOp> getMembers();
    /// Pairs (operand, result) where the result may overwrite the operand: those of each kernel.
    ::llvm::SmallVector<std::pair<unsigned, unsigned>> getInPlacePairs();
  }];
}

#endif // TCC_DIALECT_JOINED_TD
