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

/// The key of random numbers that are the same on every rank: that of micro-batch 0.
mlir::Value sharedRandomKey(EntryBuilder &entry, mlir::Location loc);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_RANKSUMS_H
