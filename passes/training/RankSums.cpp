//===- RankSums.cpp - what the ranks of a job sum for an update --*- C++ -*-===//
#include "passes/training/RankSums.h"

#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

/// Sets the builder behind the op that makes a value, or at the start of the entry.
static void setBehind(OpBuilder &builder, Block *entry, Value value) {
  if (Operation *producer = value.getDefiningOp())
    builder.setInsertionPointAfter(producer);
  else
    builder.setInsertionPointToStart(entry);
}

/// The place of a gradient in the order of the program; arguments come first.
static bool isBefore(Value first, Value second) {
  Operation *a = first.getDefiningOp(), *b = second.getDefiningOp();
  return b && (!a || a->isBeforeInBlock(b));
}

static Value sum(const Expr &value) {
  return AllReduceOp::create(*value.builder, value.loc, TypeRange(ValueRange(value.value)), ValueRange(value.value))
      ->getResult(0);
}

void sumOverRanks(EntryBuilder &entry, const ParallelSettings &parallel, Value &lossSum, Value &lossWeight,
                  llvm::MutableArrayRef<Value> gradients) {
  OpBuilder builder(entry.builder.getContext());
  Block *body = entry.builder.getInsertionBlock();
  auto at = [&](Value value) {
    setBehind(builder, body, value);
    return Expr(builder, value.getLoc(), value);
  };
  Value scale;
  if (parallel.average == "ranks") {
    Expr weight = at(isBefore(lossSum, lossWeight) ? lossWeight : lossSum).with(lossWeight);
    scale = weight.like(1) / weight;
    lossSum = weight.with(lossSum) * weight.with(scale);
    lossWeight = weight.like(1);
  }
  lossSum = sum(at(lossSum));
  lossWeight = sum(at(lossWeight));
  for (Value &gradient : gradients) {
    Location loc = gradient.getLoc();
    Expr value = at(scale && isBefore(gradient, scale) ? scale : gradient).with(gradient);
    value.loc = loc;
    Type element = elementTypeOf(gradient);
    if (scale)
      value = value * value.with(scale).cast(element);
    Type narrow = parallel.reduceDtype == "bf16"  ? Type(builder.getBF16Type())
                  : parallel.reduceDtype == "f16" ? Type(builder.getF16Type())
                                                  : element;
    if (element.isF32())
      value = value.cast(narrow);
    gradient = value.with(sum(value)).cast(element);
  }
}

llvm::SmallVector<Value> ofFirstRank(EntryBuilder &entry, llvm::ArrayRef<Value> values) {
  if (values.empty())
    return {};
  auto op = RankBroadcastOp::create(entry.builder, values.front().getLoc(), TypeRange(ValueRange(values)), values,
                                    entry.builder.getI64IntegerAttr(0));
  return llvm::SmallVector<Value>(op->getResults());
}

Value sharedRandomKey(EntryBuilder &entry, Location loc) {
  Value key = entry.randomKey();
  auto type = cast<RankedTensorType>(key.getType());
  const uint32_t words[] = {~0u, ~0u, ~0u, 0};
  Value mask = ConstantOp::create(entry.builder, loc, DenseElementsAttr::get(type, llvm::ArrayRef(words)));
  return AndOp::create(entry.builder, loc, key, mask);
}

} // namespace tcc::train
