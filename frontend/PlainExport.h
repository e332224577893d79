//===- PlainExport.h - an export with a batch of one ------------*- C++ -*-===//
//
// torch.onnx.export(model, args) fixes the batch of the example, folds BatchNormalization into convolutions, drops
// dropout and renames weights. It can be trained, but its author probably wanted another export: one warning says so,
// with the right call. Another batch (--shape) is possible if no constant of the graph contains the old batch size.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_PLAINEXPORT_H
#define TCC_FRONTEND_PLAINEXPORT_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// True if torch's newer exporter made the graph: it leaves notes at nodes and values.
bool hasTorchNotes(const onnx::GraphProto &graph);

/// An export with a batch of one, and the warning about it.
struct PlainExport {
  std::string warning; ///< empty if the model is no such export
  /// Its inputs with a larger batch; empty with --shape.
  std::map<std::string, std::vector<int64_t>> larger;

  /// The warning, with --shape for a larger batch, or with the `problem` of an import with the shapes `larger`.
  std::string text(const std::string &problem) const;
};

/// A warning if PyTorch exported the module in eval() mode, as far as the graph shows: its norms do not train, or it
/// has no dropout. Empty if any node was exported in train() mode.
std::string inferenceExport(const OnnxFile &file);

/// `shapes`: those of --shape.
PlainExport plainExport(const OnnxFile &file, const std::map<std::string, std::vector<int64_t>> &shapes);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_PLAINEXPORT_H
