//===- SchedulingOrders.h - first orders for the search ---------*- C++ -*-===//
#ifndef TCC_PLANNING_SCHEDULINGORDERS_H
#define TCC_PLANNING_SCHEDULINGORDERS_H

#include "compiler/planning/SchedulingGraph.h"

namespace tcc::planning {

/// The same order, but an instruction that frees memory runs as soon as its operands are there, if its step keeps within
/// `limit`. A few instructions that it still waits for run with it, if less lives afterwards all the same: an update
/// reads what was cut out of the table of rates. No other step takes more than before: more has run, less lives.
Sequence freeEarly(const SchedulingGraph &graph, const Sequence &order, int64_t limit);

/// The same order, but an instruction that takes memory runs as late as its readers allow.
Sequence allocateLate(const SchedulingGraph &graph, const Sequence &order);

/// Whatever adds least to what lives comes next.
Sequence growLeast(const SchedulingGraph &graph);

/// The same from the end: whatever leaves least alive before it comes last.
Sequence shrinkLeast(const SchedulingGraph &graph);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGORDERS_H
