//===- TorchNames.h - which parameter of the torch module an initializer is -*- C++ -*-===//
//
// Exporters store some parameters under names of their own ("val_110", "onnx::MatMul_12") and transposed. The name
// comes from the newer exporter's notes: they list what a value was computed from, and the reader's traced call takes
// that very parameter, so that nothing but a view lies between the two. The older exporter notes nothing; there a
// matrix that it transposed is the weight of the module that the reading node is named after.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHNAMES_H
#define TCC_FRONTEND_TORCHNAMES_H

#include "frontend/Parameters.h"

namespace tcc::frontend {

/// Sets `torchName`, `namedByNode` and `computed` of the initializers' roles, whose other members are known. No two
/// initializers get one name, and none gets another one's.
void nameInTorch(const OnnxFile &file, const onnx::GraphProto &graph, std::map<std::string, InitializerRole> &roles);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHNAMES_H
