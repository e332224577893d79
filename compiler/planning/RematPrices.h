//===- RematPrices.h - recomputation by prices of memory --------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATPRICES_H
#define TCC_PLANNING_REMATPRICES_H

#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// A schedule within `budget` whose first executions keep the nodes' order, found in some milliseconds for a thousand
/// nodes; empty where none was found. See RematPrices.cpp.
RematSchedule scheduleByPrices(const RematProblem &problem, Bytes budget);

/// The schedule of least peak among those that high prices give.
RematSchedule leastByPrices(const RematProblem &problem);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATPRICES_H
