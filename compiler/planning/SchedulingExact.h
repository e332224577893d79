//===- SchedulingExact.h - decide whether an order stays within a limit --*- C++ -*-===//
//
// Depth first over the closed sets of a segment, sets that failed remembered (by a 64-bit hash). An instruction that
// fits and does not raise what lives runs at once, and nothing else is tried there: live bytes are submodular in the
// set of what has run, so every order of the rest takes as little after it; and whatever may lie in an operand's place
// still may.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGEXACT_H
#define TCC_PLANNING_SCHEDULINGEXACT_H

#include "compiler/planning/SchedulingBound.h"

namespace tcc::planning {

enum class WithinLimit { Found, Impossible, Exhausted };

/// Looks for an order of the segment whose steps keep within `limit`, the rest of `order` as it is; `order` becomes
/// it where one is found. `valleys`: a set from which nothing was found also rules out the sets on the way to it where
/// as much or more lived. That is nearly always true and cuts much; Impossible is then no proof.
WithinLimit orderWithin(const SchedulingGraph &graph, Sequence &order, Segment segment, int64_t limit, bool valleys,
                        uint64_t mostWork, uint64_t &work);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGEXACT_H
