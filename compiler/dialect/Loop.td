//===- Loop.td - a body that is run once for each step ---------------------===//
#ifndef TCC_DIALECT_LOOP_TD
#define TCC_DIALECT_LOOP_TD

include "compiler/dialect/TrainDialect.td"

def Train_LoopOp : Train_PureOp<"loop", [IsolatedFromAbove, SingleBlock, AttrSizedOperandSegments,
                                         DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "a recurrence: its body is run once for each step, on the state that the step before left";
  let description = [{
    The body's arguments are the state, of which `initial` is the first; of each `sliced` operand [steps, …] the step's own
    part […]; and the `fixed` operands. `train.next` gives the next state and the step's parts. Results: the last state, then
    for each part [steps, …] those of all steps. With `reverse` step `steps` − 1 comes first and 0 last.

    The loop is one kernel: neither compile time nor the plan grows with the number of steps. The body has core ops alone once
    composites are decomposed, later the regions that fuse-kernels makes of them. find-loops creates it from unrolled steps.

    Its gradient is a loop in the other direction, whose body computes the step's values again from the state before it; a
    loop whose gradient is asked for is replaced by one that hands out that state as a part. Gradients of fixed operands are
    sums over the steps.

    ```mlir
    %last, %all = train.loop %h0, %x, %w steps 4 {operandSegmentSizes = array<i32: 1, 1, 1>}
        : (tensor<8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<4x8xf32>) {
    ^bb0(%h: tensor<8xf32>, %step: tensor<8xf32>, %factor: tensor<8xf32>):
      %kept = train.mul %h, %factor : tensor<8xf32>
      %next = train.add %kept, %step : tensor<8xf32>
      train.next (%next : tensor<8xf32>) parts (%next : tensor<8xf32>)
    }
    ```
  }];
  let arguments = (ins Variadic<Train_Tensor>:$initial, Variadic<Train_Tensor>:$sliced, Variadic<Train_Tensor>:$fixed,
                       I64Attr:$steps, DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let results = (outs Variadic<Train_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "operands `steps` $steps attr-dict `:` functional-type(operands, results) $body";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
  let extraClassDeclaration = [{
    ::mlir::Block &getBlock() { return getBody().front(); }
    ::tcc::train::NextOp getNext();
    unsigned getStateCount() { return unsigned(getInitial().size()); }
    ::mlir::ResultRange getLast() { return getResults().take_front(getStateCount()); }
    ::mlir::ResultRange getParts() { return getResults().drop_front(getStateCount()); }
    ::llvm::ArrayRef<::mlir::BlockArgument> getStateArguments() { return getBlock().getArguments().take_front(getStateCount()); }
    ::llvm::ArrayRef<::mlir::BlockArgument> getSlicedArguments() {
      return getBlock().getArguments().slice(getStateCount(), getSliced().size());
    }
    ::llvm::ArrayRef<::mlir::BlockArgument> getFixedArguments() { return getBlock().getArguments().take_back(getFixed().size()); }
  }];
}
def Train_NextOp : Train_Op<"next", [Terminator, Pure, AttrSizedOperandSegments, HasParent<"LoopOp">]> {
  let summary = "the next state of a loop, and the step's parts";
  let arguments = (ins Variadic<Train_Tensor>:$states, Variadic<Train_Tensor>:$parts);
  let assemblyFormat = "(`(` $states^ `:` type($states) `)`)? (`parts` `(` $parts^ `:` type($parts) `)`)? attr-dict";
}

#endif // TCC_DIALECT_LOOP_TD
