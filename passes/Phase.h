//===- Phase.h - the phases of a compile ------------------------*- C++ -*-===//
//
// A phase is a sequence of passes after which the module has a stated form (compiler/driver/Pipeline.cpp). One table
// gives each its name, which --dump-phases-to, --timings and verify-phase use.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_PHASE_H
#define TCC_PASSES_PHASE_H

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace tcc {

/// The phases in order; a compile runs those that it needs.
enum class Phase {
  Import,         ///< no passes: the module that the frontend made
  Fold,
  AddAdapters,
  SplitPhases,    ///< up to MergeParts the module holds one module for each [[phase]], [[stage]] or shape
  AttachLoss,
  FuseAttention,
  Autocast,
  FindLoops,
  Differentiate,
  WidenProducts,
  BuildUpdate,
  MergeParts,
  Distribute,
  Decompose,
  Kernels,
  Order,
  Memory,
};

llvm::StringRef nameOf(Phase phase);
/// The phase of this name; nothing if there is none.
std::optional<Phase> findPhase(llvm::StringRef name);

} // namespace tcc

#endif // TCC_PASSES_PHASE_H
