//===- Inspect.cpp - tcc inspect: a model, and the recipe's stages --------===//
//
// What frontend/Inspect.cpp finds in the file, and what a recipe's stages would train of it, as text or JSON.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CompileModel.h"
#include "frontend/Import.h"
#include "support/Json.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/Stages.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/TextTable.h"
#include "tools/tcc/Commands.h"

#include "mlir/IR/MLIRContext.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fmt/format.h>

namespace tcc::tools {

using Json = nlohmann::ordered_json;
static constexpr size_t kNamesShown = 8;

static std::string stagesText(const std::vector<plan::StageSummary> &stages, const Recipe &recipe, bool known) {
  std::string text = stages.empty() ? "" : "stages of the recipe\n";
  for (size_t i = 0; i < stages.size(); ++i)
    text += fmt::format("  {}, trains {}\n", report::stageText(stages[i]),
                        known ? report::counted(stages[i].parameters.size(), "tensor") + ": " +
                                    report::listText(stages[i].parameters, kNamesShown, 4)
                              : report::listText(recipe.stages[i].trainable, kNamesShown, 4));
  return text;
}

/// Keys as in docs/guide/commands.md.
static std::string inspectionJson(const frontend::Inspection &found, const std::vector<plan::StageSummary> &stages,
                                  const std::string &path) {
  Json json = {{"version", 1},
               {"model", std::filesystem::path(path).filename().string()},
               {"initializers", Json::array()},
               {"missing", found.missing},
               {"warnings", found.warnings},
               {"refused", found.refusals},
               {"unsupported", found.unsupported},
               {"stages", report::stagesJson(stages)}};
  for (const frontend::InspectedInitializer &one : found.initializers)
    json["initializers"].push_back({{"name", one.name},
                                    {"type", one.type},
                                    {"dims", one.dims},
                                    {"bytes", one.bytes},
                                    {"list", one.list},
                                    {"reason", one.reason},
                                    {"folded_from", one.foldedFrom.empty() ? Json(nullptr) : Json(one.foldedFrom)}});
  return jsonText(json, 2) + "\n";
}

int inspectCommand(int argc, char **argv) {
  CLI::App app("Lists inputs, outputs, parameters, ops, and everything that is unsupported.", "tcc inspect");
  ModelArguments model;
  model.add(app);
  bool json = false;
  app.add_flag("--json", json,
               "one JSON object instead of text: the lists of initializers, warnings, what is unsupported");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  CompileOptions options;
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return printError(recipe.status());
  auto import = importOptions(options, *recipe);
  if (!import)
    return printError(import.status());
  Expected<frontend::Inspection> found = frontend::inspectModel(context, model.models.front(), *import);
  if (!found)
    return printError(found.status());
  Expected<std::vector<plan::StageSummary>> stages = stagesOf(*recipe, found->imported ? &*found->imported : nullptr);
  if (!stages)
    return printError(stages.status());
  printText(json ? inspectionJson(*found, *stages, model.models.front())
                 : found->text + stagesText(*stages, *recipe, found->imported.has_value()) + found->suggestion);
  return kExitDone;
}

} // namespace tcc::tools
