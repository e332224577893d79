//===- FoldedWeights.h - initializers computed from weights -----*- C++ -*-===//
//
// torch's newer exporter evaluates everything that depends on no input, and stores the result as an initializer, such
// as the transpose of a weight or its exponential. The transpose may be trained in place of the weight, with a
// transposed gradient. The exponential may not: training exp(w) is not training w. The exporter's notes list all values
// that a result was computed from, and the names of these values contain the operations (TorchOps.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_FOLDEDWEIGHTS_H
#define TCC_FRONTEND_FOLDEDWEIGHTS_H

#include "frontend/OnnxFile.h"

namespace tcc::frontend {

/// The parts of the module's state that an initializer was computed from, by the exporter's notes.
struct FoldSources {
  std::vector<std::string> parameters, buffers;
};

/// `values`: those that the graph computes; at most their shapes entered the result.
FoldSources foldSources(const OnnxFile &file, const OnnxInitializer &initializer,
                        const std::set<std::string> &values = {});

/// The one part of the module's state that an initializer was computed from: a parameter, or, if there is none, a
/// buffer. Empty if there is none, or more than one.
std::string foldedParameter(const OnnxFile &file, const OnnxInitializer &initializer,
                            const std::set<std::string> &values = {});

/// For each initializer that was computed from parameters by more than moving their elements, describes the
/// computation: "exp of a_log". `graph`: the nodes that read them. Errors: bytes that cannot be read.
Expected<std::map<std::string, std::string>> foldedFunctions(const OnnxFile &file, const onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_FOLDEDWEIGHTS_H
