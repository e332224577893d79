//===- Lowering.h - passes from entry functions to a planned program -*- C++ -*-===//
#ifndef TCC_PASSES_LOWERING_H
#define TCC_PASSES_LOWERING_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace tcc::train {

namespace names {
inline constexpr llvm::StringLiteral kCall = "train.call"; ///< #train.call: the target's call that computes it
inline constexpr llvm::StringLiteral kScratch = "train.scratch"; ///< #train.scratch: memory beside the operands
inline constexpr llvm::StringLiteral kRecompute = "train.recompute";    ///< unit: recomputes a value that was freed
inline constexpr llvm::StringLiteral kSlots =
    "train.slots"; ///< i64, on the module: tiles at a time that memory is planned for
inline constexpr llvm::StringLiteral kScratchOffset = "train.scratch_offset"; ///< i64: above all buffers live at the op
inline constexpr llvm::StringLiteral kOffsets = "train.offsets";        ///< array<i64>, per buffer of the op
inline constexpr llvm::StringLiteral kOffset = "train.offset";          ///< i64, on arguments
inline constexpr llvm::StringLiteral kBeside = "train.beside"; ///< i64: number of instructions that it may overlap
inline constexpr llvm::StringLiteral kTransientBytes = "train.transient_bytes"; ///< i64, on functions
inline constexpr llvm::StringLiteral kHostTransientBytes =
    "train.host_transient_bytes"; ///< i64, on functions: of the host's arena
// On functions, by rematerialize.
inline constexpr llvm::StringLiteral kVariant =
    "train.variant"; ///< i64: which point of the frontier; on the module: how many
inline constexpr llvm::StringLiteral kFrontier =
    "train.frontier"; ///< dictionaries: bytes, cost, lower_bound_cost, chosen, host_bytes, moved_state_bytes
inline constexpr llvm::StringLiteral kWithoutRecomputeBytes = "train.without_recompute_bytes"; ///< i64
inline constexpr llvm::StringLiteral kPackedOffsets = "train.packed_offsets"; ///< array<i64>: offset of each buffer
inline constexpr llvm::StringLiteral kHostPackedOffsets =
    "train.host_packed_offsets";                           ///< array<i64>: the same on the host
inline constexpr llvm::StringLiteral kCost = "train.cost"; ///< i64: the entry's time (planning::costOf)
inline constexpr llvm::StringLiteral kBoundCost = "train.lower_bound_cost";                    ///< i64
/// string, on the module: why calls that the target chose by default are refused. The phase that finds it sets it, and
/// the compile begins again where they were chosen
inline constexpr llvm::StringLiteral kCallsRefused = "train.calls_refused";
/// unit, on the module: it has calls that the target chose by default, and that may be refused
inline constexpr llvm::StringLiteral kCallsByDefault = "train.calls_by_default";
// On the module, by rematerialize.
/// f64: the time of an update within the budget, and without a budget
inline constexpr llvm::StringLiteral kUpdateCost = "train.update_cost", kLeastCost = "train.least_cost";
inline constexpr llvm::StringLiteral kBudgetBytes = "train.budget_bytes"; ///< i64
inline constexpr llvm::StringLiteral kOverBudget = "train.over_budget";   ///< i64: the smallest budget that can be met
inline constexpr llvm::StringLiteral kLowerBoundBytes = "train.lower_bound_bytes"; ///< i64, on functions
} // namespace names

/// Records on the region the scratch of its LoopKernel op, if it has one.
void describeScratch(FusedOp fused);
/// True if weigh-scratch may give the kernel a form with less scratch, with `slots` tiles in flight.
bool mayShrinkScratch(FusedOp fused, uint64_t slots);

#define GEN_PASS_DECL
#include "passes/LoweringPasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/LoweringPasses.h.inc"

} // namespace tcc::train

#endif // TCC_PASSES_LOWERING_H
