//===- LoadsFirst.h - hoist loads in a block --------------------*- C++ -*-===//
#ifndef TCC_CODEGEN_LOADSFIRST_H
#define TCC_CODEGEN_LOADSFIRST_H

namespace llvm {
class Module;
}

namespace tcc::codegen {

/// Hoists loads and their address arithmetic above other arithmetic in their block, but not across writes or calls. A
/// card's thread runs in order and stalls at the first use of a value: loads between the computations of other
/// elements, which divisions split into branches, would be in flight one at a time.
void moveLoadsFirst(llvm::Module &module);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_LOADSFIRST_H
