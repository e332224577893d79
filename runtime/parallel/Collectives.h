//===- Collectives.h - collectives over links ----------------------------===//
//
// All-reduce is a reduce-scatter and an all-gather of blocks: rank r owns the r-th part of each block, receives that
// part from every other rank, adds them in the order of the ranks, and sends the sum to all. Each rank sends and
// receives 2·(n − 1)/n of the bytes. The sum of an element does not depend on the block it is in.
//
// Every rank cuts blocks in the same way: all ranks agree on the size of a part when the communicator is made, whatever
// wires each has. Every message begins with a header (number, kind, size, cut), so ranks that call different
// collectives get an error at once.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_COLLECTIVES_H
#define TCC_RUNTIME_PARALLEL_COLLECTIVES_H

#include "runtime/parallel/Links.h"

#include <memory>

namespace tcc::runtime {

/// Every rank of the links calls it. `blockBytes`: size of a rank's part of a block, limited by what the wires of all
/// ranks lend; 0: chosen so that a rank's memory for sums, size() such parts, is 2 MiB. Error: a rank has ended, or has
/// another version.
Expected<std::unique_ptr<Communicator>> makeCommunicator(std::unique_ptr<Links> links, uint64_t blockBytes = 0);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_COLLECTIVES_H
