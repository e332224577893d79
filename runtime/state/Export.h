//===- Export.h - trained weights as ONNX and safetensors ----------------===//
#ifndef TCC_RUNTIME_STATE_EXPORT_H
#define TCC_RUNTIME_STATE_EXPORT_H

#include "runtime/state/ModelValues.h"

namespace tcc::runtime {

/// Names of the tensors in a .safetensors file: Torch, those of the torch module, with its shapes, if they are known;
/// or Onnx, those of the graph's initializers.
enum class WeightNames { Torch, Onnx };

struct ExportOptions {
  std::string planFolder; ///< where the plan was compiled: external weights are relative to it
  bool keepMode = false;  ///< keep BatchNormalization and Dropout in training mode if the model has them so
  WeightNames names = WeightNames::Onnx;
  std::string root;     ///< Torch: the submodule whose state is written; empty: the whole module
  bool adapter = false; ///< only the trained adapter, in peft's format
  bool merge = false;   ///< require a run with an adapter, which is added to the base in any case
  /// Called with notes for the user about the names.
  std::function<void(const std::string &)> note = [](const std::string &) {};
  uint64_t externalAbove = 1'500'000'000; ///< bytes; protobuf messages are limited to 2 GiB
};

/// Writes `path` by its extension: `.safetensors` holds every initializer by name; `.onnx` is the imported model with
/// the trained values, which are in `<path>.data` if they exceed `externalAbove` bytes. Adapters are merged into the
/// matrices that they adapt. Errors: another extension, a plan without a model, a parameter that is no initializer of
/// the model, missing external weights.
Status exportWeights(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &path,
                           const ExportOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_EXPORT_H
