//===- VirtualRanks.h - which virtual ranks a rank has ---------*- C++ -*-===//
//
// With train.virtual_ranks = V the ranks of a job share V virtual ranks: rank r of N runs the V/N from r·V/N on, one
// after the other. The result of a virtual rank does not depend on N.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_VIRTUALRANKS_H
#define TCC_RUNTIME_PLAN_VIRTUALRANKS_H

#include "runtime/plan/plan.pb.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tcc::plan {

inline constexpr uint64_t kMostVirtualRanks = uint64_t(1) << 16;

/// The virtual ranks of one rank.
struct VirtualRanks {
  uint64_t first = 0, count = 1;
  uint64_t all = 1; ///< of the job
};

/// The virtual ranks of rank `rank` of `ranks`, which divides V (Session.h). Without virtual ranks each rank is one.
inline VirtualRanks virtualRanksOf(const Training &training, uint64_t rank, uint64_t ranks) {
  const uint64_t all = training.parallel().virtual_ranks();
  return all ? VirtualRanks{rank * (all / ranks), all / ranks, all} : VirtualRanks{rank, 1, ranks};
}

/// The most virtual ranks that one rank can have: those of a job of the fewest ranks that the plan allows.
inline uint64_t mostVirtualRanks(const Training &training) {
  const Parallel &parallel = training.parallel();
  return std::max<uint64_t>(parallel.virtual_ranks() / std::max<uint64_t>(parallel.least_ranks(), 1), 1);
}

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

#endif // TCC_RUNTIME_PLAN_VIRTUALRANKS_H
