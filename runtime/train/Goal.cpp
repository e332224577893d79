//===- Goal.cpp - metrics that decide about a run ------------------------===//
#include "runtime/train/Goal.h"
#include "support/NearestName.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

Expected<MetricGoal> tcc::runtime::parseGoal(const std::string &key, const std::string &text, const MetricGoal &usual) {
  if (text.empty())
    return usual;
  std::string_view rest = text;
  auto take = [&](std::string_view prefix) {
    bool there = rest.starts_with(prefix);
    if (there)
      rest.remove_prefix(prefix.size());
    return there;
  };
  bool least = take("min:"), most = !least && take("max:");
  bool averaged = take("ema_");
  take("eval_");
  const MetricKind *metric = findMetricKind(rest);
  if (!metric && !least && !most) {
    std::string nearest = nearestName(std::string(rest), metricKindNames());
    return Status(fmt::format("{}: \"{}\" is none of the metrics {}{}; a graph output needs a direction: \"min:{}\" or "
                              "\"max:{}\"",
                              key, text, fmt::join(metricKindNames(), ", "),
                              nearest.empty() ? "" : " (the nearest is " + nearest + ")", rest, rest),
                  kExitUsage);
  }
  return MetricGoal{fmt::format("{}eval_{}", averaged ? "ema_" : "", rest), most || (!least && metric && metric->larger)};
}

Status tcc::runtime::checkGoal(const std::string &key, const MetricGoal &goal, const std::vector<std::string> &known) {
  if (std::find(known.begin(), known.end(), goal.name) != known.end())
    return Status();
  bool averaged = goal.name.starts_with("ema_");
  bool hasAverages = std::any_of(known.begin(), known.end(), [](auto &name) { return name.starts_with("ema_"); });
  std::string way = averaged && !hasAverages ? "average the weights with --set train.ema.decay=0.999"
                                             : fmt::format("compile with tcc --set 'evaluate.metrics=[\"{}\"]'",
                                                           goal.name.substr(goal.name.find("eval_") + 5));
  return Status(fmt::format("{}: evaluations of this plan have no {}, but {}; {}", key, goal.name,
                            fmt::join(known, ", "), way),
                kExitUsage);
}

void EarlyStop::hear(uint64_t step, const EvaluationRecord &evaluation) {
  std::optional<double> value = evaluation.find(goal.name);
  if (value && std::isfinite(*value) && (!best || goal.isBetter(*value, *best, minChange))) {
    best = value;
    bestStep = step;
    waited = 0;
  } else {
    ++waited;
  }
}

std::string EarlyStop::text() const {
  std::string since = fmt::format("{} evaluation{}", waited, waited == 1 ? "" : "s");
  if (!best)
    return fmt::format("{} was not finite in {}", goal.name, since);
  return fmt::format("{} is no better than {:.6g} (update {}) since {}", goal.name, *best, bestStep, since);
}
