//===- InputDimensions.h - bind the dimensions of graph inputs --*- C++ -*-===//
#ifndef TCC_FRONTEND_INPUTDIMENSIONS_H
#define TCC_FRONTEND_INPUTDIMENSIONS_H

#include "frontend/OnnxLibrary.h"

namespace tcc::frontend {

/// Binds the dimensions of the graph inputs, and of all values that name them; `unbound` gets those without a value, one line
/// each. Errors: a shape or a dimension that does not fit the inputs.
Status bindDimensions(const OnnxFile &file, const PrepareOptions &options, onnx::GraphProto &graph,
                            std::vector<std::string> &unbound);

/// The error that lists unbound dimensions.
Status unboundError(const OnnxFile &file, const std::vector<std::string> &unbound);

/// Moves the declared shapes of values that the graph's nodes compute into `hints`.
void takeHints(onnx::GraphProto &graph, std::map<std::string, std::vector<int64_t>> &hints);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_INPUTDIMENSIONS_H
