//===- PlainExport.h - an export that was made for inference ----*- C++ -*-===//
//
// torch.onnx.export(model, args) fixes the batch of the example, folds BatchNormalization into convolutions, drops
// dropout and renames weights. It can be trained, and is not what its maker meant: one warning says so, with the call
// that is. Another batch (--shape) is possible where none of the graph's constants holds the old one.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_PLAINEXPORT_H
#define TCC_FRONTEND_PLAINEXPORT_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// True if torch's newer exporter made the graph: it leaves notes at nodes and values.
bool hasTorchNotes(const onnx::GraphProto &graph);

/// What to say of a plain export; empty where the model is none. `shapes`: what --shape gives.
std::string plainExportWarning(const OnnxFile &file, const std::map<std::string, std::vector<int64_t>> &shapes);

/// The constants that hold the batch of a static export whose inputs get other first dimensions, one line each with
/// their node. `model`: initializers shown, functions inlined, shapes as exported.
std::vector<std::string> bakedConstants(const onnx::ModelProto &model,
                                        const std::map<std::string, std::vector<int64_t>> &shapes);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_PLAINEXPORT_H
