//===- Import.h - import an ONNX graph as a train module --------*- C++ -*-===//
#ifndef TCC_FRONTEND_IMPORT_H
#define TCC_FRONTEND_IMPORT_H

#include "compiler/recipe/Recipe.h"
#include "frontend/TorchShape.h"
#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tcc::frontend {

/// Where the bytes of an initializer are. Weights never enter the IR.
struct Initializer {
  std::string name;
  plan::TensorType type;      ///< as stored, also under forceF64
  const char *data = nullptr; ///< bytes in memory (inside the model file), in storage order; null where external
  std::string file;           ///< external data: path, offset and length (bytes)
  uint64_t offset = 0, bytes = 0;
  std::string display;        ///< the one parameter it was folded from, by the exporter's notes; else empty
  std::string node;           ///< a node that reads it
  std::vector<std::string> uses; ///< kinds of its readers, for @selectors: "bias", "norm", "embedding" (and "1d" from its rank)
  bool constant = false;      ///< a lifted constant or running statistic: not trained by default
  std::string list;           ///< "trained", "frozen", "buffer" or "constant", by the file and model.*
  std::string sign;           ///< the reason for `list`
  TorchShape torch;           ///< its shape in torch, for optimizers that depend on rank or orientation
  std::string torchName;      ///< its parameter's name in torch, if that differs and is certain
  bool namedByNode = false;   ///< `torchName` follows from its reader's name only
  bool computed = false;      ///< no part of the module's state, by the exporter's notes
};

/// An initializer that is read as a copy of another one.
struct TiedInitializer {
  std::string of;                   ///< the variable that it copies
  std::vector<int64_t> permutation; ///< of its axes; empty: the same elements in the same order
  plan::TensorType type;
};

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

/// A model and the owner of its bytes.
///
/// The module holds `train.variable` symbols (named by initializer; role parameter or frozen) and one function
/// @forward: arguments are the graph inputs (attributes train.name, train.sample_axis: i64, −1 for a constant), results
/// the graph outputs (train.name; train.sample_axis if the export's symbols, or an import with another batch, tell it).
/// Every op's location is a NameLoc with the ONNX node's name (or "OpType → output" if it has none).
struct ImportedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, Initializer> initializers;
  std::map<std::string, TiedInitializer> ties;
  std::vector<plan::Quantized> quantized;    ///< initializers that the file stores as integers, or whose scales are observed
  std::vector<plan::QuantizedRange> ranges;  ///< observed ranges of activations
  std::string name;            ///< file name without folder
  std::string strippedModel;   ///< serialised ModelProto without the bytes of initializers, for export
  std::vector<std::string> warnings;
  std::vector<std::string> refusals; ///< why it must not be trained: computed values are stored as parameters
  std::string unsaid;                ///< warns of settings that neither export nor recipe expresses; else empty
  std::vector<std::string> externalFiles; ///< of the model's data, each once, sorted
  std::shared_ptr<void> storage; ///< keeps Initializer::data alive
  std::string inferenceWarning;  ///< a warning for training (PlainExport.h); empty: none
};

/// Reads, checks and imports a model. Errors are complete: everything unsupported is in one message, one line each with node
/// name, op, opset and what would help; `problems`, if given, gets these lines.
Expected<ImportedModel> importModel(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options,
                                          std::vector<std::string> *problems = nullptr);

/// One error message of all refusals; `path` is the file's.
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
