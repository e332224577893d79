//===- RematReverse.h - recomputation planned from the end ------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATREVERSE_H
#define TCC_PLANNING_REMATREVERSE_H

#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// A schedule within `budget` by a search from the end (RematReverse.cpp) that keeps `width` states of each level;
/// empty where none was found with `work` visits. With `keepOrder` the first executions follow the nodes' order;
/// without it they stand in any, and the answer is empty where a node may not be repeated at will. `visits` grows by
/// those that it took.
RematSchedule scheduleFromTheEnd(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work,
                                 uint64_t &visits);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATREVERSE_H
