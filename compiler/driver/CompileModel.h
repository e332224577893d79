//===- CompileModel.h - from a model to a plan ------------------*- C++ -*-===//
#ifndef TCC_COMPILER_DRIVER_COMPILEMODEL_H
#define TCC_COMPILER_DRIVER_COMPILEMODEL_H

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Stages.h"
#include "support/Ptxas.h"
#include "support/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class MLIRContext;
class DialectRegistry;
} // namespace mlir

namespace tcc {

struct ImportedModel;
struct Recipe;
class Profile;
namespace cache {
class ContentStore;
}
namespace frontend {
struct ImportOptions;
struct LossValue;
}

/// The options of `tcc MODEL.onnx`.
struct CompileOptions {
  std::string modelPath;
  std::string recipePath;
  std::vector<std::string> settings;                  ///< --set KEY=VALUE
  std::map<std::string, std::vector<int64_t>> dims;   ///< --dim NAME=N, or with several values NAME=N,M
  /// Shapes of training in place of the recipe's; empty: the recipe's.
  std::vector<std::map<std::string, int64_t>> buckets;
  std::map<std::string, std::vector<int64_t>> shapes; ///< --shape INPUT=32x3x32x32
  bool dequantize = false;                            ///< --dequantize: a quantised model as a floating-point one
  std::string target;      ///< --target: a kind or a level of one (compiler/target); empty: this machine's
  std::string card;        ///< --device-memory: the card that it named, for reports
  std::string precision;   ///< --precision: f32 | bf16 | auto; empty: the recipe's
  uint32_t maxWorkers = 0; ///< --threads: number that memory is planned for; 0: 8
  /// Of train, evaluate, predict, gradients; empty: those of the first three that can be made.
  std::vector<std::string> entries;
  bool embedWeights = false;
  bool libraryKernels = true; ///< false: generated kernels for everything
  bool forceF64 = false;      ///< gradcheck: all in f64, and stopped values in state that can be held (hold-stops)
  uint64_t budgetBytes = 0;   ///< --memory-budget: limit on state and arena together; 0: none
  uint64_t hostBytes = 0;     ///< --host-memory: limit on what a card's plan keeps on the host; 0: none
  bool ladder = false;        ///< solve the ladder of budgets although none is given
  bool bounds = false;        ///< compute lower bounds of each rung's cost
  unsigned variants = 1;      ///< --variants: points of the frontier in the plan
  bool sizesOnly = false;     ///< the plan gets its sizes and frontiers, but no code, buffers or weights
  bool describeOnly = false;  ///< the plan gets neither code nor weights; their files may be missing
  std::string planFolder;     ///< folder of the plan; external weights are relative to it
  std::string dumpFolder;     ///< --dump-phases-to
  Profile *profile = nullptr; ///< measures the compile; null: no measurement
  std::optional<Ptxas> ptxas; ///< assembles PTX; none: the card's driver does
  cache::ContentStore *store = nullptr; ///< cache of kernels' code; null: compile everything
  bool storesPlan = true;               ///< the cache keeps the whole plan, too
};

/// The values of the graph that the recipe's losses read (`loss.of`), each with the recipe line that names it.
std::vector<frontend::LossValue> lossValues(const Recipe &recipe);

/// The importer's options, with these values of dimensions; the command line overrides the recipe.
frontend::ImportOptions importOptions(const CompileOptions &options, const Recipe &recipe,
                                      const std::map<std::string, int64_t> &dims);
/// The same for the first shape of training. Error: as trainingShapes.
Expected<frontend::ImportOptions> importOptions(const CompileOptions &options, const Recipe &recipe);

/// A compiled model: the message, and the payloads that go with it. `writer` refers to memory that `storage` keeps.
struct CompiledModel {
  plan::Plan plan;
  plan::PlanWriter writer;
  std::vector<std::string> warnings;
  std::vector<std::string> externalFiles; ///< of the model's data
  std::shared_ptr<void> storage;
};

/// Registers the dialects that the compiler uses.
void registerDialects(mlir::DialectRegistry &registry);

/// Compiles a model. Errors of the user come back as located messages.
Expected<CompiledModel> compileModel(mlir::MLIRContext &context, const CompileOptions &options);

/// The stages of the recipe's run, each with the parameters of the model that it trains; without a model, the lists of
/// parameters are empty. Error: a glob that matches no parameter, with its line in the recipe.
Expected<std::vector<plan::StageSummary>> stagesOf(const Recipe &recipe, const ImportedModel *model);

} // namespace tcc

#endif // TCC_COMPILER_DRIVER_COMPILEMODEL_H
