//===- SchedulingOrders.h - first orders for the search ---------*- C++ -*-===//
#ifndef TCC_PLANNING_SCHEDULINGORDERS_H
#define TCC_PLANNING_SCHEDULINGORDERS_H

#include "compiler/planning/SchedulingGraph.h"

namespace tcc::planning {

/// The same order, but an instruction that frees memory runs as soon as its operands are ready, if its step keeps
/// within `limit`. A few missing predecessors run with it if the live bytes still fall: such as the slice of the table
/// of learning rates that an update reads. No other step needs more than before, since fewer bytes are live.
Sequence freeEarly(const SchedulingGraph &graph, const Sequence &order, int64_t limit);

/// The same order, but an instruction that allocates memory runs as late as its readers allow.
Sequence allocateLate(const SchedulingGraph &graph, const Sequence &order);

/// An order in which the next instruction is the one that adds the fewest live bytes.
Sequence growLeast(const SchedulingGraph &graph);

/// The same from the end: the last instruction is the one with the fewest live bytes before it.
Sequence shrinkLeast(const SchedulingGraph &graph);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGORDERS_H
