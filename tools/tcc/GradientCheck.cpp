//===- GradientCheck.cpp - gradients against central differences ----------===//
#include "tools/tcc/GradientCheck.h"

#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>

namespace tcc::gradcheck {

namespace {

/// Steps tried in turn, as fractions of Settings::step.
constexpr double kRungs[] = {1, 0.1, 0.03, 0.01, 0.001};
/// Rounding of one evaluation, in units of the last place of the loss: sums of many terms lose a few.
constexpr double kRoundings = 8;
/// Below the first step, rounding may explain at most this part of a slope: tiny steps must not excuse everything.
constexpr double kLargestExcuse = 1e-3;

std::string elementText(uint64_t index, const std::vector<int64_t> &dims) {
  std::vector<int64_t> position(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    position[i] = int64_t(index % uint64_t(dims[i]));
    index /= uint64_t(dims[i]);
  }
  return fmt::format("element [{}]", fmt::join(position, ", "));
}

class Checker {
public:
  Checker(const Parameter &parameter, const Loss &loss, double base, const Settings &settings)
      : parameter(parameter), loss(loss), base(base), settings(settings), kept(parameter.values),
        moved(parameter.values.size()),
        // Each parameter has its own random numbers, independent of the other parameters that are checked.
        random(settings.seed ^ plan::hashBytes(parameter.name.data(), parameter.name.size())) {}

  Expected<ParameterResult> run() {
    result.name = parameter.name;
    result.node = parameter.node;
    size_t count = result.elements = kept.size();
    double squares = 0;
    for (double value : parameter.gradient)
      result.norm += value * value;
    for (double value : kept)
      squares += value * value;
    result.norm = std::sqrt(result.norm);
    scale = std::sqrt(squares / double(std::max<size_t>(count, 1)));
    if (!(scale > 0))
      scale = 1;
    if (!std::isfinite(result.norm))
      return error("the gradient of `{}` (node {}) is not finite", parameter.name, parameter.node);

    std::vector<double> direction(count);
    if (result.norm > 0) {
      double factor = scale * std::sqrt(double(count)) / result.norm;
      for (size_t i = 0; i < count; ++i)
        direction[i] = parameter.gradient[i] * factor;
      if (Status status = compare("gradient", direction); !status.ok())
        return status;
    }
    std::normal_distribution<double> normal(0, scale);
    for (int d = 0; d < settings.directions; ++d) {
      for (double &value : direction)
        value = normal(random);
      if (Status status = compare(fmt::format("direction {}", d + 1), direction); !status.ok())
        return status;
    }
    for (size_t index : chooseElements()) {
      std::fill(direction.begin(), direction.end(), 0);
      direction[index] = scale;
      if (Status status = compare(elementText(index, parameter.dims), direction); !status.ok())
        return status;
    }
    result.agrees = result.worst.error <= settings.tolerance;
    return result;
  }

private:
  std::vector<size_t> chooseElements() {
    std::vector<size_t> chosen;
    if (kept.empty() || settings.elements <= 0)
      return chosen;
    auto largest = std::max_element(parameter.gradient.begin(), parameter.gradient.end(),
                                    [](double a, double b) { return std::abs(a) < std::abs(b); });
    chosen.push_back(size_t(largest - parameter.gradient.begin()));
    std::uniform_int_distribution<size_t> any(0, kept.size() - 1);
    for (int tries = 0; tries < 8 * settings.elements && int(chosen.size()) < settings.elements; ++tries)
      if (size_t index = any(random); std::find(chosen.begin(), chosen.end(), index) == chosen.end())
        chosen.push_back(index);
    return chosen;
  }

  /// The loss at kept + step · direction.
  Expected<double> at(double step, const std::vector<double> &direction) {
    for (size_t i = 0; i < kept.size(); ++i)
      moved[i] = kept[i] + step * direction[i];
    if (Status status = parameter.set(moved); !status.ok())
      return status;
    Expected<double> value = loss();
    if (Status status = parameter.set(kept); !status.ok())
      return status;
    return value;
  }

  Status compare(const std::string &where, const std::vector<double> &direction) {
    double claimed = 0;
    for (size_t i = 0; i < direction.size(); ++i)
      claimed += parameter.gradient[i] * direction[i];
    std::optional<Comparison> best;
    for (double rung : kRungs) {
      double step = settings.step * rung;
      double rounding = kRoundings * std::numeric_limits<double>::epsilon() * std::abs(base) / step;
      Expected<double> ahead = at(step, direction);
      if (!ahead)
        return ahead.status();
      Expected<double> behind = at(-step, direction);
      if (!behind)
        return behind.status();
      double measured = (*ahead - *behind) / (2 * step);
      double size = std::max(std::abs(claimed), std::abs(measured));
      if (rung < 1 && rounding > kLargestExcuse * size)
        break;
      // At most the tolerance where |claimed − measured| ≤ tolerance · size + rounding.
      double whole = size + rounding / settings.tolerance;
      Comparison comparison{where, claimed, measured, whole > 0 ? std::abs(claimed - measured) / whole : 0};
      if (!std::isfinite(measured))
        comparison.error = std::numeric_limits<double>::infinity();
      if (!best || comparison.error < best->error)
        best = comparison;
      if (best->error <= settings.tolerance)
        break;
    }
    ++result.comparisons;
    if (result.comparisons == 1 || best->error > result.worst.error)
      result.worst = *best;
    return Status::success();
  }

  const Parameter &parameter;
  const Loss &loss;
  double base;
  const Settings &settings;
  const std::vector<double> &kept;
  std::vector<double> moved;
  std::mt19937_64 random;
  double scale = 1;
  ParameterResult result;
};

} // namespace

Expected<ParameterResult> checkParameter(const Parameter &parameter, const Loss &loss, double base,
                                               const Settings &settings) {
  if (parameter.gradient.size() != parameter.values.size())
    return error("the gradient of `{}` has {} elements, the parameter {}", parameter.name,
                       parameter.gradient.size(), parameter.values.size());
  return Checker(parameter, loss, base, settings).run();
}

std::string resultsText(const std::vector<ParameterResult> &results) {
  size_t name = 9, node = 4;
  for (const ParameterResult &result : results) {
    name = std::max(name, result.name.size());
    node = std::max(node, result.node.size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>10}  {:>10}  {:>6}  {:>9}  {}\n", "parameter", name, "node", node,
                                 "elements", "|gradient|", "slopes", "error", "worst along");
  for (const ParameterResult &result : results) {
    text += fmt::format("{:<{}}  {:<{}}  {:>10}  {:>10.3e}  {:>6}  {:>9.1e}  {}", result.name, name, result.node, node,
                        result.elements, result.norm, result.comparisons, result.worst.error, result.worst.where);
    if (!result.agrees)
      text += fmt::format("  WRONG: {:.9e} claimed, {:.9e} measured", result.worst.claimed, result.worst.measured);
    text += "\n";
  }
  return text;
}

} // namespace tcc::gradcheck
