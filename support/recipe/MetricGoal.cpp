//===- MetricGoal.cpp - metrics that decide about a run -------------------===//
#include "support/recipe/MetricGoal.h"
#include "support/Advice.h"
#include "support/NearestName.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc {

Expected<MetricGoal> parseGoal(const std::string &key, const std::string &text, const MetricGoal &usual) {
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
  if (std::string_view other = metricOfAlias(rest); !least && !most && !other.empty())
    rest = other;
  const MetricKind *metric = findMetricKind(rest);
  if (!metric && !least && !most) {
    std::string nearest = nearestName(std::string(rest), metricKindNames());
    return Status(fmt::format("{}: \"{}\" is none of the metrics {}{}; a graph output needs a direction: \"min:{}\" or "
                              "\"max:{}\"",
                              key, text, fmt::join(metricKindNames(), ", "),
                              nearest.empty() ? "" : " (the nearest is " + nearest + ")", rest, rest),
                  StatusCode::Usage);
  }
  return MetricGoal{fmt::format("{}eval_{}", averaged ? "ema_" : "", rest),
                    most || (!least && metric && metric->larger)};
}

Status checkGoal(const std::string &key, const MetricGoal &goal, const std::vector<std::string> &known) {
  if (std::find(known.begin(), known.end(), goal.name) != known.end())
    return Status();
  bool averaged = goal.name.starts_with("ema_");
  bool hasAverages = std::any_of(known.begin(), known.end(), [](auto &name) { return name.starts_with("ema_"); });
  const std::string metric = goal.name.substr(goal.name.find("eval_") + 5);
  std::string way =
      averaged && !hasAverages
          ? fmt::format("average the weights with {}", advice::set("train.ema.decay", "0.999"))
          : fmt::format("compile with {}", advice::compileSet("evaluate.metrics", fmt::format("[\"{}\"]", metric)));
  return Status(fmt::format("{}: evaluations of this plan have no {}, but {}; {}", key, goal.name,
                            fmt::join(known, ", "), way),
                StatusCode::Usage);
}

std::vector<std::string> evaluationKeys(std::string_view lossKind, const std::vector<std::string> &metrics,
                                        bool averages) {
  std::vector<std::string> keys = {"eval_loss"};
  if (isClassification(lossKind))
    keys.push_back("eval_accuracy");
  for (const std::string &name : metrics)
    if (std::string key = "eval_" + name; std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
  for (size_t i = 0, count = averages ? keys.size() : 0; i < count; ++i)
    keys.push_back("ema_" + keys[i]);
  return keys;
}

} // namespace tcc
