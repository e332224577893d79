//===- ModeNodes.h - is there a node for what the recipe says of modes? -*- C++ -*-===//
#ifndef TCC_FRONTEND_MODENODES_H
#define TCC_FRONTEND_MODENODES_H

#include "compiler/Recipe.h"
#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// Error: model.batch_norm or model.dropout asks for something that the export left out; says how to export it.
plan::Status checkModeNodes(const std::string &model, const onnx::GraphProto &graph, const ModelSettings &settings,
                            const std::map<std::string, std::string> &where);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_MODENODES_H
