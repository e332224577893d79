//===- RematPrices.h - recomputation by prices of memory --------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATPRICES_H
#define TCC_PLANNING_REMATPRICES_H

#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// A schedule within `budget` whose first executions keep the nodes' order, found in some milliseconds for a thousand
/// nodes; empty where none was found. See RematPrices.cpp.
RematSchedule scheduleByPrices(const RematProblem &problem, Bytes budget);

/// Schedules by prices from the highest to none, whatever their peak: what is held, and what is made again.
std::vector<RematSchedule> sweepPrices(const RematProblem &problem);

/// Of some schedules the one of least peak, of several the cheapest; null where there are none.
const RematSchedule *leastOf(const RematProblem &problem, const std::vector<RematSchedule> &schedules);

/// `leastMemory` where the sweep is there already.
RematSolution leastMemory(const RematProblem &problem, const RematOptions &options,
                          const std::vector<RematSchedule> &sweep);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATPRICES_H
