//===- TorchParameters.h - names and shapes of parameters in torch -*- C++ -*-===//
//
// Exporters store some parameters under invented names ("val_110", "onnx::MatMul_12") and transposed. The newer
// exporter's notes tell the parameter's name: they list the values that an initializer was computed from, and if the
// reader's traced call takes that very parameter, there is only a view between the two. The older exporter writes no
// notes; a matrix that it transposed is the weight of the module that the reading node is named after.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHPARAMETERS_H
#define TCC_FRONTEND_TORCHPARAMETERS_H

#include "compiler/model/TorchShape.h"
#include "frontend/Parameters.h"

#include <map>
#include <string>

namespace tcc::frontend {

/// Sets `torchName`, `namedByNode` and `computed` of the initializers' roles, whose other members are set. No two
/// initializers get the same name, and none gets the name of another initializer.
void nameInTorch(const OnnxFile &file, const onnx::GraphProto &graph, std::map<std::string, InitializerRole> &roles);

/// The shape of each initializer in torch, by the exporter's notes on values and nodes, by names, and by the nodes that
/// read the initializer. `graph` is the prepared one.
std::map<std::string, TorchShape> torchShapes(const OnnxFile &file, const onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHPARAMETERS_H
