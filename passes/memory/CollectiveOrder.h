//===- CollectiveOrder.h - when collectives begin, and until when ----------===//
#ifndef TCC_PASSES_MEMORY_COLLECTIVEORDER_H
#define TCC_PASSES_MEMORY_COLLECTIVEORDER_H

#include "passes/memory/EntryProgram.h"

namespace tcc::train {

/// Begins each collective where its last operand is complete, and moves what depends on it behind the beginning of the
/// next one: the rest of the backward pass, and then the update of one bucket, can run while ranks wait for each other.
/// The gradients of one bucket more are alive for it. A gathered parameter takes memory from the beginning on: it is
/// gathered `prefetch` gathers ahead of its first reader, 0: where the order of least memory has it. A sum of shards
/// across nodes begins with the next bucket.
planning::Sequence beginCollectivesEarly(const EntryProgram &entry, planning::Sequence order, int64_t prefetch);

/// Lets the sources of each reduce-scatter live, and it run (train.beside), until its result is read or the next one
/// begins, so that two buckets of gradients are alive at most. A source that another op takes over or reads later is
/// left alone. For an entry whose order stands.
void keepScatteredSources(mlir::func::FuncOp function);

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_COLLECTIVEORDER_H
