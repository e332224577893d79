//===- TorchShapes.h - reconstruct the torch shapes of parameters -*- C++ -*-===//
//
// By the exporter's notes on values and nodes, by names, and by the nodes that read an initializer.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_TORCHSHAPES_H
#define TCC_FRONTEND_TORCHSHAPES_H

#include "compiler/model/TorchShape.h"

#include <map>
#include <string>

namespace onnx {
class GraphProto;
}

namespace tcc::frontend {

struct OnnxFile;

/// The shape of each initializer in torch. `graph` is the prepared one.
std::map<std::string, TorchShape> torchShapes(const OnnxFile &file, const onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_TORCHSHAPES_H
