//===- PruneStops.cpp - report stops and remove those without effect ------===//
//
// Exporters mark many values that no trainable parameter reaches: masks, positions, constants. Such a stop changes no
// gradient, but would break the chains of ops that later passes match. One sweep over each function keeps two sets: the
// values that a trainable parameter reaches at all, and those that it reaches through ops that pass gradients.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_PRUNESTOPSPASS
#include "passes/Passes.h.inc"

namespace {

using Notes = std::vector<std::pair<std::string, std::string>>;

/// Removes stops without effect; appends node and source of every stop that a trainable parameter reaches.
void prune(func::FuncOp function, const llvm::StringSet<> &trainable, Notes &notes) {
  llvm::DenseSet<Value> reached, varied; // only looked up, never iterated
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      if (trainable.contains(read.getVariable())) {
        reached.insert(read.getResult());
        varied.insert(read.getResult());
      }
      continue;
    }
    auto isIn = [](const llvm::DenseSet<Value> &set) { return [&](Value value) { return set.contains(value); }; };
    const bool reaches = llvm::any_of(op.getOperands(), isIn(reached));
    const bool varies = llvm::any_of(op.getOperands(), isIn(varied));
    if (reaches)
      reached.insert(op.result_begin(), op.result_end());
    for (Value result : op.getResults())
      if (varies && !op.hasTrait<NotDifferentiable>() && isFloatTensor(result))
        varied.insert(result);
    auto stop = dyn_cast<StopGradientOp>(op);
    if (!stop)
      continue;
    // The importer's own stops, in branches that may not count, have no source.
    if (reaches && !stop.getSource().empty())
      notes.emplace_back(nodeName(stop.getLoc()).str(), stop.getSource().str());
    if (varies)
      continue;
    eraseStop(stop);
  }
}

struct PruneStopsPass : impl::PruneStopsPassBase<PruneStopsPass> {
  void runOnOperation() override {
    llvm::StringSet<> trainable;
    for (VariableOp parameter : trainableParameters(getOperation()))
      trainable.insert(parameter.getSymName());
    Notes notes, unread;
    for (llvm::StringRef name : {"forward", "loss"})
      if (func::FuncOp function = lookupFunction(getOperation(), name); function && !function.isDeclaration())
        prune(function, trainable, name == "loss" ? notes : unread);
    addNotes(getOperation(), names::kStopNote, notes);
  }
};

} // namespace
} // namespace tcc::train
