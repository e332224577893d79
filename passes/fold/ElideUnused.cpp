//===- ElideUnused.cpp - remove unread values ------------------------------===//
//
// Dead code disappears once only the loss is requested. The pass adds the proof that a parameter gets no gradient, and
// names the node that read it for an output that training does not use.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_ELIDEUNUSEDPASS
#include "passes/Passes.h.inc"

namespace {

/// For each variable, the node of the first op that uses it in `function`.
llvm::StringMap<std::string> firstReaders(func::FuncOp function) {
  llvm::StringMap<std::string> readers;
  function.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (auto read = operand.getDefiningOp<ReadOp>(); read && !isa<func::ReturnOp>(op)) {
        llvm::StringRef node = nodeName(op->getLoc());
        readers.try_emplace(read.getVariable(), node.empty() ? op->getName().stripDialect().str() : node.str());
      }
  });
  return readers;
}

struct ElideUnusedPass : impl::ElideUnusedPassBase<ElideUnusedPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::StringMap<std::string> readers;
    for (func::FuncOp function : module.getOps<func::FuncOp>())
      for (auto &[variable, node] : firstReaders(function))
        readers.try_emplace(variable, node);
    for (func::FuncOp function : module.getOps<func::FuncOp>())
      eraseDeadOps(function);
    func::FuncOp loss = lookupFunction(module, "loss");
    if (!loss)
      return;
    llvm::StringSet<> read;
    loss.walk([&](ReadOp op) { read.insert(op.getVariable()); });
    for (VariableOp parameter : trainableParameters(module)) {
      if (read.contains(parameter.getSymName()))
        continue;
      auto reader = readers.find(parameter.getSymName());
      if (reader == readers.end())
        addUnusedParameter(module, parameter.getSymName(), "no node reads it", "");
      else
        addUnusedParameter(module, parameter.getSymName(), "no path to the loss", reader->second);
    }
  }
};
} // namespace
} // namespace tcc::train
