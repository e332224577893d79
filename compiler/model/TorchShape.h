//===- TorchShape.h - a parameter's shape in its torch module ---*- C++ -*-===//
//
// Exporters store a parameter in the form that its reader needs: a linear layer's weight transposed, a vector with
// extents of 1 around it, the weights of a recurrent layer's directions as one tensor. Code that depends on a
// parameter's rank or orientation (Muon, the norms of LAMB, @1d) means the shape in torch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_MODEL_TORCHSHAPE_H
#define TCC_COMPILER_MODEL_TORCHSHAPE_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tcc {

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

} // namespace tcc

#endif // TCC_COMPILER_MODEL_TORCHSHAPE_H
