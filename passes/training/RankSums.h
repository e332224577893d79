//===- RankSums.h - what the ranks of a job sum for an update ----*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_RANKSUMS_H
#define TCC_PASSES_TRAINING_RANKSUMS_H

#include "compiler/recipe/Recipe.h"
#include "passes/training/EntryBuilder.h"

namespace tcc::train {

/// Replaces one rank's loss numerator, loss denominator and gradients by their sums over all ranks, so that what
/// follows is the update of the global batch. With average = "ranks", numerator and gradients are divided by the rank's
/// own denominator first, and the denominator counts the ranks. Each sum is an all_reduce of its own, right behind its
/// operand: distribute makes buckets of them.
void sumOverRanks(EntryBuilder &entry, const ParallelSettings &parallel, mlir::Value &lossSum, mlir::Value &lossWeight,
                  llvm::MutableArrayRef<mlir::Value> gradients);

/// Next values of state that ranks do not compute alike (running statistics): those of rank 0, on every rank.
llvm::SmallVector<mlir::Value> ofFirstRank(EntryBuilder &entry, llvm::ArrayRef<mlir::Value> values);

/// Where a sum over a window is put aside, at a level of the tree over a rank's virtual ranks.
std::string heldState(llvm::StringRef sum, int64_t level);

/// Builds the entries `hold_k` and `join_k`, for each level k of the tree over the virtual ranks of one rank: what is
/// put aside and added are the variables `sums`, which hold a virtual rank's sums over its window. The sum of virtual
/// ranks [a, b) is that of [a, m) plus that of [m, b), as all_reduce adds those of ranks.
void sumVirtualRanks(mlir::ModuleOp module, const ParallelSettings &parallel, llvm::ArrayRef<std::string> sums);

/// Lets a body compute one batch alone: its sums over ranks, those of synchronised normalisations too, are of this
/// rank. `values` are results of the body.
void dropRankSums(mlir::Block &body, llvm::MutableArrayRef<mlir::Value> values);

/// The key of random numbers that are the same on every rank: that of micro-batch 0.
mlir::Value sharedRandomKey(EntryBuilder &entry, mlir::Location loc);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_RANKSUMS_H
