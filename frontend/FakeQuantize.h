//===- FakeQuantize.h - quantisation-aware training -------------*- C++ -*-===//
//
// QuantizeLinear followed by DequantizeLinear rounds a value, and has no derivative: quantisation-aware training lets
// the gradient pass where the value is in range. A weight that the file stores as integers is trained in floating
// point, rounded wherever it is read, and stored as integers again by the export.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_FAKEQUANTIZE_H
#define TCC_FRONTEND_FAKEQUANTIZE_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// Attributes of a DequantizeLinear that fakeQuantize makes, which rounds a floating-point input. Its first output is
/// the rounded value, its optional second output the scale.
namespace fake_quantize {
inline constexpr const char *kType = "quantized_type";          ///< onnx::TensorProto_DataType of the integers
inline constexpr const char *kLeast = "least", *kMost = "most"; ///< the integers in use; absent: all of them
inline constexpr const char *kObserve = "observe"; ///< "values": scale and zero point follow from the input itself,
                                                   ///< "range": from the state kLow and kHigh; absent: from the node's
                                                   ///< inputs
inline constexpr const char *kLow = "observed_low", *kHigh = "observed_high"; ///< names of state
inline constexpr const char *kSymmetric = "symmetric";                        ///< the zero point does not change
inline constexpr const char *kLevel = "level"; ///< largest |q − zero point| of a symmetric weight
} // namespace fake_quantize

/// Removes these attributes from a function of the model: only fakeQuantize may write them.
void dropFakeQuantize(onnx::FunctionProto &function);

/// Rewrites the prepared graph: pairs become a DequantizeLinear of floating-point values (see above) and Identity.
/// Weights of the file become floating-point initializers (OnnxFile::quantized). Returns warnings. Error:
/// model.quantize asks for quantisation that the model does not have.
Expected<std::vector<std::string>> fakeQuantize(OnnxFile &file, onnx::GraphProto &graph,
                                                      const ModelSettings &settings,
                                                      const std::map<std::string, std::string> &where);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_FAKEQUANTIZE_H
