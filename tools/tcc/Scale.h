//===- Scale.h - a step on many devices, predicted ---------------*- C++ -*-===//
//
// From one plan (of mode ddp) and a cluster's description: docs/design/predict-scale.md has the formulas and what they
// assume.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_SCALE_H
#define TCC_TOOLS_TCC_SCALE_H

#include "tools/tcc/Cluster.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace tcc::report {

enum class ScaleMode { None, Ddp, GradOp, Full, Hybrid };
inline constexpr std::array kScaleModes = {ScaleMode::None, ScaleMode::Ddp, ScaleMode::GradOp, ScaleMode::Full,
                                           ScaleMode::Hybrid};
std::string_view scaleModeName(ScaleMode mode);

/// One update of every device. Bytes and seconds are those of one device.
struct ScalePoint {
  uint64_t devices = 1;
  ScaleMode mode = ScaleMode::None;
  uint64_t stateBytes = 0;  ///< parameters, optimizer state, accumulators and buffers
  uint64_t arenaBytes = 0;  ///< all else of the plan
  uint64_t gatherBytes = 0; ///< buckets, gathered parameters and state on its way, where state is sharded
  uint64_t hostBytes = 0;   ///< of page-locked memory of the host
  bool shardsAccumulators = false;
  bool fits = false;
  double sentBytes = 0;      ///< and received
  double messageSeconds = 0; ///< of all messages
  double exposedSeconds = 0; ///< in which the device waits for them
  double transferWaitSeconds = 0; ///< in which it waits for transfers from the host or to it
  double stepSeconds = 0;
  double efficiency = 0; ///< samples a second, divided by `devices` times those of one device without messages

  uint64_t memoryBytes() const { return stateBytes + arenaBytes + gatherBytes; }
};

struct ScalePrediction {
  uint64_t parameters = 0, gradientBytes = 0, parameterBytes = 0;
  int64_t samples = 0;            ///< of a device in an update
  double computeSeconds = 0;      ///< of one device without messages
  uint64_t availableBytes = 0;    ///< of a device
  std::vector<ScalePoint> points; ///< by devices, then mode

  /// The fastest mode that fits into the memory of `devices` devices; null if none does.
  const ScalePoint *best(uint64_t devices) const;
  /// The fastest mode on the least number of devices on which any mode fits; null if none does.
  const ScalePoint *smallest() const;
};

/// What a compile for a mode would be given, beside the model.
struct ScaleWishes {
  std::string accumulators = "auto"; ///< parallel.accumulators
  std::string offload = "none";      ///< offload.what; "none" for devices without memory of their own
  double linkBytesPerSecond = 0;     ///< between a device and its host, in each direction
  uint64_t budgetBytes = 0;          ///< of a device; 0: none
  uint64_t hostBytes = 0;            ///< of the host, for each device; 0: no limit
};

/// `within`: the same model compiled with the budget; null: there is none, or it is too small. Error: the plan does not
/// train.
Expected<ScalePrediction> predictScale(const plan::Plan &plan, const plan::Plan *within, const Cluster &cluster,
                                       const ScaleWishes &wishes, uint64_t mostDevices);

/// The model and settings of the predictions.
struct ScaleSubject {
  std::string model, target, precision;
};

/// The prediction for one of the plan's shapes.
struct ShapeScale {
  std::map<std::string, int64_t> dims; ///< the values of the symbolic dimensions
  ScalePrediction prediction;
};

std::string scaleText(const std::vector<ShapeScale> &shapes, const Cluster &cluster, const ScaleSubject &subject);
/// Of several shapes: those of each, under "shapes" with their "dims".
nlohmann::ordered_json scaleJson(const std::vector<ShapeScale> &shapes, const Cluster &cluster,
                                 const ScaleSubject &subject);
/// One self-contained page with the curves of step time and memory.
std::string scaleHtml(const std::vector<ShapeScale> &shapes, const Cluster &cluster, const ScaleSubject &subject);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_SCALE_H
