//===- EntryShapes.h - the shapes of a plan's entries -----------*- C++ -*-===//
//
// A plan has entries for one or several shapes, over the same state: those of training (model.dims, model.buckets,
// --dim), and where evaluate.dims or predict.dims say so, others for evaluation and prediction.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_DRIVER_ENTRYSHAPES_H
#define TCC_COMPILER_DRIVER_ENTRYSHAPES_H

#include "compiler/driver/CompileModel.h"
#include "compiler/recipe/Recipe.h"

#include <map>
#include <string>
#include <vector>

namespace tcc {

/// A shape, and the entries that are compiled for it.
struct EntryShape {
  DimValues dims;
  /// By the names that --entry takes: the number of this shape among those of the entry.
  std::map<std::string, uint64_t> numbers;
  std::string key; ///< the recipe key whose values it has, for messages: "evaluate.dims"

  /// "batch = 8, seq = 128".
  std::string text() const;
};

/// The recipe key that gives the shapes of training, for messages.
const char *shapesKey(const Recipe &recipe);

/// The shapes of training: at least one, each once, in the order in which they are given. Error: two lists.
Expected<std::vector<DimValues>> trainingShapes(const CompileOptions &options, const Recipe &recipe);

/// The shapes of these entries, those of training first.
Expected<std::vector<EntryShape>> entryShapes(const CompileOptions &options, const Recipe &recipe,
                                              const std::vector<std::string> &entries);

} // namespace tcc

#endif // TCC_COMPILER_DRIVER_ENTRYSHAPES_H
