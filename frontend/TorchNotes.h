//===- TorchNotes.h - what torch's exporters note at nodes ------*- C++ -*-===//
#ifndef TCC_FRONTEND_TORCHNOTES_H
#define TCC_FRONTEND_TORCHNOTES_H

#include <string>
#include <vector>

namespace onnx {
class NodeProto;
}

namespace tcc::frontend {

/// The traced call that a node was made of: "aten.linear.default" and its arguments, "%x" and so on.
struct TracedCall {
  std::string target;
  std::vector<std::string> arguments;
  std::vector<std::string> values; ///< in it, in order, each as often as it is read: "x", "p_fc_weight"
  std::vector<double> numbers;     ///< literals
  std::string text;                ///< the whole note, which the nodes of one call share
};

/// By the newer exporter's notes; empty where there are none.
TracedCall tracedCall(const onnx::NodeProto &node);

/// The modules whose code made a node, outermost first, and its operation: "", "l", "l.norm1", "layer_norm"; empty where
/// the exporter notes none.
std::vector<std::string> scopesOf(const onnx::NodeProto &node);
/// The last of them, the operation's name.
std::string lastScope(const onnx::NodeProto &node);

/// "permute_3" → "permute".
std::string withoutNumber(const std::string &name);

/// Is it one of torch's operations that exchange the axes of a matrix?
bool isTransposition(const std::string &operation);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHNOTES_H
