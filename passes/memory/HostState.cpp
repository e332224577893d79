//===- HostState.cpp - state in the memory of the host --------------------===//
#include "passes/memory/HostState.h"

#include "compiler/planning/Transfers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"
#include "support/PlanNames.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// A copy of the views between `value` and its root, on another root.
Value withRoot(OpBuilder &builder, Value value, Value root) {
  Operation *view = value.getDefiningOp();
  if (!view || !view->hasTrait<View>())
    return root;
  Value source = withRoot(builder, view->getOperand(0), root);
  Operation *copy = view->clone();
  copy->setOperand(0, source);
  return builder.insert(copy)->getResult(0);
}

void fetchBeforeReads(BlockArgument argument) {
  llvm::SetVector<Operation *> readers;
  for (OpOperand *use : usesAcrossViews(argument))
    if (!use->getOwner()->hasTrait<OpTrait::IsTerminator>())
      readers.insert(use->getOwner());
  for (Operation *reader : readers) {
    OpBuilder builder(reader);
    Value fetched = FetchOp::create(builder, argument.getLoc(), argument.getType(), argument);
    for (OpOperand &operand : reader->getOpOperands())
      if (rootOf(operand.get()) == argument)
        operand.set(withRoot(builder, operand.get(), fetched));
  }
}

} // namespace

MovableState movableState(ModuleOp module) {
  llvm::StringMap<VariableOp> left;
  for (VariableOp variable : module.getOps<VariableOp>())
    if (planning::Bytes(tensorBytes(variable.getType())) >= planning::kLeastMovedBytes)
      left[variable.getSymName()] = variable;
  MovableState state;
  auto take = [&](StringRef name, auto isWanted) {
    auto found = left.find(name);
    if (found == left.end() || !isWanted(found->second.getRole()))
      return;
    state.names.push_back(name.str());
    left.erase(found);
  };
  auto ofUpdates = [](StringRef role) { return role == roles::kOptimizer || role == roles::kEma; };
  auto isWeight = [](StringRef role) { return role == roles::kParameter || role == roles::kFrozen; };
  // In the order of the instructions that change them.
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (!function->hasAttr(names::kEntry))
      continue;
    llvm::DenseMap<Value, StringRef> newState = newStateOf(function);
    for (Operation &op : function.getBody().front())
      for (Value result : op.getResults())
        if (auto found = newState.find(result); found != newState.end())
          take(found->second, ofUpdates);
  }
  state.weights = state.names.size();
  for (VariableOp variable : module.getOps<VariableOp>())
    take(variable.getSymName(), isWeight);
  return state;
}

void keepOnHost(func::FuncOp function, const llvm::StringSet<> &variables) {
  Operation *terminator = function.getBody().front().getTerminator();
  const StateArguments state(function);
  for (OpOperand &operand : terminator->getOpOperands()) {
    auto variable = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), names::kVariable);
    Operation *maker = operand.get().getDefiningOp();
    if (!variable || !variables.contains(variable.getValue()) || !maker)
      continue; // unchanged
    OpBuilder builder(function.getContext());
    builder.setInsertionPointAfter(maker);
    operand.set(StoreOp::create(builder, operand.get().getLoc(), operand.get().getType(), operand.get()));
  }
  for (BlockArgument argument : function.getArguments())
    if (StringAttr variable = variableOf(function, argument); variable && variables.contains(variable.getValue()))
      fetchBeforeReads(argument);
}

} // namespace tcc::train
