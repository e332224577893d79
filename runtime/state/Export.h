//===- Export.h - trained weights as ONNX and safetensors ----------------===//
#ifndef TCC_RUNTIME_STATE_EXPORT_H
#define TCC_RUNTIME_STATE_EXPORT_H

#include "runtime/state/ModelValues.h"

namespace tcc::runtime {

/// Which names the tensors of a .safetensors file have: those of the torch module, as far as they are known, with its
/// shapes; or those of the graph's initializers.
enum class WeightNames { Torch, Onnx };

struct ExportOptions {
  std::string planFolder; ///< where the plan was compiled: external weights are relative to it
  bool keepMode = false;  ///< leave BatchNormalization and Dropout in training mode where the model has them so
  WeightNames names = WeightNames::Onnx;
  std::string root;     ///< Torch: the submodule whose state is written; empty: the whole module
  bool adapter = false; ///< the trained adapter alone, as peft writes it (ExportAdapter.h)
  bool merge = false;   ///< asks for a run with an adapter, which is added to the base either way
  /// Told what a user should know about the names; nothing by default.
  std::function<void(const std::string &)> note = [](const std::string &) {};
  uint64_t externalAbove = 1'500'000'000; ///< bytes; protobuf messages end at 2 GiB
};

/// Writes `path`, by its extension: `.safetensors` holds every initializer by name; `.onnx` is the imported model with
/// the trained values in it; above `externalAbove` bytes they lie beside it in `<path>.data`. Adapters are merged into
/// the matrices that they adapt. Errors: another extension, a plan without a model inside, a parameter that is no
/// initializer of the model, external weights that are gone.
Status exportWeights(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &path,
                           const ExportOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_EXPORT_H
