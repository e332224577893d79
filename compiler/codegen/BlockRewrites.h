//===- BlockRewrites.h - rewrites of basic blocks for cards -----*- C++ -*-===//
#ifndef TCC_CODEGEN_BLOCKREWRITES_H
#define TCC_CODEGEN_BLOCKREWRITES_H

namespace llvm {
class Module;
}

namespace tcc::codegen {

/// Computes the f32 divisions and square roots of a block without branches, to the same bits. A card has no instruction
/// for them: its assembler emits each with a branch to a routine for rare operands and moves no code across it, so the
/// latencies of divisions add up. Here a block runs the steps for usual operands of several divisions together; if an
/// operand was rare, one branch after them leads to a copy with the original divisions.
void divideTogether(llvm::Module &module);

/// Hoists loads and their address arithmetic above other arithmetic in their block, but not across writes or calls. A
/// card's thread runs in order and stalls at the first use of a value: loads between the computations of other
/// elements, which divisions split into branches, would be in flight one at a time.
void moveLoadsFirst(llvm::Module &module);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_BLOCKREWRITES_H
