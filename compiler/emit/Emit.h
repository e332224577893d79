//===- Emit.h - a planned program as a plan ---------------------*- C++ -*-===//
#ifndef TCC_EMIT_EMIT_H
#define TCC_EMIT_EMIT_H

#include "compiler/model/ImportedModel.h"
#include "compiler/recipe/Recipe.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>

namespace tcc::codegen {
class KernelSet;
}
namespace tcc::target {
class Target;
}

namespace tcc::emit {

struct EmitOptions {
  const Recipe *recipe = nullptr;
  const ImportedModel *model = nullptr;
  const target::Target *target = nullptr;
  std::string card;        ///< name of the card, for the report
  uint32_t maxWorkers = 8;
  bool embedWeights = false; ///< weights of more than 64 MiB are stored in the plan, too
  bool sizesOnly = false;    ///< the plan gets its sizes and frontiers only
  bool describeOnly = false; ///< the plan gets no code and no first values of variables
  std::string planFolder;    ///< paths of external weights are relative to it
  /// Assembles PTX for an architecture; none: the plan holds PTX alone. `assembler` is its name and version.
  std::function<Expected<std::string>(const std::string &ptx, const std::string &architecture)> assemble;
  std::string assembler;
  codegen::KernelSet *kernels = nullptr; ///< the kernels whose compilation has begun; null: compile all kernels now
};

/// Weights up to this total are stored in the plan; those of larger models stay in their own files.
inline constexpr uint64_t kEmbeddedWeightsBytes = 64ull << 20;

/// Compiles the kernels and turns the entry functions of a module that went through plan-memory into a plan. Payloads
/// go to `writer`. Errors: weights that cannot be read, internal ones.
Expected<plan::Plan> emitPlan(mlir::ModuleOp module, plan::PlanWriter &writer, const EmitOptions &options);

} // namespace tcc::emit

#endif // TCC_EMIT_EMIT_H
