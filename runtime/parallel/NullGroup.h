//===- NullGroup.h - ranks that check and move nothing -------------------===//
//
// Any number of ranks in one process, for the device that computes nothing and for tests: collectives count bytes,
// leave memory unchanged and return at once. The group records the sequence of calls; a rank whose call differs from
// that of another rank at the same position gets an error.
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
