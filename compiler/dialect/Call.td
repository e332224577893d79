//===- Call.td - a target's decisions about an op --------------------------===//
#ifndef TCC_DIALECT_CALL_TD
#define TCC_DIALECT_CALL_TD

include "compiler/dialect/TrainDialect.td"
include "mlir/IR/AttrTypeBase.td"

def Train_CallAttr : AttrDef<Train_Dialect, "Call"> {
  let mnemonic = "call";
  let summary = "The call that a target chose for an op";
  let description = [{
    The complete descriptor of the plan's instruction, in protobuf's text format: implementation, tiles, layouts, bounds.
    The target decides it once (select-kernels, fuse-updates); emit copies it into the plan.

    ```mlir
    %c = train.matmul %a, %b {train.call = #train.call<"matmul { dtype: F32 m: 64 ... tile_m: 32 ... }">} : ...
    ```
  }];
  let parameters = (ins StringRefParameter<"plan::Instruction as text">:$descriptor);
  let assemblyFormat = "`<` $descriptor `>`";
}

def Train_ScratchAttr : AttrDef<Train_Dialect, "Scratch"> {
  let mnemonic = "scratch";
  let summary = "Memory that an instruction needs besides its operands";
  let description = [{
    Scratch is `shared` bytes for all tiles, then a slot of `slot` bytes for each tile in flight, at most `tiles` slots.
    `partial` is the size in bytes of the separate buffer of partial sums.

    ```mlir
    %c = train.matmul %a, %b {train.scratch = #train.scratch<slot = 640, shared = 0, tiles = 12, partial = 0>, ...} : ...
    ```
  }];
  let parameters = (ins "int64_t":$slotBytes, "int64_t":$sharedBytes, "int64_t":$tiles, "int64_t":$partialBytes);
  let assemblyFormat = [{
    `<` `slot` `=` $slotBytes `,` `shared` `=` $sharedBytes `,` `tiles` `=` $tiles `,` `partial` `=` $partialBytes `>`
  }];
  let extraClassDeclaration = [{
    /// Bytes of scratch if at most `slots` tiles are in flight.
    int64_t getBytes(int64_t slots) const { return getSharedBytes() + getSlotBytes() * std::min(slots, getTiles()); }
  }];
}

#endif // TCC_DIALECT_CALL_TD
