//===- AttentionBias.cpp - static facts about an attention bias -----------===//
#include "passes/attention/AttentionBias.h"

#include "compiler/dialect/Builders.h"
#include "passes/attention/AttentionMask.h"

#include "llvm/ADT/SetVector.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

namespace {
constexpr size_t kMostOps = 1000;

/// Whether a value depends on function arguments and on variables; the search visits at most kMostOps values.
struct Sources {
  bool data = false, variables = false;
};
Sources sourcesOf(Value root) {
  llvm::SetVector<Value> seen;
  seen.insert(root);
  Sources found;
  for (size_t i = 0; i < seen.size() && i < kMostOps; ++i) {
    Operation *op = seen[i].getDefiningOp();
    found.variables |= isa_and_nonnull<ReadOp>(op);
    found.data |= !op;
    if (op)
      seen.insert(op->operand_begin(), op->operand_end());
  }
  return found;
}

bool isTrained(ReadOp op) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(op, op.getVariableAttr());
  return variable && variable.getRole() == "parameter";
}

bool isOrdinary(ConstantOp constant, double factor) {
  const HostTensor tensor = HostTensor::fromAttribute(constant.getValue());
  if (!tensor.isFloat())
    return false;
  for (int64_t i = 0; i < tensor.size(); ++i)
    if (!(std::abs(tensor.getDouble(i) * factor) < -kMaskFill)) // NaN, too
      return false;
  return true;
}
} // namespace

bool isFromDataAlone(Value root) {
  const Sources sources = sourcesOf(root);
  return sources.data && !sources.variables;
}

bool excludesNoKey(Value bias, double factor) {
  llvm::SetVector<Value> addends;
  addends.insert(bias);
  auto add = [&](Value value) { addends.insert(value); };
  for (size_t i = 0; i < addends.size(); ++i) {
    if (i == kMostOps)
      return false;
    Operation *op = addends[i].getDefiningOp();
    if (!op)
      return false;
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      if (!isOrdinary(constant, factor))
        return false;
    } else if (auto read = dyn_cast<ReadOp>(op)) {
      if (!isTrained(read))
        return false;
    } else if (isa<AddOp, SubOp, MulOp, DivOp, NegOp, ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ConcatOp>(op) ||
               (isa<CastOp>(op) && isFloatTensor(op->getOperand(0)))) {
      llvm::for_each(op->getOperands(), add);
    } else if (auto chosen = dyn_cast<SelectOp>(op)) {
      add(chosen.getOnTrue());
      add(chosen.getOnFalse());
    } else if (auto padded = dyn_cast<PadOp>(op)) {
      if (!(std::abs(padded.getValue().convertToDouble() * factor) < -kMaskFill))
        return false;
      add(padded.getInput());
    } else if (auto gather = dyn_cast<GatherOp>(op)) {
      add(gather.getInput());
    } else if (!sourcesOf(addends[i]).variables) { // a mask, or a computed constant
      return false;
    }
  }
  return true;
}

} // namespace tcc::train
