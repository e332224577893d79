//===- PlanNames.h - names that a plan's writer and reader agree on ------===//
//
// The compiler gives these names to entries, outputs and state; the runtime finds them by name.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_PLANNAMES_H
#define TCC_SUPPORT_PLANNAMES_H

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tcc {

/// Programs of a plan (Entry.name).
namespace entries {
inline constexpr char kStep[] = "step"; ///< an update without accumulation
inline constexpr char kAccumulateFirst[] = "accumulate_first", kAccumulateNext[] = "accumulate_next",
                      kUpdate[] = "update"; ///< an update with accumulation
/// With virtual ranks, prefixes of entries, followed by a level of the tree over one rank's virtual ranks: `hold_` puts
/// the window's sums aside at that level, `join_` adds them again.
inline constexpr std::string_view kHold = "hold_", kJoin = "join_";
inline constexpr char kEvaluate[] = "evaluate";
inline constexpr char kPredict[] = "predict", kPredictInference[] = "predict_inference";
inline constexpr char kGradients[] = "gradients";
/// What `tcc --entry` and the report call the programs of an update together.
inline constexpr char kTrain[] = "train";

/// In a plan of several shapes, the name of an entry's second shape ends with "@1", that of the third with "@2".
inline constexpr char kShapeMark = '@';

/// The name without its phase and shape: "step" of "step.critic@1".
constexpr std::string_view baseOf(std::string_view entry) {
  return entry.substr(0, std::min(entry.find('.'), entry.find(kShapeMark)));
}

/// The number of an entry's shape: 2 of "step.critic@2".
constexpr uint64_t shapeNumberOf(std::string_view entry) {
  uint64_t number = 0;
  for (size_t at = entry.find(kShapeMark); at != entry.npos && ++at < entry.size();)
    number = number * 10 + static_cast<uint64_t>(entry[at] - '0');
  return number;
}

/// The level of "hold_1" or "join_1.critic"; -1 for other entries.
constexpr int levelOf(std::string_view name) {
  const std::string_view entry = baseOf(name);
  if (!entry.starts_with(kHold) && !entry.starts_with(kJoin))
    return -1;
  int level = -1;
  for (char digit : entry.substr(kHold.size())) {
    if (digit < '0' || digit > '9' || level > 99)
      return -1;
    level = std::max(level, 0) * 10 + (digit - '0');
  }
  return level;
}

/// Runs in one update of `accumulate` micro-batches, on a rank that takes the windows of `virtualRanks` virtual ranks,
/// a power of two; 0 for an entry that no update runs.
constexpr uint64_t runsPerUpdate(std::string_view name, int64_t accumulate, uint64_t virtualRanks = 1) {
  const std::string_view entry = baseOf(name);
  if (entry == kAccumulateNext)
    return virtualRanks * static_cast<uint64_t>(std::max<int64_t>(accumulate, 1) - 1);
  if (const int level = levelOf(entry); level >= 0)
    return level < 63 ? virtualRanks >> (level + 1) : 0;
  return entry == kAccumulateFirst ? virtualRanks : entry == kStep || entry == kUpdate ? 1 : 0;
}
/// True for the programs of an update.
constexpr bool isOfUpdate(std::string_view entry) { return runsPerUpdate(entry, 2, uint64_t(1) << 62) != 0; }

/// What `tcc --entry` calls it: "train" of "step.critic@1", "predict" of "predict_inference".
constexpr std::string_view kindOf(std::string_view entry) {
  const std::string_view base = baseOf(entry);
  return isOfUpdate(base) ? kTrain : base == kPredictInference ? kPredict : base;
}

/// True for programs of an update that read state alone: a plan of several shapes has each once.
constexpr bool readsStateAlone(std::string_view entry) {
  return baseOf(entry) == kUpdate || levelOf(entry) >= 0;
}
} // namespace entries

/// Outputs of entries (Port.name) besides the graph's own.
namespace outputs {
inline constexpr char kLossSum[] = "loss_sum", kLossWeight[] = "loss_weight"; ///< the loss is their quotient
/// Prefixes of a loss's name, if there are several losses: its own numerator and denominator.
inline constexpr std::string_view kTermSum = "loss_sum/", kTermWeight = "loss_weight/";
constexpr bool isTerm(std::string_view output) {
  return output.starts_with(kTermSum) || output.starts_with(kTermWeight);
}
inline constexpr char kCorrect[] = "correct", kCounted[] = "counted";         ///< accuracy is their quotient
inline constexpr char kGradNorm[] = "grad_norm";
/// Of `evaluate`, for metrics that the host computes: the loss's prediction, classes last, and its target.
inline constexpr char kPrediction[] = "prediction", kPredictionTarget[] = "prediction_target";
inline constexpr std::string_view kAveragedPrefix = "average:"; ///< before the name of a graph output that is averaged
inline constexpr std::string_view kTrainingPrefix = "output:"; ///< before the name of a graph output of train.outputs
inline constexpr std::string_view kGradientPrefix = "gradient:"; ///< before the parameter's name
} // namespace outputs

/// Names of state that follow from the name of a parameter.
namespace states {
inline constexpr std::string_view kEmaSuffix = "/ema"; ///< the parameter's average
/// After the name of a moment that is stored in 8 bits: the largest magnitude of each block.
inline constexpr std::string_view kMagnitudesSuffix = "_absmax";
} // namespace states

/// Run-time scalars that passes and the runtime name (those of optimizers: passes/optimizers/).
namespace scalars {
inline constexpr char kLossScale[] = "loss_scale", kClipNorm[] = "clip_norm";
/// Scalars that depend on how many updates a parameter has had; those of groups have the prefix "gN.".
inline constexpr std::string_view kOfUpdates[] = {"bias_correction1", "bias_correction2_sqrt", "first_update",
                                                  "step_size", "decayed_lr"};
constexpr bool dependsOnUpdates(std::string_view scalar) {
  const std::string_view last = scalar.substr(scalar.find('.') + 1);
  return std::find(std::begin(kOfUpdates), std::end(kOfUpdates), last) != std::end(kOfUpdates);
}
} // namespace scalars

/// Roles of variables as words; plan::VariableRole has the same.
namespace roles {
inline constexpr char kParameter[] = "parameter", kFrozen[] = "frozen", kConstant[] = "constant",
                      kOptimizer[] = "optimizer", kAccumulator[] = "accumulator", kEma[] = "ema";
} // namespace roles

} // namespace tcc

#endif // TCC_SUPPORT_PLANNAMES_H
