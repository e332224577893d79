//===- Commands.h - the commands of tcc -------------------------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_COMMANDS_H
#define TCC_TOOLS_TCC_COMMANDS_H

#include "compiler/driver/CompileModel.h"
#include "support/Status.h"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace tcc::tools {

// Each reads its own command line, writes results to standard output and messages to standard error, and returns the
// exit status.
int compileCommand(int argc, char **argv);
/// `tcc MODEL --suggest-recipe PATH`: writes the recipe, then compiles with it and says whether that works.
int suggestRecipe(const CompileOptions &options, const std::string &path, bool quiet);
int inspectCommand(int argc, char **argv);
int reportCommand(int argc, char **argv);
int gradcheckCommand(int argc, char **argv);
int opsCommand(int argc, char **argv);
int keysCommand(int argc, char **argv);
int frontierCommand(int argc, char **argv);
int predictScaleCommand(int argc, char **argv);

/// The options of every command that reads a model.
struct ModelArguments {
  std::vector<std::string> models; ///< one, unless `several` are taken
  std::string recipe;
  std::vector<std::string> settings, dims, shapes, fixed;
  int64_t batch = 0; ///< --batch; 0: not given
  bool dequantize = false;

  void add(CLI::App &app, bool several = false);
  /// Fills in recipe, settings, dims, shapes, dequantize, and the first model. Errors name the option.
  Status fill(CompileOptions &options) const;
};

/// `--host-memory`. Error: the target has no memory of its own. Needs the registered targets.
Status setHostMemory(CompileOptions &options, const std::string &text);

/// `--entry`: names with commas between.
Status readEntries(const std::string &text, CompileOptions &options);
/// Adds --precision.
void addPrecision(CLI::App &app, CompileOptions &options);

/// "error: MESSAGE" on standard error, for each line of the message; returns the exit status.
int printError(const Status &status);

/// Reads the command line of `app`, and adds --version to it. Returns an exit status if the command ends here.
std::optional<int> readCommandLine(CLI::App &app, int argc, char **argv);

} // namespace tcc::tools

namespace tcc::tools {

struct FittedBatch {
  std::string shape; ///< "seq = 128"; empty: the plan has one shape
  int64_t batch;
};

/// Sets the batch of `options` (its dims, buckets or shapes) to the largest with which a plan fits into
/// options.budgetBytes, with recomputation where that helps; in a plan of several shapes, that of each. Errors: the
/// model has no axis of samples, not even one sample fits (exit status 3), and those of compileModel.
Expected<std::vector<FittedBatch>> fitBatch(CompileOptions &options);

/// --batch: sets the batch of `options` likewise. Errors: the model cannot be read, or has no axis of samples.
Status setBatch(CompileOptions &options, int64_t batch);

} // namespace tcc::tools

#endif // TCC_TOOLS_TCC_COMMANDS_H
