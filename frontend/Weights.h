//===- Weights.h - undo merged and transposed weights of exporters --*- C++ -*-===//
//
// Exporters fold and merge weights as if they were constants. Two of these transformations change which values are
// trained:
//  - Equal initializers become one. A fresh model's norms all start as ones and its biases as zeros, and would then be
//    trained as one. torch's older exporter leaves an Identity with the removed name; the newer one leaves notes at the
//    node that reads it: the call with its arguments (MergedReads.h), and the module's name. Each use gets its own
//    initializer back.
//  - The transpose of a weight becomes a second initializer, so that a shared weight (a tied head, a layer used twice)
//    is split in two. Such pairs are reported, and tied again if model.tie asks for it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_WEIGHTS_H
#define TCC_FRONTEND_WEIGHTS_H

#include "compiler/recipe/Recipe.h"
#include "frontend/OnnxFile.h"
#include "frontend/MergedReads.h"
#include "frontend/WeightNames.h"

#include <functional>
#include <set>

namespace tcc::frontend {

/// True for FLOAT, DOUBLE, FLOAT16 and BFLOAT16.
bool isFloatType(int32_t onnxType);

/// The changes to merged and copied weights.
struct Restored {
  /// Two initializers, or parts of the module's state, and a text about them: "b (was a)".
  struct Pair {
    std::string name, of, text;
  };
  std::string file;
  std::vector<Pair> split, left, kept, apart, tied, doubtful;
  std::vector<DroppedParameter> dropped;
  bool nothingTied = false; ///< model.tie was set, but found nothing to tie
  std::vector<std::string> lost;     ///< parameters of the module that the file does not mention
  std::vector<std::string> refusals; ///< why the file cannot be trained: merges that cannot be undone

  /// A line for each kind of change or finding that affects an initializer for which `trained` is true.
  std::vector<std::string> lines(const std::function<bool(const std::string &)> &trained) const;
};

/// Splits merged weights and finds copied ones, as the settings ask: changes the file's initializers, ties and nodes.
/// Errors: weights that cannot be read.
Expected<Restored> restoreWeights(OnnxFile &file, const ModelSettings &settings);

/// True if a tensor with these bytes has several elements, all equal.
bool isSplat(const std::string &bytes, size_t element);

/// Adds the nodes that compute tied copies from their originals.
void insertTies(const OnnxFile &file, onnx::GraphProto &graph);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_WEIGHTS_H
