//===- RematPrices.h - recomputation by prices of memory --------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATPRICES_H
#define TCC_PLANNING_REMATPRICES_H

#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// A schedule within `budget` whose first executions keep the nodes' order; empty if none was found. Takes some
/// milliseconds for a thousand nodes. See RematPrices.cpp.
RematSchedule scheduleByPrices(const RematProblem &problem, Bytes budget);

/// Schedules by prices from the highest to 0, whatever their peak.
std::vector<RematSchedule> sweepPrices(const RematProblem &problem);

/// The schedule of least peak, the cheapest of equal ones; null if there is none.
const RematSchedule *leastOf(const RematProblem &problem, const std::vector<RematSchedule> &schedules);

/// `leastMemory` with an existing sweep of prices.
RematSolution leastMemory(const RematProblem &problem, const RematOptions &options,
                          const std::vector<RematSchedule> &sweep);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATPRICES_H
