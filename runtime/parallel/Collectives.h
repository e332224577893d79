//===- Collectives.h - collectives over links ----------------------------===//
//
// All-reduce is a reduce-scatter and an all-gather of blocks: rank r owns the r-th part of each block, receives that
// part from every other rank, adds them in the order of the ranks, and sends the sum to all. Each rank sends and
// receives 2·(n − 1)/n of the bytes. The sum of an element does not depend on the block it is in.
//
// Blocks are cut the same way on every rank: the size of a part follows from what all ranks agreed on when the
// communicator was made, never from one rank's own wires. Every message begins with its number, kind, size and how it
// is cut: ranks that call different collectives find out at once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_COLLECTIVES_H
#define TCC_RUNTIME_PARALLEL_COLLECTIVES_H

#include "runtime/parallel/Links.h"

#include <memory>

namespace tcc::runtime {

/// Every rank of the links calls it. `blockBytes`: of a rank's part of a block, or less where a rank's wire lends less;
/// 0: so that a rank's memory for sums, size() times that, is 2 MiB. Error: a rank has ended, or is of another version.
Expected<std::unique_ptr<Communicator>> makeCommunicator(std::unique_ptr<Links> links, uint64_t blockBytes = 0);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_COLLECTIVES_H
