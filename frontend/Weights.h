//===- Weights.h - undo merged and transposed weights of exporters --*- C++ -*-===//
//
// Exporters fold and merge weights as if they would never change again. Two of these habits change what is trained:
//  - Equal initializers become one. A fresh model's norms all start as ones and its biases as zeros, and would then be
//    trained as one. torch's older exporter leaves an Identity with the name that is gone; the newer one leaves the
//    module's name in the notes of the node that reads it. Each use gets its own initializer back.
//  - The transpose of a weight becomes a second initializer, so that a shared weight (a tied head, a layer used twice)
//    comes apart. Such pairs are named, and made one again where model.tie asks for it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_WEIGHTS_H
#define TCC_FRONTEND_WEIGHTS_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"
#include "frontend/WeightNames.h"

#include <set>

namespace tcc::frontend {

/// True for FLOAT, DOUBLE, FLOAT16 and BFLOAT16.
bool isFloatType(int32_t onnxType);

/// Splits merged weights and finds copied ones, as the settings ask: changes the file's initializers, ties and nodes.
/// Returns one line for each change or finding. Errors: weights that cannot be read.
Expected<std::vector<std::string>> restoreWeights(OnnxFile &file, const ModelSettings &settings);

/// Adds the nodes that compute tied copies from their originals.
void insertTies(const OnnxFile &file, onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_WEIGHTS_H
