//===- State.td - variables and fused regions ------------------------------===//
#ifndef TCC_DIALECT_STATE_TD
#define TCC_DIALECT_STATE_TD
include "compiler/dialect/TrainDialect.td"

def Train_VariableOp : Train_Op<"variable", [Symbol]> {
  let summary = "state that outlives a step: a parameter, frozen weight, optimizer moment or accumulator";
  let description = [{
    `role` is one of parameter, frozen, constant, optimizer, accumulator, held (hold-stops). Its first value is `fill` in
    every element, else the model's initializer with its name (weights never enter the IR).
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, StrAttr:$role, OptionalAttr<F64Attr>:$fill,
                       OptionalAttr<ElementsAttr>:$value, DefaultValuedAttr<I64Attr, "-1">:$group);
  let assemblyFormat = "$sym_name `:` $type attr-dict";
}
def Train_ReadOp : Train_Op<"read", [MemoryEffects<[MemRead]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "read the current value of a variable";
  let arguments = (ins FlatSymbolRefAttr:$variable);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$variable attr-dict `:` type($result)";
}
def Train_WriteOp : Train_Op<"write", [MemoryEffects<[MemWrite]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "write the next value of a variable";
  let arguments = (ins FlatSymbolRefAttr:$variable, Train_Tensor:$value);
  let assemblyFormat = "$variable `,` $value attr-dict `:` type($value)";
}

def Train_RunScalarOp : Train_Op<"run_scalar", [Pure]> {
  let summary = "a number that the runtime gives before each call of the entry, by its name";
  let description = "build-update turns it into an element of the entry's run-time scalars.";
  let arguments = (ins StrAttr:$name);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
}

def Train_FillOp : Train_Op<"fill", []> {
  let summary = "fill a buffer of its own with `value`";
  let description = "materialize-buffers creates it for a constant that is stored in memory. Not pure: two fills are two buffers.";
  let arguments = (ins F64Attr:$value);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}
def Train_CopyOp : Train_Op<"copy", []> {
  let summary = "copy the elements to a buffer of their own";
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Train_StoreOp : Train_Op<"store", [SameOperandsAndResultType]> {
  let summary = "copy the elements to the memory of the host, while later instructions run";
  let description = "rematerialize creates it where the device's memory is scarce. Only train.fetch reads the result, unless it is new state.";
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Train_FetchOp : Train_Op<"fetch", [SameOperandsAndResultType]> {
  let summary = "copy the elements from the memory of the host, while later instructions run";
  let description = "Its operand is the result of train.store, or state that is kept on the host.";
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def Train_YieldOp : Train_Op<"yield", [Terminator, Pure, ParentOneOf<["FusedOp", "RowwiseOp"]>]> {
  let summary = "return values from a fused or rowwise region";
  let arguments = (ins Variadic<Train_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), "build($_builder, $_state, ::mlir::ValueRange());">];
}
def Train_FusedOp : Train_Op<"fused", [Pure, IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "ops that become one generated kernel";
  let description = [{
    Block arguments are the operands. The kernel computes the ops once per element of its iteration space; only the yielded
    values reach memory. A LoopKernel op is alone in its region, or between movements of its operands and results, which
    give the strides of its loops (fold-strides).
  }];
  let arguments = (ins Variadic<Train_Tensor>:$inputs);
  let results = (outs Variadic<Train_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results) $body";
  let extraClassDeclaration = [{
    /// Pairs (operand, result) where the result may overwrite the operand: same type, and every read of the operand
    /// happens at the element being written, just before.
    ::llvm::SmallVector<std::pair<unsigned, unsigned>> getInPlacePairs();
    /// The LoopKernel op inside, or null.
    ::tcc::train::LoopKernel getLoopKernel();
    /// The operand that result 0 must overwrite (a scatter into it), or -1.
    int getRequiredInPlaceOperand();
    /// Elements of the iteration space that each tile visits, in row-major order, fewer in the last one; nullopt if the
    /// kernel chooses its own tiles.
    std::optional<int64_t> getTileElements();
    /// Sets the size of tiles. False if a row that the kernel reduces would be cut.
    bool setTileElements(int64_t elements);
    /// True if each element of the operand is read only for the same element of the iteration space, or for reductions
    /// of its row: a tile reads only its own elements of the operand.
    bool readsByTiles(unsigned operand);
  }];
}
def Train_RowwiseOp : Train_Op<"rowwise", [Pure, IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">,
                                           DeclareOpInterfaceMethods<Train_LibraryCall>]> {
  let summary = "a product whose rows a kernel consumes as they are computed";
  let description = [{
    The region holds a matmul, views of its result, and the fused kernel that alone reads it, as its first operand. Operands
    are the matmul's two, then the kernel's others; results are the kernel's. A tile computes some rows of the product in
    its scratch, then the kernel's tile of those rows: the product is never stored whole. The bits are those of a separate
    matmul and kernel. fuse-updates creates it.
  }];
  let arguments = (ins Variadic<Train_Tensor>:$inputs);
  let results = (outs Variadic<Train_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $results) $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tcc::train::MatMulOp getProduct();
    ::tcc::train::FusedOp getKernel();
    /// Pairs (operand, result) where the result may overwrite the operand: those of the kernel.
    ::llvm::SmallVector<std::pair<unsigned, unsigned>> getInPlacePairs();
  }];
}
#endif // TCC_DIALECT_STATE_TD
