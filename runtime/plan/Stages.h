//===- Stages.h - the stages of a run, for reports --------------*- C++ -*-===//
#ifndef TCC_RUNTIME_PLAN_STAGES_H
#define TCC_RUNTIME_PLAN_STAGES_H

#include "runtime/plan/plan.pb.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tcc::plan {

/// One stage of a run in stages.
struct StageSummary {
  std::string name;
  uint64_t first = 1, last = 0; ///< its updates, counted from 1; last 0: the run's end
  double lrScale = 1;
  std::vector<std::string> parameters; ///< number of parameters that the stage trains
};

/// In their order; empty for a plan without stages.
inline std::vector<StageSummary> stagesOf(const Plan &plan) {
  std::vector<StageSummary> list;
  uint64_t first = 1;
  int group = 0; // the groups of each stage follow those of the one before
  for (const Stage &stage : plan.training().stages()) {
    StageSummary summary{stage.name(), first, stage.until(), stage.lr_scale(), {}};
    for (const int end = group + stage.training().optimizer().groups_size(); group < end; ++group)
      if (group < plan.decisions().groups_size())
        for (const std::string &name : plan.decisions().groups(group).parameters())
          summary.parameters.push_back(name);
    list.push_back(std::move(summary));
    first = stage.until() + 1;
  }
  return list;
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_STAGES_H
