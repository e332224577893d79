//===- RankSums.cpp - sums over the ranks of a job ------------------------===//
#include "passes/training/RankSums.h"

#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "support/BytesText.h"
#include "support/PlanNames.h"

using namespace mlir;

namespace tcc::train {

/// Sets the insertion point behind the producer of a value; for an argument, at the start of the entry.
static void setBehind(OpBuilder &builder, Block *entry, Value value) {
  if (Operation *producer = value.getDefiningOp())
    builder.setInsertionPointAfter(producer);
  else
    builder.setInsertionPointToStart(entry);
}

/// True if `first` is computed before `second` in program order; arguments come first.
static bool isBefore(Value first, Value second) {
  Operation *a = first.getDefiningOp(), *b = second.getDefiningOp();
  return b && (!a || a->isBeforeInBlock(b));
}

static Expr sumOf(const Expr &number, int64_t within, int64_t across) {
  auto sum = AllReduceOp::create(*number.builder, number.loc, TypeRange(ValueRange(number.value)),
                                 ValueRange(number.value), uint64_t(within), uint64_t(across));
  return number.with(sum->getResult(0));
}

Expr sumOverRanks(const Expr &number) { return sumOf(number, 0, 0); }

Expr sumOfShards(const Expr &number, const ParallelSettings &parallel) {
  return sumOf(number, parallel.replicates() ? parallel.shardWithinNode : 0, 0);
}

RankedTensorType heldType(const ParallelSettings &parallel, RankedTensorType whole) {
  if (!parallel.sharded())
    return whole;
  const int64_t ranks = parallel.shardRanks(), shard = (whole.getNumElements() + ranks - 1) / ranks;
  return RankedTensorType::get({shard}, whole.getElementType());
}

template <typename Op> static Expr shardOp(const Expr &value, Type result, const ParallelSettings &parallel) {
  auto op = Op::create(*value.builder, value.loc, TypeRange(result), ValueRange(value.value),
                       value.builder->getI64IntegerAttr(parallel.shardRanks()));
  return value.with(op->getResult(0));
}

Expr ownShard(const Expr &value, const ParallelSettings &parallel) {
  return shardOp<OwnShardOp>(value, heldType(parallel, tensorTypeOf(value)), parallel);
}

Expr gatherShards(const Expr &shard, RankedTensorType whole, const ParallelSettings &parallel) {
  return shardOp<AllGatherOp>(shard, RankedTensorType::get(whole.getShape(), elementTypeOf(shard)), parallel);
}

/// A gradient in the type in which ranks send it.
static Expr sentForm(const Expr &gradient, const ParallelSettings &parallel) {
  if (!elementTypeOf(gradient).isF32() || parallel.reduceDtype == "f32")
    return gradient;
  MLIRContext *context = gradient.builder->getContext();
  return gradient.cast(parallel.reduceDtype == "bf16" ? Type(BFloat16Type::get(context))
                                                      : Type(Float16Type::get(context)));
}

/// Sums a gradient in its sent form over the ranks that share the state.
static Expr sumSent(const Expr &value, const ParallelSettings &parallel) {
  if (!parallel.sharded())
    return sumOf(value, 0, 0);
  const target::Target *target = target::targetOf(value.builder->getInsertionBlock()->getParentOp());
  if (parallel.virtualRanks && target && !target->capabilities().scattersInOneTree)
    return ownShard(sumOf(value, 0, 0), parallel);
  return shardOp<ReduceScatterOp>(value, heldType(parallel, tensorTypeOf(value)), parallel);
}

void scatterGradients(EntryBuilder &entry, const ParallelSettings &parallel,
                      llvm::MutableArrayRef<Value> gradients) {
  OpBuilder builder(entry.builder.getContext());
  for (Value &gradient : gradients) {
    setBehind(builder, entry.builder.getInsertionBlock(), gradient);
    const Expr value(builder, gradient.getLoc(), gradient);
    gradient = sumSent(sentForm(value, parallel), parallel).cast(elementTypeOf(gradient));
  }
}

void sumOverRanks(EntryBuilder &entry, const ParallelSettings &parallel, Value &lossSum, Value &lossWeight,
                  llvm::MutableArrayRef<Value> gradients, llvm::MutableArrayRef<Value> terms, bool areShards) {
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
  lossSum = sumOf(at(lossSum), 0, 0);
  lossWeight = sumOf(at(lossWeight), 0, 0);
  for (size_t i = 0; i < terms.size(); i += 2) {
    Value &sum = terms[i], &weight = terms[i + 1];
    if (parallel.average == "ranks") {
      Expr own = at(isBefore(sum, weight) ? weight : sum).with(weight);
      sum = own.with(sum) / own;
      weight = own.like(1);
    }
    sum = sumOf(at(sum), 0, 0);
    weight = sumOf(at(weight), 0, 0);
  }
  for (Value &gradient : gradients) {
    Location loc = gradient.getLoc();
    Expr value = at(scale && isBefore(gradient, scale) ? scale : gradient).with(gradient);
    value.loc = loc;
    Type element = elementTypeOf(gradient);
    if (scale)
      value = value * value.with(scale).cast(element);
    value = sentForm(value, parallel);
    if (!areShards)
      value = sumSent(value, parallel);
    if (parallel.replicates())
      value = sumOf(value, 0, parallel.shardWithinNode);
    gradient = value.cast(element);
  }
}

llvm::SmallVector<Value> ofFirstRank(EntryBuilder &entry, llvm::ArrayRef<Value> values) {
  if (values.empty())
    return {};
  auto op = RankBroadcastOp::create(entry.builder, values.front().getLoc(), TypeRange(ValueRange(values)), values,
                                    entry.builder.getI64IntegerAttr(0));
  return llvm::SmallVector<Value>(op->getResults());
}

std::string heldState(llvm::StringRef sum, int64_t level) { return (sum + "_" + llvm::Twine(level)).str(); }

void sumVirtualRanks(ModuleOp module, const ParallelSettings &parallel, llvm::ArrayRef<std::string> sums) {
  uint64_t bytes = 0;
  for (int64_t level = 0; level < parallel.heldLevels(); ++level)
    for (bool joins : {false, true}) {
      const llvm::StringRef kind = joins ? entries::kJoin : entries::kHold;
      EntryBuilder entry(module, (kind + llvm::Twine(level)).str());
      for (const std::string &name : sums) {
        Expr own(entry.builder, NameLoc::get(entry.builder.getStringAttr(name)), entry.state(name));
        bytes += level == 0 && joins ? uint64_t(tensorBytes(own.value.getType())) : 0;
        if (joins)
          entry.update(name, own.with(entry.state(heldState(name, level))) + own);
        else
          entry.update(heldState(name, level), own);
      }
      entry.finish();
    }
  // A join reads two sums and writes one; `hold` has read and written one of them before: five times the bytes.
  const auto most = uint64_t(parallel.virtualRanks / parallel.fewestRanks());
  std::string text =
      std::to_string(parallel.virtualRanks) + " virtual ranks, up to " + std::to_string(most) + " on a rank";
  if (most > 1)
    text += ", which then has " + std::to_string(parallel.heldLevels()) +
            (parallel.heldLevels() == 1 ? " sum" : " sums") + " of gradients more, " + bytesText(bytes) +
            " each, and moves " + bytesText(5 * bytes * (most - 1)) + " an update to add them";
  addNote(module, "parallel", "", text);
}

void dropRankSums(Block &body, llvm::MutableArrayRef<Value> values) {
  for (Operation &op : llvm::make_early_inc_range(body)) {
    if (auto norm = dyn_cast<BatchNormOp>(op))
      norm.setSync(false);
    auto sum = dyn_cast<AllReduceOp>(op);
    if (!sum)
      continue;
    for (auto [result, input] : llvm::zip_equal(sum->getResults(), sum.getInputs())) {
      llvm::replace(values, Value(result), Value(input));
      result.replaceAllUsesWith(input);
    }
    sum->erase();
  }
}

Value sharedRandomKey(EntryBuilder &entry, Location loc) {
  Value key = entry.randomKey();
  auto type = cast<RankedTensorType>(key.getType());
  const uint32_t words[] = {~0u, ~0u, ~0u, 0};
  Value mask = ConstantOp::create(entry.builder, loc, DenseElementsAttr::get(type, llvm::ArrayRef(words)));
  return AndOp::create(entry.builder, loc, key, mask);
}

} // namespace tcc::train
