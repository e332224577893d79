//===- StageParameters.cpp - the stages of a recipe, for reports ----------===//
#include "compiler/driver/StageParameters.h"

#include "passes/Common.h"
#include "passes/training/ParameterGroups.h"

namespace tcc {

Expected<std::vector<plan::StageSummary>> stagesOf(const Recipe &recipe, const ImportedModel *model) {
  std::vector<plan::StageSummary> stages;
  uint64_t first = 1;
  for (const Recipe &part : stageRecipes(recipe)) {
    const StageSettings &settings = recipe.stages[stages.size()];
    plan::StageSummary stage{part.phase, first, settings.until, settings.lrScale, {}};
    if (model) {
      auto own = train::matchingParameters(train::trainableParameters(*model->module), settings.trainable,
                                           part.at("parameters"), "stage.trainable");
      if (!own)
        return own.status();
      for (train::VariableOp parameter : *own)
        stage.parameters.push_back(parameter.getSymName().str());
    }
    stages.push_back(std::move(stage));
    first = settings.until + 1;
  }
  return stages;
}

} // namespace tcc
