//===- RecipeStages.cpp - [[stage]]: staged unfreezing --------------------===//
#include "compiler/recipe/RecipeStores.h"
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc {
namespace recipe {
namespace {

constexpr size_t kMostStages = 8;

Expected<StageSettings> readStage(const toml::table &table) {
  StageSettings stage;
  for (const auto &[key, value] : table) {
    Status status;
    if (key == "until") {
      status = check(integer(1, int64_t(1) << 53), value);
      if (status.ok())
        stage.until = uint64_t(*value.value<int64_t>());
    } else if (key == "trainable") {
      status = readStrings(value, stage.trainable);
    } else if (key == "lr_scale") {
      status = readNumber(value, kNotNegative, stage.lrScale);
    } else {
      const std::string near =
          nearestName(std::string(key.str()), std::vector<std::string>{"until", "trainable", "lr_scale"});
      return error("unknown key {}; {}a stage has until, trainable and lr_scale", std::string(key.str()),
                   near.empty() ? "" : "the nearest is " + near + ", ");
    }
    if (!status.ok())
      return status.withContext(std::string(key.str()));
  }
  if (stage.trainable.empty())
    return error("it has no `trainable`: the globs of the parameters that it trains; [\"*\"] for all");
  return stage;
}

/// Refuses settings that cannot be combined with stages.
Status checkOthers(const Recipe &recipe) {
  const std::string at = recipe.at("stage");
  auto refuse = [&](const std::string &key, const std::string &way) {
    return error("{}[[stage]] does not go with {}; {}", recipe.at(key).empty() ? at : recipe.at(key), key, way);
  };
  if (!recipe.phases.empty())
    return refuse("phase", "a phase's `parameters` are the same in all steps: leave one of the two out");
  if (recipe.train.scalesLoss())
    return refuse(recipe.train.precision == "f16" ? "train.precision" : "train.loss_scale.kind",
                  "skipped updates would count differently for each parameter: use bf16 or f32");
  if (recipe.averagesOnDevice())
    return refuse("train.ema.on", "use \"host\"");
  if (recipe.parallel.sharded())
    return refuse("parallel.mode", "use \"ddp\", where each rank has all state");
  return Status();
}

} // namespace

Status finishStages(Recipe &recipe, const toml::table &merged) {
  const toml::node *node = merged.get("stage");
  if (!node)
    return Status();
  const toml::array *array = node->as_array();
  if (!array || array->empty() ||
      !std::all_of(array->begin(), array->end(), [](const toml::node &n) { return n.is_table(); }))
    return error("{}stage: expected tables, each begun by [[stage]]", recipe.at("stage"));
  if (array->size() > kMostStages)
    return error("{}stage: {} stages, at most {} are supported", recipe.at("stage"), array->size(), kMostStages);
  if (Status status = checkOthers(recipe); !status.ok())
    return status;
  for (const toml::node &element : *array) {
    const toml::source_position begin = element.source().begin;
    const std::string place = recipe.at("stage") == "--set: "
                                  ? std::string("--set")
                                  : fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column);
    auto stage = readStage(*element.as_table());
    const std::string which = fmt::format("{}: stage {}", place, recipe.stages.size() + 1);
    if (!stage)
      return stage.status().withContext(which);
    const bool last = recipe.stages.size() + 1 == array->size();
    if (last && stage->until != 0)
      return error(
          "{}: the last stage runs to the end of the run: leave `until` out, or add a stage for the steps after "
          "{}",
          which, stage->until);
    if (!last && stage->until == 0)
      return error("{}: it has no `until`: the step that is its last", which);
    if (!last && !recipe.stages.empty() && stage->until <= recipe.stages.back().until)
      return error("{}: until = {}, but the stage before it ends at step {}: let stages end one after another", which,
                   stage->until, recipe.stages.back().until);
    stage->where = place;
    recipe.stages.push_back(stage.take());
  }
  return Status();
}

} // namespace recipe

std::vector<Recipe> stageRecipes(const Recipe &recipe) {
  std::vector<Recipe> made;
  for (const StageSettings &stage : recipe.stages) {
    Recipe one = recipe;
    one.stages.clear();
    one.stage = unsigned(made.size());
    one.phase = fmt::format("stage{}", made.size() + 1);
    one.phaseParameters = stage.trainable;
    one.where["parameters"] = stage.where;
    made.push_back(std::move(one));
  }
  return made;
}

} // namespace tcc
