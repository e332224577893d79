//===- Quantization.h - scales and zero points of quantised tensors --*- C++ -*-===//
//
// A quantised tensor q represents (q − zero point)·scale. Two rewrites of the model use this: dequantize (Dequantize.h)
// makes a floating-point model, and fakeQuantize (FakeQuantize.h) a model for quantisation-aware training.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_QUANTIZATION_H
#define TCC_FRONTEND_QUANTIZATION_H

#include "frontend/OnnxFile.h"

#include <optional>

namespace tcc::frontend {

/// The range of an integer element type.
struct IntegerRange {
  int64_t low = 0, high = 0;
};
/// Of INT8, UINT8, INT16, UINT16 and INT32; nothing for other types.
std::optional<IntegerRange> integerRange(int32_t onnxType);

/// Why a quantised type is not read where 4-bit integers are none of a weight, and of 8-bit floats; empty for all other
/// types.
std::string unreadQuantizedType(int32_t onnxType);

/// The values of a graph that are known before it runs: its initializers, its Constant nodes, and Cast and Identity of
/// these, as torch writes zero points.
class GraphConstants {
public:
  /// Refers to the file; copies the constants of the graph's nodes.
  GraphConstants(const OnnxFile &file, const onnx::GraphProto &graph);

  bool has(const std::string &name) const { return find(name) != nullptr; }
  /// Type and shape of a constant; null if the value is none.
  const OnnxInitializer *find(const std::string &name) const;
  /// Elements as double. Errors: no constant, external data that cannot be read, a type that is neither FLOAT nor
  /// integer.
  Expected<std::vector<double>> numbers(const std::string &name) const;

private:
  void addConstant(const onnx::NodeProto &node);
  void addCopy(const onnx::NodeProto &node);

  const OnnxFile &file;
  std::map<std::string, OnnxInitializer> nodes; ///< of nodes, by their result
};

/// Scales and zero points with which a tensor was quantised.
struct Quantizer {
  std::vector<double> scale;      ///< one, or one for each index of `axis`
  std::vector<int64_t> zeroPoint; ///< as many
  int64_t axis = 0;               ///< as in the node, perhaps negative; without meaning for one scale
  int32_t type = 0;               ///< of the quantised tensor
  size_t given = 1;               ///< how many there were before equal ones became one

  bool perAxis() const { return scale.size() > 1; }
  /// True if both give every element the same scale and zero point.
  bool operator==(const Quantizer &other) const {
    return scale == other.scale && zeroPoint == other.zeroPoint && (!perAxis() || axis == other.axis);
  }
};

/// Reads constant scales and zero points; `zeroPoint` may be empty or name nothing: 0. The type is the zero point's,
/// else `type`. Errors: a value that is not constant, a scale not above 0, counts that differ, an unsupported type.
Expected<Quantizer> readQuantizer(const GraphConstants &constants, const std::string &scale,
                                        const std::string &zeroPoint, int64_t axis, int32_t type);

/// (q − zero point)·scale for every element of a constant, as the bytes of a FLOAT tensor. Errors: scales that do not
/// fit the shape, elements that cannot be read.
Expected<std::string> dequantizedBytes(const GraphConstants &constants, const std::string &name,
                                             const Quantizer &quantizer);

/// "fc.weight" for "fc.weight_quantized": the name from which onnxruntime's quantiser derived that of a quantised
/// tensor.
std::string nameBeforeQuantization(const std::string &name);

// Nodes.
const std::string &inputOf(const onnx::NodeProto &node, int i);
/// An attribute, or null.
const onnx::AttributeProto *attributeOf(const onnx::NodeProto &node, const std::string &name);
onnx::AttributeProto &newAttribute(onnx::NodeProto &node, const char *name, onnx::AttributeProto::AttributeType type);
void dropAttribute(onnx::NodeProto &node, const char *name);
int64_t intAttribute(const onnx::NodeProto &node, const std::string &name, int64_t otherwise);
/// True for an op of the standard, or one that onnxruntime contributes.
bool isQuantizationOp(const onnx::NodeProto &node, const char *op);
/// True for an op of the standard whose first result consists of elements of its first input (Concat: of all inputs),
/// or of values between them, and whose other results are indices (Split: elements as well). Such an op works alike on
/// quantised and floating-point tensors.
bool movesElements(const onnx::NodeProto &node);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_QUANTIZATION_H
