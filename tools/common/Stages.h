//===- Stages.h - the stages of a run as text and as JSON -------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_STAGES_H
#define TCC_TOOLS_COMMON_STAGES_H

#include "runtime/plan/Stages.h"

#include <nlohmann/json.hpp>

#include <string>

namespace tcc::report {

/// "stage1, updates 1 to 20, lr × 0.3".
std::string stageText(const plan::StageSummary &stage);

/// A list of objects: name, first, last (null: the run's end), lr_scale, parameters.
nlohmann::ordered_json stagesJson(const std::vector<plan::StageSummary> &stages);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_STAGES_H
