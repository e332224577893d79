//===- ImportedModel.h - a model as train module and facts ------*- C++ -*-===//
//
// What the frontend hands to the compiler: the module, and all that the plan needs of the file beside it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_MODEL_IMPORTEDMODEL_H
#define TCC_COMPILER_MODEL_IMPORTEDMODEL_H

#include "compiler/model/Initializer.h"
#include "runtime/plan/plan.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tcc {

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

} // namespace tcc

#endif // TCC_COMPILER_MODEL_IMPORTEDMODEL_H
