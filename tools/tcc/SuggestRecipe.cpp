//===- SuggestRecipe.cpp - tcc MODEL --suggest-recipe R.toml --------------===//
#include "compiler/driver/CompileModel.h"
#include "compiler/recipe/Recipe.h"
#include "frontend/Suggest.h"
#include "support/AtomicFile.h"
#include "support/PlanNames.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"

#include "mlir/IR/MLIRContext.h"

namespace tcc::tools {

int suggestRecipe(const CompileOptions &options, const std::string &path, bool quiet) {
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
  Expected<std::string> text = frontend::suggestRecipe(context, options.modelPath, *import);
  if (!text)
    return printError(text.status());
  auto file = tcc::AtomicFile::create(path, OwnFile::Recipe);
  if (!file)
    return printError(file.status());
  Status status = file->write(sealRecipe(*text));
  if (status.ok())
    status = file->commit();
  if (!status.ok())
    return printError(status);
  // Compile with the suggestion to test it.
  CompileOptions trial = options;
  trial.recipePath = path;
  trial.entries = {entries::kTrain};
  mlir::MLIRContext other(registry);
  if (Expected<CompiledModel> compiled = compileModel(other, trial); !compiled)
    return printError(compiled.status().withContext(path + ": the model does not compile with it yet"));
  if (!quiet)
    printMessage("{}: the model compiles with it; check its comments, then: tcc {} --recipe {}\n", path,
                 options.modelPath, path);
  return kExitDone;
}

} // namespace tcc::tools
