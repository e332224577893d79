//===- SchedulingExact.h - exact search of an order -------------*- C++ -*-===//
//
// Depth-first search over the closed sets of a segment; failed sets are remembered by a 64-bit hash. An instruction
// that fits and does not raise the live bytes runs at once, and no alternative is tried: live bytes are submodular in
// the set of executed instructions, so every order of the rest needs no more memory after it; and results that may take
// over an operand's memory still may.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGEXACT_H
#define TCC_PLANNING_SCHEDULINGEXACT_H

#include "compiler/planning/SchedulingBound.h"

namespace tcc::planning {

enum class WithinLimit { Found, Impossible, Exhausted };

/// Looks for an order of the segment whose steps keep within `limit`, with the rest of `order` unchanged, and updates
/// `order` if it finds one. `valleys`: a failed set also rules out the sets on the way to it with as many or more live
/// bytes. That is nearly always right and prunes much, but Impossible is then no proof.
WithinLimit orderWithin(const SchedulingGraph &graph, Sequence &order, Segment segment, int64_t limit, bool valleys,
                        uint64_t mostWork, uint64_t &work);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGEXACT_H
