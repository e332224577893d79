//===- GraphText.h - functions of movements, as text -*- C++ -*-===//
#ifndef TCC_TEST_KERNELS_GRAPHTEXT_H
#define TCC_TEST_KERNELS_GRAPHTEXT_H

#include "test/support/Cases.h"

namespace tcc::test {

using Extents = std::vector<int64_t>;

/// Writes the arguments and the body of a case, op by op.
class GraphText {
protected:
  struct Tensor {
    std::string name;
    Extents shape;
    std::string element;
    std::string type() const { return GraphText::type(shape, element); }
  };

  static std::string type(const Extents &shape, const std::string &element) {
    std::string text = "tensor<";
    for (int64_t extent : shape)
      text += std::to_string(extent) + "x";
    return text + element + ">";
  }
  static std::string list(const Extents &values) {
    std::string text;
    for (int64_t value : values)
      text += (text.empty() ? "[" : ", ") + std::to_string(value);
    return (text.empty() ? "[" : text) + "]";
  }

  std::string define(const std::string &op) {
    std::string name = "%t" + std::to_string(defined++);
    body += name + " = train." + op + "\n";
    return name;
  }
  Tensor define(const std::string &op, const Extents &shape, const std::string &element) {
    return {define(op), shape, element};
  }
  std::string argument(const std::string &name, const Extents &shape, const std::string &element,
                       Range range = {-2, 2}) {
    arguments += (arguments.empty() ? "" : ", ") + name + ": " + type(shape, element);
    ranges.push_back(range);
    return name;
  }

  Tensor transpose(const Tensor &x, const Extents &permutation) {
    Extents turned;
    for (int64_t dim : permutation)
      turned.push_back(x.shape[size_t(dim)]);
    return define("transpose " + x.name + " " + list(permutation) + " : " + x.type() + " -> " + type(turned, x.element),
                  turned, x.element);
  }
  Tensor reshape(const Tensor &x, const Extents &to) {
    return define("reshape " + x.name + " : " + x.type() + " -> " + type(to, x.element), to, x.element);
  }
  Tensor broadcast(const Tensor &x, const Extents &to) {
    return define("broadcast " + x.name + " : " + x.type() + " -> " + type(to, x.element), to, x.element);
  }
  Tensor slice(const Tensor &x, size_t dim, int64_t first, int64_t count, int64_t step = 1) {
    Extents starts(x.shape.size(), 0), steps(x.shape.size(), 1), part = x.shape;
    starts[dim] = first;
    steps[dim] = step;
    part[dim] = count;
    return define("slice " + x.name + " starts " + list(starts) + " steps " + list(steps) + " : " + x.type() + " -> " +
                      type(part, x.element),
                  part, x.element);
  }
  /// Pads with zeros along `dim`, which then has `extent` elements; `low` zeros come first.
  Tensor pad(const Tensor &x, size_t dim, int64_t low, int64_t extent) {
    Extents lows(x.shape.size(), 0), steps(x.shape.size(), 1), padded = x.shape;
    lows[dim] = low;
    padded[dim] = extent;
    return define("pad " + x.name + " low " + list(lows) + " steps " + list(steps) + " value 0.0 : " + x.type() +
                      " -> " + type(padded, x.element),
                  padded, x.element);
  }
  Tensor concat(const Tensor &x, const Tensor &y, size_t dim) {
    Extents both = x.shape;
    both[dim] += y.shape[dim];
    return define("concat dim = " + std::to_string(dim) + " " + x.name + ", " + y.name + " : (" + x.type() + ", " +
                      y.type() + ") -> " + type(both, x.element),
                  both, x.element);
  }
  Tensor cast(const Tensor &x, const std::string &element) {
    return x.element == element
               ? x
               : define("cast " + x.name + " : " + x.type() + " -> " + type(x.shape, element), x.shape, element);
  }

  std::string body, arguments;
  std::vector<Range> ranges;

private:
  int defined = 0;
};

} // namespace tcc::test

#endif // TCC_TEST_KERNELS_GRAPHTEXT_H
