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

/// The schedule of least peak among those that high prices give.
RematSchedule leastByPrices(const RematProblem &problem);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATPRICES_H
