//===- UpdateCalls.h - how often an update runs an entry -------*- C++ -*-===//
#ifndef TCC_RUNTIME_PLAN_UPDATECALLS_H
#define TCC_RUNTIME_PLAN_UPDATECALLS_H

#include "runtime/plan/VirtualRanks.h"
#include "support/PlanNames.h"

#include <string_view>

namespace tcc::plan {

/// True for an entry of a stage of the run that is not the last.
inline bool isOfEarlierStage(const Training &training, std::string_view entry) {
  const std::string_view base = entries::baseOf(entry);
  return !training.stages().empty() && base != entry &&
         entry.substr(base.size() + 1) != training.stages().rbegin()->name();
}

/// Calls of the entry in one update, on a rank with the most virtual ranks; if the run has stages, in an update of the
/// last stage. 0 for an entry that no update runs.
inline uint64_t callsPerUpdate(const Training &training, std::string_view entry) {
  return isOfEarlierStage(training, entry)
             ? 0
             : entries::runsPerUpdate(entry, training.accumulate(), mostVirtualRanks(training));
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_UPDATECALLS_H
