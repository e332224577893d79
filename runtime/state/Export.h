//===- Export.h - trained weights as ONNX and safetensors ----------------===//
#ifndef TCC_RUNTIME_STATE_EXPORT_H
#define TCC_RUNTIME_STATE_EXPORT_H

#include "runtime/plan/PlanFile.h"
#include "runtime/state/Safetensors.h"

#include <functional>

namespace tcc::runtime {

/// Values that differ from those that the plan starts with. By default there are none.
struct TrainedValues {
  std::function<bool(const plan::Variable &)> has = [](const plan::Variable &) { return false; };
  /// Hands over all bytes of a variable that `has` is true of.
  std::function<Status(const plan::Variable &, const ByteSink &)> stream = nullptr;
};

struct ExportOptions {
  std::string planFolder; ///< where the plan was compiled: external weights are relative to it
  bool keepMode = false;  ///< leave BatchNormalization and Dropout in training mode where the model has them so
  uint64_t externalAbove = 1'500'000'000; ///< bytes; protobuf messages end at 2 GiB
};

/// Writes `path`, by its extension: `.safetensors` holds every initializer by name; `.onnx` is the imported model with
/// the trained values in it; above `externalAbove` bytes they lie beside it in `<path>.data`. Errors: another
/// extension, a plan without a model inside, a parameter that is no initializer of the model, external weights that are
/// gone.
Status exportWeights(const plan::PlanReader &reader, const TrainedValues &trained, const std::string &path,
                           const ExportOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_EXPORT_H
