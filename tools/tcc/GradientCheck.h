//===- GradientCheck.h - a gradient against differences of its function -*- C++ -*-===//
//
// Compares the gradient with central differences of the loss along the gradient itself, along random directions and
// along single elements. All in f64.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_GRADIENTCHECK_H
#define TCC_TOOLS_TCC_GRADIENTCHECK_H

#include "support/Status.h"

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tcc::gradcheck {

struct Settings {
  uint64_t seed = 0;
  int directions = 3;      ///< random ones, besides the gradient's own
  int elements = 3;        ///< the one with the largest gradient, and random ones
  double step = 1e-5;      ///< of the loss's argument, relative to the parameter's root mean square
  double tolerance = 1e-6; ///< relative
};

/// The loss at the present values of the parameters. Error: it could not be computed, or is not finite.
using Loss = std::function<Expected<double>()>;

/// One place where slopes were compared.
struct Comparison {
  std::string where;   ///< "gradient", "direction 2", "element [3, 5]"
  double claimed = 0;  ///< slope by the gradient
  double measured = 0; ///< slope by differences
  double error = 0;    ///< relative to the slope plus an allowance for the rounding of the loss
};

/// How well one parameter's gradient agrees.
struct ParameterResult {
  std::string name, node;
  uint64_t elements = 0;
  double norm = 0; ///< of the gradient
  int comparisons = 0;
  Comparison worst;
  bool agrees = true;
};

/// A parameter and its gradient as the program under test computed it.
struct Parameter {
  std::string name, node;
  std::vector<int64_t> dims;
  std::vector<double> values, gradient;
  /// Sets the parameter's values for `Loss`; at the end it is called with the original `values`.
  std::function<Status(std::span<const double>)> set;
};

/// Compares along the gradient, `directions` random directions and `elements` elements. `base` is the loss at the
/// present values; an error is the loss's own. Steps shrink where the first one crosses a kink (ReLU, max): a wrong
/// gradient agrees at none of them.
Expected<ParameterResult> checkParameter(const Parameter &parameter, const Loss &loss, double base,
                                               const Settings &settings);

/// The results as a table.
std::string resultsText(const std::vector<ParameterResult> &results);

} // namespace tcc::gradcheck

#endif // TCC_TOOLS_TCC_GRADIENTCHECK_H
