//===- TorchNotes.h - what torch's exporters note at nodes ------*- C++ -*-===//
#ifndef TCC_FRONTEND_TORCHNOTES_H
#define TCC_FRONTEND_TORCHNOTES_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onnx {
class NodeProto;
}

namespace tcc::frontend {

/// The traced call that a node was exported from: "aten.linear.default" and its arguments, "%x" and so on.
struct TracedCall {
  std::string target;
  std::vector<std::string> arguments;
  std::vector<std::string> values; ///< names in it, in order, repeated if read repeatedly: "x", "p_fc_weight"
  std::vector<double> numbers;     ///< literals
  std::string text;                ///< the whole note, which the nodes of one call share
};

/// The call by the newer exporter's notes; empty if there are none.
TracedCall tracedCall(const onnx::NodeProto &node);

/// Its target alone, without reading the arguments.
std::string_view tracedTarget(const onnx::NodeProto &node);

/// A number that the call was given, by its place among aten's arguments or by its name.
std::optional<double> numberOf(const TracedCall &call, size_t place, const std::string &name);

// Properties of calls that are only in the note, since the exported ops do not have them.

/// The dropout probability of scaled_dot_product_attention's weights; 0: none.
double attentionDropout(const onnx::NodeProto &node);
/// The index whose row an embedding gives no gradient (`padding_idx`).
std::optional<int64_t> paddingIndex(const onnx::NodeProto &node);
/// True if the node draws 0 or 1, for a dropout that torch exports as such draws, or for the module's own code.
bool drawsBernoulli(const onnx::NodeProto &node);

/// The modules whose code a node was exported from, outermost first, and its operation: "", "l", "l.norm1",
/// "layer_norm"; empty without a note.
std::vector<std::string> scopesOf(const onnx::NodeProto &node);
/// The last of them, the operation's name.
std::string lastScope(const onnx::NodeProto &node);

/// "permute_3" → "permute".
std::string withoutNumber(const std::string &name);

/// True for torch's operations that transpose a matrix.
bool isTransposition(const std::string &operation);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHNOTES_H
