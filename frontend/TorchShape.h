//===- TorchShape.h - a parameter's shape in its torch module ---*- C++ -*-===//
//
// Exporters store a parameter in the form that its reader needs: a linear layer's weight transposed, a vector with
// extents of 1 around it, the weights of a recurrent layer's directions as one tensor. Code that depends on a
// parameter's rank or orientation (Muon, the norms of LAMB, @1d) means the shape in torch, which this file
// reconstructs.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHSHAPE_H
#define TCC_FRONTEND_TORCHSHAPE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onnx {
class GraphProto;
}

namespace tcc::frontend {

struct OnnxFile;

struct TorchShape {
  /// Number of parameters stored one after another in one tensor, such as those of a recurrent layer's directions.
  int64_t count = 1;
  std::vector<int64_t> dims; ///< of each parameter
  bool transposed = false;   ///< each parameter is a matrix stored transposed
  /// The assumption made if neither the exporter's notes nor the readers decide; else empty.
  std::string assumption;

  static TorchShape asStored(std::vector<int64_t> dims) { return {1, std::move(dims), false, {}}; }
  bool isMatrix() const { return dims.size() == 2; }
};

/// The shape of each initializer in torch, by the exporter's notes on values and nodes, by names, and by the nodes of
/// `graph` (the prepared one) that read it.
std::map<std::string, TorchShape> torchShapes(const OnnxFile &file, const onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHSHAPE_H
