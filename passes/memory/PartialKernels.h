//===- PartialKernels.h - kernels that compute a part of their results --*- C++ -*-===//
//
// A recomputed fused kernel only computes the results that are read later: it reads fewer operands, costs less, and may
// overwrite operands that the whole kernel cannot. Planning and EntryProgram::apply cut the region by the same
// function, so a plan's memory and cost are those of the ladder.
//
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_MEMORY_PARTIALKERNELS_H
#define TCC_PASSES_MEMORY_PARTIALKERNELS_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/planning/Program.h"

#include <memory>
#include <utility>
#include <vector>

namespace tcc::train {

/// An instruction's operands and results as values of a program; −1 for state.
struct InstructionValues {
  std::vector<int> operands, results;
  std::vector<bool> isMade; ///< of each operand: an instruction produces it; false for arguments of the entry
};

/// The pairs (operand, result) that may share memory, as values: transient, of equal size, and read nowhere else by the
/// instruction. `present`: the operands that it reads.
std::vector<std::pair<int, int>> inPlaceValues(mlir::Operation *op, llvm::ArrayRef<std::pair<unsigned, unsigned>> pairs,
                                               const InstructionValues &values, llvm::ArrayRef<unsigned> present);

/// The executions of a kernel that omit results; null if it has a single result or emits its own loops. The kernel has
/// to outlive it.
std::shared_ptr<const planning::PartialExecutions> partialExecutionsOf(FusedOp fused, InstructionValues values);

/// Removes from a fused region the unread results, the ops that only they need, and views that then have no reader.
///
void dropUnreadResults(FusedOp fused);

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_PARTIALKERNELS_H
