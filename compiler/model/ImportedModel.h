//===- ImportedModel.h - a model as train module and facts ------*- C++ -*-===//
//
// The result of the frontend: the module, and the facts about the file that the plan needs beside it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_MODEL_IMPORTEDMODEL_H
#define TCC_COMPILER_MODEL_IMPORTEDMODEL_H

#include "compiler/model/TorchShape.h"
#include "runtime/plan/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tcc {

// The facts about an initializer that the plan keeps beside its variable in the IR: its names, and the place of its
// bytes. Only emit and reports read them; facts that passes need are attributes of the variable
// (compiler/dialect/WeightFacts.h).

/// Where the bytes of an initializer are. Weights never enter the IR.
struct Initializer {
  std::string name;
  plan::TensorType type;      ///< as stored, also under forceF64
  const char *data = nullptr; ///< bytes in memory (inside the model file), in storage order; null where external
  std::string file;           ///< external data: path, offset and length (bytes)
  uint64_t offset = 0, bytes = 0;
  std::string display;        ///< the one parameter it was folded from, by the exporter's notes; else empty
  std::string node;           ///< a node that reads it
  bool constant = false;      ///< a lifted constant or running statistic: not trained by default
  std::string list;           ///< "trained", "frozen", "buffer" or "constant", by the file and model.*
  std::string sign;           ///< the reason for `list`
  TorchShape torch;           ///< its shape in torch
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
  /// Initializers that the file stores as integers, or whose scales are observed.
  std::vector<plan::Quantized> quantized;
  std::vector<plan::QuantizedRange> ranges;  ///< observed ranges of activations
  std::string name;            ///< file name without folder
  std::string strippedModel;   ///< serialised ModelProto without the bytes of initializers, for export
  std::vector<std::string> warnings;
  std::vector<std::string> refusals; ///< why it must not be trained: computed values are stored as parameters
  std::string unsaid;                ///< warns of settings that neither export nor recipe expresses; else empty
  std::vector<std::string> externalFiles; ///< of the model's data, each once, sorted
  std::shared_ptr<void> storage; ///< keeps Initializer::data alive
  std::string batchStatistics;   ///< the first node that computes statistics over a batch when it trains; empty: none
  std::string inferenceWarning;  ///< a warning for training (PlainExport.h); empty: none
};

} // namespace tcc

#endif // TCC_COMPILER_MODEL_IMPORTEDMODEL_H
