//===- NullGroup.h - ranks that check and move nothing -------------------===//
//
// Any number of ranks in one process, for the device that computes nothing and for tests: collectives count bytes,
// leave memory alone and return at once, whichever rank calls first. The group keeps the sequence of calls; a rank that
// calls something else than another did at that place gets an error.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_NULLGROUP_H
#define TCC_RUNTIME_PARALLEL_NULLGROUP_H

#include "runtime/parallel/Communicator.h"

#include <memory>
#include <vector>

namespace tcc::runtime {

/// The communicators of a job of `size` ranks, by rank.
std::vector<std::unique_ptr<Communicator>> makeNullGroup(uint32_t size);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_NULLGROUP_H
