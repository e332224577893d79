//===- ExactQuotients.h - divisions and roots without branches --*- C++ -*-===//
#ifndef TCC_CODEGEN_EXACTQUOTIENTS_H
#define TCC_CODEGEN_EXACTQUOTIENTS_H

namespace llvm {
class Module;
}

namespace tcc::codegen {

/// Computes the f32 divisions and square roots of a block without branches, to the same bits. A card has no instruction
/// for them: its assembler writes each as a branch to a routine for rare operands, over which it moves nothing, so that
/// a thread waits out one division after the other. Here a block takes the steps for usual operands, all elements
/// together; one branch behind them leads to a second copy, with the divisions as they were, if an operand was rare.
void divideTogether(llvm::Module &module);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_EXACTQUOTIENTS_H
