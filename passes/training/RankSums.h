//===- RankSums.h - what the ranks of a job sum for an update ----*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_RANKSUMS_H
#define TCC_PASSES_TRAINING_RANKSUMS_H

#include "compiler/recipe/Recipe.h"
#include "passes/training/EntryBuilder.h"

namespace tcc::train {

/// Replaces one rank's loss numerator, loss denominator and gradients by their sums over all ranks, of gradients by the
/// own shard where they are sharded (in a node first, then across nodes), so that what follows is the update of the
/// global batch. With average = "ranks", numerator and gradients are divided by the rank's own denominator first, and
/// the denominator counts the ranks. Each sum is a collective of its own, right behind its operand: distribute makes
/// buckets of them. `terms` are the numerators and denominators of several losses, in turn, which are summed likewise.
void sumOverRanks(EntryBuilder &entry, const ParallelSettings &parallel, mlir::Value &lossSum, mlir::Value &lossWeight,
                  llvm::MutableArrayRef<mlir::Value> gradients, llvm::MutableArrayRef<mlir::Value> terms = {});

/// The sum of a number over all ranks.
Expr sumOverRanks(const Expr &number);

/// The type of a rank's part of a tensor: a vector of its shard, or all of it where nothing is sharded.
mlir::RankedTensorType heldType(const ParallelSettings &parallel, mlir::RankedTensorType whole);
/// The own shard of a value that every rank has; the value of `whole` that the ranks' shards are parts of; the sum of a
/// number over the ranks that hold all shards together.
Expr ownShard(const Expr &value, const ParallelSettings &parallel);
Expr gatherShards(const Expr &shard, mlir::RankedTensorType whole, const ParallelSettings &parallel);
Expr sumOfShards(const Expr &number, const ParallelSettings &parallel);

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
