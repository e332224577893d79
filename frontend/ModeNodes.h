//===- ModeNodes.h - check Dropout and BatchNormalization of an export --*- C++ -*-===//
//
// Exporters drop, fold and rewrite Dropout and BatchNormalization. If the recipe asks for nodes that the export left
// out, the error says how to export; nodes that would silently train differently cause a warning.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_MODENODES_H
#define TCC_FRONTEND_MODENODES_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// True for a BatchNormalization that torch.onnx wrote in inference mode although the module was in train() mode: its
/// note of the traced call says so.
bool wasTracedInTraining(const onnx::NodeProto &node);

/// Warnings about the export. Error: model.batch_norm or model.dropout asks for nodes that are not there.
Expected<std::vector<std::string>> checkModeNodes(const std::string &model, const onnx::GraphProto &graph,
                                                        int64_t opset, const ModelSettings &settings,
                                                        const std::map<std::string, std::string> &where);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_MODENODES_H
