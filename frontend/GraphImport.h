//===- GraphImport.h - import the nodes of a graph in order -----*- C++ -*-===//
//
// The driver of an import. Names live in scopes: a subgraph sees those around it, a function's body only its own. A
// problem does not end the import: the results of its node are marked as missing, their readers are skipped, and all
// problems are reported together.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_GRAPHIMPORT_H
#define TCC_FRONTEND_GRAPHIMPORT_H

#include "frontend/Import.h"
#include "frontend/NodeImport.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/Parameters.h"

#include <llvm/ADT/StringMap.h>

namespace tcc::frontend {

class GraphImport {
public:
  GraphImport(mlir::MLIRContext &context, const OnnxFile &file, const PreparedModel &model, const Roles &roles,
              const ImportOptions &options)
      : context(context), file(file), model(model), roles(roles), options(options), builder(&context) {}

  Expected<mlir::OwningOpRef<mlir::ModuleOp>> run();
  std::set<std::string> variables;
  std::set<std::string> sampleDims;  ///< symbols, as exported, of the sample axes
  std::vector<std::string> problems; ///< one line per node that could not be imported, if run() fails because of them
  std::vector<std::string> warnings;

private:
  /// Names visible to the nodes of one graph or function body.
  struct Scope {
    llvm::StringMap<Slot> slots;
    bool isolated = false;                        ///< a function's body, which sees no names outside
    const std::map<std::string, int64_t> *opsets; ///< by domain
    std::string suffix;                           ///< iterations, "[3][1]"
    std::string caller;                           ///< name of the call if this is a function's body; else empty
    mlir::Value gate;                             ///< a boolean: if false, no value outside the scope gets a gradient
  };

  mlir::Location locationOf(const std::string &name) {
    return mlir::NameLoc::get(mlir::StringAttr::get(&context, name));
  }

  // Variables and the function: Import.cpp.
  void createVariables();
  Status createFunction();
  void shrinkConstants();
  /// Values by the names that loss.of may use: a value's own, or that of the node that computes it alone.
  std::map<std::string, std::string> namedValues() const;
  /// True if the loss does not depend on nodes that could not be imported; outputs that do are dropped with a warning.
  bool cutBehindLoss();
  /// Adds the values inside the graph that ImportOptions::lossOf names.
  Status returnLossValues(llvm::SmallVectorImpl<mlir::Value> &results,
                                llvm::SmallVectorImpl<mlir::Attribute> &names);
  Status finish();
  Status allProblems() const;

  // Nodes: GraphImport.cpp.
  Expected<Slot> lookUp(const std::string &name, mlir::Location loc);
  mlir::DenseElementsAttr constantOf(mlir::Value value);
  void importNode(const onnx::NodeProto &node);
  Status importOp(NodeImport &n, const OpEntry &entry);
  Status importBody(NodeImport &n, const onnx::FunctionProto &body, const std::map<std::string, int64_t> &opsets);
  Expected<llvm::SmallVector<Slot>> importGraph(const NodeImport &n, const onnx::GraphProto &graph,
                                                      llvm::ArrayRef<Slot> inputs, const std::string &suffix,
                                                      mlir::Value gate = {});
  mlir::Value gated(mlir::Value value, mlir::Value gate, mlir::Location loc);
  void compareHint(const std::string &name, const Slot &slot);
  Status addConstants(const NodeImport &n, const onnx::GraphProto &graph);
  bool countNode(const std::string &name);
  int64_t mostFoldBytes() const;
  Status foldNewOps(mlir::Operation *before, llvm::MutableArrayRef<Slot> outputs);
  mlir::Value folded(mlir::Value value, int depth = 4);
  mlir::Value stopped(mlir::Value value, mlir::Location loc, const std::string &source);
  void stopGradients(NodeImport &n);
  void reportUnsupported(const onnx::NodeProto &node, const std::string &name, int64_t opset);
  void reportUnsupportedInside(const onnx::NodeProto &node);
  void fail(const onnx::NodeProto &node);
  static std::string nameIn(const Scope &scope, const onnx::NodeProto &node);
  int64_t opsetOf(const std::string &domain) const;
  const onnx::FunctionProto *functionOf(const onnx::NodeProto &node) const;

  mlir::MLIRContext &context;
  const OnnxFile &file;
  const PreparedModel &model;
  const Roles &roles;
  const ImportOptions &options;
  mlir::OpBuilder builder;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  std::vector<Scope> scopes;
  std::string firstProblem;                  ///< as a message of its own
  std::set<std::string> warned;
  std::vector<std::string> disagreements;    ///< of declared shapes with computed ones
  int64_t nodes = 0;        ///< and iterations
  int64_t foldedBytes = 0;
  ImportBudget budget;
  std::string diagnostics; ///< messages of MLIR's verifiers
};

} // namespace tcc::frontend

#endif // TCC_FRONTEND_GRAPHIMPORT_H
