//===- LoadsFirst.h - loads in flight together ------------------*- C++ -*-===//
#ifndef TCC_CODEGEN_LOADSFIRST_H
#define TCC_CODEGEN_LOADSFIRST_H

namespace llvm {
class Module;
}

namespace tcc::codegen {

/// Moves loads, and what their addresses need, ahead of the arithmetic in their block, but for what writes memory or is
/// a call. A card's thread runs its instructions in order and waits where a value is first used: loads between the
/// computations of other elements, which divisions cut into branches, would be in flight one at a time.
void moveLoadsFirst(llvm::Module &module);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_LOADSFIRST_H
