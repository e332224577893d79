//===- SchedulingOrders.h - orders to start from ----------------*- C++ -*-===//
#ifndef TCC_PLANNING_SCHEDULINGORDERS_H
#define TCC_PLANNING_SCHEDULINGORDERS_H

#include "compiler/planning/SchedulingGraph.h"

namespace tcc::planning {

/// The same order, but what frees memory runs as soon as its operands are there, where its step keeps within `limit`.
/// No other step takes more than before: more has run, less lives.
Sequence freeEarly(const SchedulingGraph &graph, const Sequence &order, int64_t limit);

/// The same order, but what takes memory runs as late as its readers let it.
Sequence allocateLate(const SchedulingGraph &graph, const Sequence &order);

/// Whatever adds least to what lives comes next.
Sequence growLeast(const SchedulingGraph &graph);

/// The same from the end: whatever leaves least alive before it comes last.
Sequence shrinkLeast(const SchedulingGraph &graph);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGORDERS_H
