//===- CollectiveOrder.h - overlap collectives with computation ------------===//
#ifndef TCC_PASSES_MEMORY_COLLECTIVEORDER_H
#define TCC_PASSES_MEMORY_COLLECTIVEORDER_H

#include "passes/memory/EntryProblem.h"

namespace tcc::train {

/// Moves each collective up to its last operand, and its dependents behind the next collective: the rest of the
/// backward pass, and then the update of one bucket, can run while ranks wait for each other. This keeps the gradients
/// of one more bucket alive. A gathered parameter takes memory from the start of its gather: it is gathered `prefetch`
/// gathers ahead of its first reader (0: at its place in the order of least memory). A sum of shards across nodes
/// begins with the next bucket.
planning::Sequence beginCollectivesEarly(const EntryProblem &entry, planning::Sequence order, int64_t prefetch);

/// Extends each reduce-scatter (train.beside), and the live ranges of its sources, until its result is read or the next
/// one begins, so that at most two buckets of gradients are alive. A reduce-scatter whose source another op reads later
/// is left alone. Requires the final order of the entry.
void keepScatteredSources(mlir::func::FuncOp function);

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_COLLECTIVEORDER_H
