//===- InputDimensions.h - shapes that are given, and declared --*- C++ -*-===//
#ifndef TCC_FRONTEND_INPUTDIMENSIONS_H
#define TCC_FRONTEND_INPUTDIMENSIONS_H

#include "frontend/OnnxLibrary.h"

namespace tcc::frontend {

/// Binds the dimensions of the graph inputs, and of all values that name them; `unbound` gets those without a value, one line
/// each. Errors: a shape or a dimension that does not fit the inputs.
plan::Status bindDimensions(const OnnxFile &file, const PrepareOptions &options, onnx::GraphProto &graph,
                            std::vector<std::string> &unbound);

/// The error that lists unbound dimensions.
plan::Status unboundError(const OnnxFile &file, const std::vector<std::string> &unbound);

/// Takes what a graph declares of the shapes of values that its nodes compute.
void takeHints(onnx::GraphProto &graph, std::map<std::string, std::vector<int64_t>> &hints);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_INPUTDIMENSIONS_H
