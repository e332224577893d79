//===- Pipeline.h - from a model to a plan ----------------------*- C++ -*-===//
#ifndef TCC_COMPILER_PIPELINE_H
#define TCC_COMPILER_PIPELINE_H

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Status.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class MLIRContext;
class DialectRegistry;
} // namespace mlir

namespace tcc {

struct Recipe;
class Profile;
namespace cache {
class ContentStore;
}
namespace frontend {
struct ImportOptions;
}

/// What `tcc MODEL.onnx` was asked for.
struct CompileOptions {
  std::string modelPath;
  std::string recipePath;
  std::vector<std::string> settings;                  ///< --set KEY=VALUE
  std::map<std::string, int64_t> dims;                ///< --dim NAME=N
  std::map<std::string, std::vector<int64_t>> shapes; ///< --shape INPUT=32x3x32x32
  bool dequantize = false;                            ///< --dequantize: a quantised model as a floating-point one
  std::string target;    ///< cpu | cpu:v3 | cpu:v4 | cpu:v4-bf16 | cpu:amx; empty: this machine's
  std::string precision; ///< --precision: f32 | bf16 | auto; empty: the recipe's
  uint32_t maxWorkers = 0;                            ///< --threads; 0: 8
  std::vector<std::string> entries; ///< train, evaluate, predict, gradients; empty: the first three as far as they can be made
  bool embedWeights = false;
  bool libraryKernels = true; ///< false: generated kernels for everything
  bool forceF64 = false;      ///< gradcheck: all in f64, and stopped values in state that can be held (hold-stops)
  uint64_t budgetBytes = 0;   ///< --memory-budget: what state and arena may take together; 0: no limit
  bool ladder = false;        ///< solve the ladder of budgets although none is given
  bool bounds = false;        ///< lower bounds of what each rung costs
  unsigned variants = 1;      ///< --variants: points of the frontier in the plan
  bool sizesOnly = false;     ///< the plan gets its sizes and frontiers, but no code, buffers or weights
  std::string planFolder;     ///< where the plan will lie; external weights are relative to it
  std::string dumpFolder;     ///< --dump-phases-to
  Profile *profile = nullptr; ///< where the time goes; none: it is not asked for
  cache::ContentStore *store = nullptr; ///< where kernels' code is looked for and kept; none: all is compiled
};

/// What the importer is asked for; the command line comes before the recipe.
frontend::ImportOptions importOptions(const CompileOptions &options, const Recipe &recipe);

/// A compiled model: the message, and the payloads that go with it. `writer` refers to memory that `storage` keeps.
struct CompiledModel {
  plan::Plan plan;
  plan::PlanWriter writer;
  std::vector<std::string> warnings;
  std::vector<std::string> externalFiles; ///< of the model's data
  std::shared_ptr<void> storage;
};

/// Registers what the compiler uses.
void registerDialects(mlir::DialectRegistry &registry);

/// Compiles a model. Everything the user got wrong comes back as located errors.
plan::Expected<CompiledModel> compileModel(mlir::MLIRContext &context, const CompileOptions &options);

} // namespace tcc

#endif // TCC_COMPILER_PIPELINE_H
