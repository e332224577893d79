//===- ScaleText.h - a prediction for people and programs -------*- C++ -*-===//
#ifndef TCC_TOOLS_TCC_SCALETEXT_H
#define TCC_TOOLS_TCC_SCALETEXT_H

#include "tools/tcc/Scale.h"

#include <nlohmann/json.hpp>

namespace tcc::report {

/// The model and settings of the prediction.
struct ScaleSubject {
  std::string model, target, precision;
};

std::string scaleText(const ScalePrediction &prediction, const Cluster &cluster, const ScaleSubject &subject);
nlohmann::ordered_json scaleJson(const ScalePrediction &prediction, const Cluster &cluster,
                                 const ScaleSubject &subject);
/// One self-contained page with the curves of step time and memory.
std::string scaleHtml(const ScalePrediction &prediction, const Cluster &cluster, const ScaleSubject &subject);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_SCALETEXT_H
