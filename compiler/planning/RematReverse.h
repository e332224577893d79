//===- RematReverse.h - recomputation planned from the end ------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATREVERSE_H
#define TCC_PLANNING_REMATREVERSE_H

#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// A schedule within `budget` by a search from the end (RematReverse.cpp) that keeps `width` states of each level;
/// empty if none was found with `work` visits. With `keepOrder` the first executions follow the nodes' order; without
/// it they may come in any order, and the answer is empty if some node's repetition is restricted. Adds its visits to
/// `visits`.
RematSchedule scheduleFromTheEnd(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work,
                                 uint64_t &visits);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATREVERSE_H
