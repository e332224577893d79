//===- Emit.h - a planned program as a plan ---------------------*- C++ -*-===//
#ifndef TCC_EMIT_EMIT_H
#define TCC_EMIT_EMIT_H

#include "compiler/Recipe.h"
#include "frontend/Import.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/IR/BuiltinOps.h"

namespace tcc::codegen {
class KernelSet;
}

namespace tcc::emit {

struct EmitOptions {
  const Recipe *recipe = nullptr;
  const frontend::ImportedModel *model = nullptr;
  std::string target; ///< cpu:v3 | cpu:v4
  uint32_t maxWorkers = 8;
  bool embedWeights = false; ///< weights beyond 64 MiB go into the plan, too
  bool sizesOnly = false;    ///< sizes and frontiers alone
  std::string planFolder;    ///< what paths of external weights are relative to
  codegen::KernelSet *kernels = nullptr; ///< what was begun; none: all kernels are still to be compiled
};

/// Weights up to this many bytes in all lie inside the plan; larger models' stay in the files they came in.
inline constexpr uint64_t kEmbeddedWeightsBytes = 64ull << 20;

/// Compiles the kernels and turns the entry functions of a module that went through plan-memory into a plan. Payloads
/// go to `writer`. Errors: weights that cannot be read, internal ones.
plan::Expected<plan::Plan> emitPlan(mlir::ModuleOp module, plan::PlanWriter &writer, const EmitOptions &options);

} // namespace tcc::emit

#endif // TCC_EMIT_EMIT_H
