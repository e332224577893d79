//===- Import.h - import an ONNX graph as a train module --------*- C++ -*-===//
#ifndef TCC_FRONTEND_IMPORT_H
#define TCC_FRONTEND_IMPORT_H

#include "compiler/model/ImportedModel.h"
#include "compiler/recipe/Recipe.h"
#include "support/Status.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tcc::frontend {

/// A value of the graph that a loss reads.
struct LossValue {
  std::string name;
  std::string where = {}; ///< "recipe.toml:12:1" of the loss that names it, for messages; empty: they name the model
};

struct ImportOptions {
  std::map<std::string, int64_t> dims;                  ///< symbolic dimensions
  std::map<std::string, std::vector<int64_t>> shapes;   ///< --shape INPUT=…
  ModelSettings model;
  std::string recipeFile;
  std::map<std::string, std::string> where;             ///< Recipe::where, for messages
  std::map<std::string, int64_t> batchAxis;             ///< data.batch_axis: the sample axis of an input
  std::vector<LossValue> lossOf;                        ///< loss.of; values inside the graph become results, too
  bool dequantize = false; ///< rewrite a quantised model in floating point: Dequantize.h
  bool isolate = true;   ///< calls the ONNX library in child processes; false for fuzzers, which look for its crashes
  bool absentData = false; ///< files of external data may be missing: only shapes are needed
  bool isTrial = false;    ///< an import with other shapes, for comparison; starts no further trials
  bool forceF64 = false; ///< gradcheck: every float tensor and initializer becomes f64
};

/// Reads, checks and imports a model. Errors are complete: everything unsupported is in one message, one line each with
/// node name, op, opset and what would help; `problems`, if given, gets these lines.
Expected<ImportedModel> importModel(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options,
                                          std::vector<std::string> *problems = nullptr);

/// One error message for all refusals; `path` is the path of the file.
Status refusalOf(const std::string &path, const std::vector<std::string> &refusals);

/// What `tcc inspect` reports about one floating-point initializer.
struct InspectedInitializer {
  std::string name, type;
  std::vector<int64_t> dims;
  uint64_t bytes = 0;
  std::string list, reason; ///< as of Initializer
  std::string foldedFrom;   ///< the only part of the module's state that it was computed from; else empty
};

/// `tcc inspect`: inputs, outputs, initializers, ops, dynamic dimensions and all that is unsupported.
struct Inspection {
  std::string text;
  std::string suggestion; ///< a recipe that compiles, with a heading; empty: none is known
  std::vector<InspectedInitializer> initializers;
  std::vector<std::string> missing; ///< parameters of the module that the file does not mention
  std::vector<std::string> warnings, refusals, unsupported;
  std::optional<ImportedModel> imported; ///< none if the import fails; unbound dimensions have arbitrary values
};
Expected<Inspection> inspectModel(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_IMPORT_H
