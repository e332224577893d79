//===- PartialKernels.h - kernels that make some of their results -*- C++ -*-===//
//
// A fused kernel that runs again computes those of its results that are read then, and no more: it reads fewer
// operands, costs less, and may write over operands that the whole kernel cannot. What planning reckons with and what
// EntryProgram::apply makes are the same region, cut by the same function; so a plan takes and costs what the ladder
// said.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_PARTIALKERNELS_H
#define TCC_PASSES_PARTIALKERNELS_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/planning/Program.h"

#include <memory>
#include <utility>
#include <vector>

namespace tcc::train {

/// An instruction's operands and results as values of a program; −1 for state.
struct InstructionValues {
  std::vector<int> operands, results;
  std::vector<bool> isMade; ///< of each operand: by an instruction, not there at entry
};

/// The pairs (operand, result) that may lie in one place, as values: what is transient, of equal size, and read nowhere
/// else by the instruction. `present`: the operands that it reads.
std::vector<std::pair<int, int>> inPlaceValues(mlir::Operation *op, llvm::ArrayRef<std::pair<unsigned, unsigned>> pairs,
                                               const InstructionValues &values, llvm::ArrayRef<unsigned> present);

/// What executions of a kernel take that leave results out; null where it has nothing to leave out. The kernel has to
/// outlive it.
std::shared_ptr<const planning::PartialExecutions> partialExecutionsOf(FusedOp fused, InstructionValues values);

/// A fused region without the results that nobody reads, without what only they need, and without views that then have
/// no reader.
void dropUnreadResults(FusedOp fused);

} // namespace tcc::train

#endif // TCC_PASSES_PARTIALKERNELS_H
