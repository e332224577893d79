//===- TorchNames.h - torch's parameter names of initializers ---*- C++ -*-===//
//
// Exporters store some parameters under invented names ("val_110", "onnx::MatMul_12") and transposed. The newer
// exporter's notes tell the parameter's name: they list the values that an initializer was computed from, and if the
// reader's traced call takes that very parameter, there is only a view between the two. The older exporter writes no
// notes; a matrix that it transposed is the weight of the module that the reading node is named after.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHNAMES_H
#define TCC_FRONTEND_TORCHNAMES_H

#include "frontend/Parameters.h"

namespace tcc::frontend {

/// Sets `torchName`, `namedByNode` and `computed` of the initializers' roles, whose other members are set. No two
/// initializers get the same name, and none gets the name of another initializer.
void nameInTorch(const OnnxFile &file, const onnx::GraphProto &graph, std::map<std::string, InitializerRole> &roles);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHNAMES_H
