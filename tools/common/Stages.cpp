//===- Stages.cpp - the stages of a run as text and as JSON ----------------===//
#include "tools/common/Stages.h"

#include <fmt/format.h>

using namespace tcc;
using Json = nlohmann::ordered_json;

std::string tcc::report::stageText(const plan::StageSummary &stage) {
  return fmt::format("{}, updates {} to {}, lr × {:g}", stage.name, stage.first,
                     stage.last ? std::to_string(stage.last) : "the run's end", stage.lrScale);
}

Json tcc::report::stagesJson(const std::vector<plan::StageSummary> &stages) {
  Json list = Json::array();
  for (const plan::StageSummary &stage : stages)
    list.push_back({{"name", stage.name},
                    {"first", stage.first},
                    {"last", stage.last ? Json(stage.last) : Json(nullptr)},
                    {"lr_scale", stage.lrScale},
                    {"parameters", stage.parameters}});
  return list;
}
