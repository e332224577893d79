//===- TorchOps.h - what torch's operations do to elements ------*- C++ -*-===//
//
// torch.export names each value after the operation that computed it ("exp", "permute_3"). So the names that an
// exporter notes as the sources of a folded value tell which operations were applied to a weight.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHOPS_H
#define TCC_FRONTEND_TORCHOPS_H

#include <string>

namespace tcc::frontend {

enum class TorchOp {
  None,     ///< not the name of an operation
  Moves,    ///< the result has elements of the operands, each at most once
  Joins,    ///< the same for several operands
  Repeats,  ///< the result has elements of the operands, possibly several times
  Makes,    ///< a result without operands, or one that needs only their shapes
  Computes, ///< anything else
};

/// The kind of operation that computed a value, by the value's name: "permute_3", "add", "scalar_tensor_default_1".
TorchOp torchOp(const std::string &value);

/// True if the translation of `target` ("aten.linear.default") to ONNX only moves a weight's elements before it
/// combines them with data. `note`: the call as the exporter noted it.
bool translationMovesWeights(const std::string &target, const std::string &note);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHOPS_H
