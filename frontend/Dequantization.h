//===- Dequantization.h - the rewrite behind --dequantize -------*- C++ -*-===//
//
// Private to Dequantize.cpp, which walks over the nodes, and DequantizeOps.cpp, which has a function for each quantised
// op.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_DEQUANTIZATION_H
#define TCC_FRONTEND_DEQUANTIZATION_H

#include "frontend/OnnxLibrary.h"
#include "frontend/Quantization.h"

namespace tcc::frontend {

class Dequantization {
public:
  explicit Dequantization(OnnxFile &file) : file(file), graph(*file.model.mutable_graph()), constants(file, graph) {
    opset = kNewestOpset;
    for (const onnx::OperatorSetIdProto &set : file.model.opset_import())
      if (canonicalDomain(set.domain()).empty())
        opset = set.version();
  }

  Expected<std::vector<std::string>> run();

  using Handler = Status (Dequantization::*)(const onnx::NodeProto &);
  static const std::map<std::string, Handler> &handlers();

private:
  /// The floating-point counterpart of an 8-bit value, and the value's scale and zero point.
  struct Real {
    std::string name;
    Quantizer quantizer;
  };
  /// One operand of a product of integers.
  struct Operand {
    std::string value; ///< floating-point; empty for a constant, whose scale is not known yet
    std::string constant, zeroPoint;
    std::string dynamic; ///< the scale, if the graph computes it
    double scale = 1;    ///< else the constant scale
  };
  struct Product {
    onnx::NodeProto node; ///< the floating-point op, without operands and result
    Operand a, b;
  };
  /// A product of scales: those that the graph computes, and constants.
  struct Scale {
    std::multiset<std::string> dynamic;
    std::vector<std::string> constant;
  };

  // Names.
  std::string resolve(const std::string &name) const {
    auto found = alias.find(name);
    return found == alias.end() ? name : found->second;
  }
  std::string fresh(const std::string &wanted);
  void collectNames();

  // Values.
  Expected<std::string> weight(const std::string &name, const Quantizer &quantizer);
  Expected<std::string> tensor(const std::string &name, const std::string &scale, const std::string &zeroPoint,
                                     int64_t axis = 1);
  std::string fromIntegers(const std::string &name, const Quantizer &quantizer);
  std::string scalar(const std::string &name, double value);
  std::string addInitializer(const std::string &wanted, const std::vector<int64_t> &dims, std::string bytes);
  Expected<Quantizer> quantizerOf(const std::string &scale, const std::string &zeroPoint, int64_t axis,
                                        const std::string &tensor = {}) const;
  std::optional<Expected<Quantizer>> quantizerOfReaders(const std::string &value, int depth = 0) const;

  // Nodes.
  onnx::NodeProto floatNode(const onnx::NodeProto &node, const char *op, const std::vector<std::string> &inputs) const;
  Status emitLimited(onnx::NodeProto node, const onnx::NodeProto &from, int scale, int zeroPoint);
  void emitClip(const onnx::NodeProto &from, const std::string &x, const std::string &result,
                const Quantizer &quantizer, IntegerRange range);
  Status keepClip(const onnx::NodeProto &node);
  Status keep(const onnx::NodeProto &node);
  Status keepMover(const onnx::NodeProto &node);
  bool readsQuantized(const onnx::NodeProto &node) const;

  // Handlers.
  Status quantizeLinear(const onnx::NodeProto &node);
  Status dequantizeLinear(const onnx::NodeProto &node);
  Status dynamicQuantizeLinear(const onnx::NodeProto &node);
  Status integerProduct(const onnx::NodeProto &node);
  Status mulScale(const onnx::NodeProto &node);
  Expected<Operand> operandOf(const std::string &name, const std::string &zeroPoint) const;
  std::optional<Scale> scaleOf(const std::string &name) const;
  Status finishProduct(Product product, const Scale &scale, const std::string &result,
                             const std::string &bias = {});
  Status qLinearConv(const onnx::NodeProto &node);
  Status qLinearMatMul(const onnx::NodeProto &node);
  Status qGemm(const onnx::NodeProto &node);
  Status qLinearBinary(const onnx::NodeProto &node);
  Status qLinearUnary(const onnx::NodeProto &node);
  Status qLinearSoftmax(const onnx::NodeProto &node);
  Status qLinearReduceMean(const onnx::NodeProto &node);
  Status qLinearConcat(const onnx::NodeProto &node);
  Status qLinearWhere(const onnx::NodeProto &node);
  Status matMulIntegerToFloat(const onnx::NodeProto &node);
  Status dynamicQuantizeMatMul(const onnx::NodeProto &node);
  Status dynamicQuantizeLstm(const onnx::NodeProto &node);
  Status qAttention(const onnx::NodeProto &node);
  Status qEmbedLayerNormalization(const onnx::NodeProto &node);

  void finishOutputs();
  void dropUnused(const std::set<std::string> &readBefore);
  void takeFreeNames();
  std::set<std::string> readNames();

  OnnxFile &file;
  onnx::GraphProto &graph;
  GraphConstants constants;
  int64_t opset = 0;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes; ///< of the floating-point graph
  std::map<std::string, std::string> alias;
  std::map<std::string, Real> reals;
  std::set<std::string> floats;            ///< results of quantised ops that are floating-point
  std::map<std::string, Operand> dynamic;  ///< by the 8-bit result of DynamicQuantizeLinear
  std::map<std::string, Product> products; ///< by their int32 result, and its casts
  std::map<std::string, Scale> scales;
  std::map<std::string, std::vector<const onnx::NodeProto *>> readers;
  std::map<std::pair<std::string, std::string>, std::string> weights; ///< by the constant's name and its quantiser
  std::set<std::string> names;
  std::vector<std::string> warnings;
};

} // namespace tcc::frontend

#endif // TCC_FRONTEND_DEQUANTIZATION_H
