//===- FoldedWeights.h - what exporters computed from weights ---*- C++ -*-===//
//
// torch's newer exporter evaluates whatever depends on no input, and stores the result as an initializer: the transpose of
// a weight, and its exponential. The first is the weight, whose gradient moves with its elements. The second is not: to
// train exp(w) is another model than to train w. The exporter's notes list all values that a result was computed from;
// their names say what was done (TorchOps.h).
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

/// `values`: those that the graph computes; of these a shape at most entered the result.
FoldSources foldSources(const OnnxFile &file, const OnnxInitializer &initializer,
                        const std::set<std::string> &values = {});

/// The one part of the module's state that an initializer was computed from: a parameter, or, where there is none, a
/// buffer. Empty where there is none, or more than one.
std::string foldedParameter(const OnnxFile &file, const OnnxInitializer &initializer,
                            const std::set<std::string> &values = {});

/// Says for each initializer that was computed from parameters by more than a movement of their elements what was done:
/// "exp of a_log". `graph`: the nodes that read them. Errors: bytes that cannot be read.
Expected<std::map<std::string, std::string>> foldedFunctions(const OnnxFile &file, const onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_FOLDEDWEIGHTS_H
