//===- Quantization.h - integers and scales of an exported model ---------===//
//
// A plan holds quantised weights in floating point (plan.proto: Quantized). An export rounds them again, with the
// scales of the model file, or with scales computed from the weights and from the ranges that training observed.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_QUANTIZATION_H
#define TCC_RUNTIME_STATE_QUANTIZATION_H

#include "runtime/plan/plan.pb.h"
#include "support/ByteSink.h"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
class TensorProto;
} // namespace onnx

namespace tcc::runtime {

class Requantization {
public:
  /// Streams the value of a variable, by name.
  using Values = std::function<Status(const std::string &, const ByteSink &)>;

  /// All of these outlive this object.
  Requantization(const plan::Plan &plan, const onnx::GraphProto &graph, Values values);

  /// Computes all observed scales and zero points. Error: a scale or a variable is missing or has another type.
  Status prepare();
  /// True for an initializer whose bytes are computed here: integers, a scale, a zero point.
  bool makes(const std::string &name) const;
  /// The bytes of such an initializer.
  Expected<std::vector<std::byte>> bytesOf(const onnx::TensorProto &tensor) const;

private:
  struct Steps {
    std::vector<float> scale;
    std::vector<int64_t> zeroPoint;
  };
  Expected<std::vector<float>> valuesOf(const std::string &variable) const;
  Expected<Steps> stepsOfValues(const plan::Quantized &quantized) const;
  Expected<std::vector<float>> scaleOf(const std::string &name) const;

  const plan::Plan &plan;
  Values values;
  std::map<std::string, const onnx::TensorProto *> tensors; ///< the model's initializers
  std::vector<const plan::Quantized *> held;                ///< those with a variable
  std::map<std::string, const plan::Quantized *> quantized; ///< whose initializers are integers
  std::map<std::string, Steps> steps;                       ///< by quantised initializer
  std::map<std::string, std::vector<float>> scales;         ///< observed, by initializer
  std::map<std::string, std::vector<int64_t>> zeroPoints;   ///< likewise
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_QUANTIZATION_H
