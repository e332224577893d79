//===- RankSums.h - sums over the ranks of a job -----------------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_RANKSUMS_H
#define TCC_PASSES_TRAINING_RANKSUMS_H

#include "compiler/recipe/Recipe.h"
#include "passes/training/EntryBuilder.h"

namespace tcc::train {

/// Replaces one rank's loss numerator, loss denominator and gradients by their sums over all ranks, so that the update
/// is that of the global batch. A sharded gradient is replaced by this rank's shard of the sum (summed in a node first,
/// then across nodes); with `areShards` gradients are shards of sums in a node already. With average = "ranks",
/// numerator and gradients are divided by the rank's own denominator first, and the denominator counts the ranks. Each
/// sum is a collective of its own, right behind its operand, which distribute merges into buckets. `terms` alternates
/// numerators and denominators of several losses, which are summed likewise.
void sumOverRanks(EntryBuilder &entry, const ParallelSettings &parallel, mlir::Value &lossSum, mlir::Value &lossWeight,
                  llvm::MutableArrayRef<mlir::Value> gradients, llvm::MutableArrayRef<mlir::Value> terms,
                  bool areShards);

/// Replaces the gradients of a micro-batch by this rank's shards of their sums over the ranks that share the state,
/// each right behind its operand.
void scatterGradients(EntryBuilder &entry, const ParallelSettings &parallel,
                      llvm::MutableArrayRef<mlir::Value> gradients);

/// The sum of a number over all ranks.
Expr sumOverRanks(const Expr &number);

/// The type of a rank's part of a tensor: a vector of its shard, or the whole if nothing is sharded.
mlir::RankedTensorType heldType(const ParallelSettings &parallel, mlir::RankedTensorType whole);
/// ownShard: this rank's shard of a value that every rank has. gatherShards: the value of type `whole` from the shards
/// of all ranks. sumOfShards: the sum of a number over the ranks that together hold all shards.
Expr ownShard(const Expr &value, const ParallelSettings &parallel);
Expr gatherShards(const Expr &shard, mlir::RankedTensorType whole, const ParallelSettings &parallel);
Expr sumOfShards(const Expr &number, const ParallelSettings &parallel);

/// Broadcasts rank 0's next values of state that ranks compute differently (running statistics) to every rank.
llvm::SmallVector<mlir::Value> ofFirstRank(EntryBuilder &entry, llvm::ArrayRef<mlir::Value> values);

/// The variable that holds a window's sum at one level of the tree over a rank's virtual ranks.
std::string heldState(llvm::StringRef sum, int64_t level);

/// Builds the entries `hold_k` and `join_k` for each level k of the tree over the virtual ranks of one rank. `hold_k`
/// copies the variables `sums`, a virtual rank's sums over its window, and `join_k` adds the copies to them. The sum of
/// virtual ranks [a, b) is that of [a, m) plus that of [m, b), in the order in which all_reduce adds ranks.
void sumVirtualRanks(mlir::ModuleOp module, const ParallelSettings &parallel, llvm::ArrayRef<std::string> sums);

/// Replaces all sums over ranks in a body, including those of synchronised normalisations, by this rank's own values,
/// so that each rank computes its own batch. `values`, results of the body, are updated.
void dropRankSums(mlir::Block &body, llvm::MutableArrayRef<mlir::Value> values);

/// The key of random numbers that are the same on every rank: that of micro-batch 0.
mlir::Value sharedRandomKey(EntryBuilder &entry, mlir::Location loc);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_RANKSUMS_H
