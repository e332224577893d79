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
};

/// By the newer exporter's notes; empty where there are none.
TracedCall tracedCall(const onnx::NodeProto &node);

/// "permute_3" → "permute".
std::string withoutNumber(const std::string &name);

/// Is it one of torch's operations that exchange the axes of a matrix?
bool isTransposition(const std::string &operation);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHNOTES_H
