//===- MarkNarrow.cpp - ops that may use the card's approximations --------===//
//
// Decided once for each op, before values are recomputed and kernels formed, so that a value has the same bits in every
// kernel that computes it.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Element.h"
#include "compiler/dialect/Views.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"

#include <map>

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_MARKNARROWPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

bool hasNarrowType(Value value) {
  Type element = elementTypeOf(value);
  return element.isBF16() || element.isF16();
}

/// Chains of elementwise ops around ops with results of one size.
class Chains {
public:
  explicit Chains(int64_t elements) : elements(elements) {}

  /// Whether `value` is computed elementwise from 16-bit tensors; other tensors of the chain are smaller.
  bool readsNarrow(Value value) { return originOf(value) == Origin::Narrow; }

  /// Whether all chains that read `value` end in a rounding to 16 bits, or in a reduction.
  bool isRounded(Value value) {
    auto [known, isNew] = rounded.try_emplace(value, true);
    if (!isNew)
      return known->second;
    bool all = !value.use_empty();
    for (OpOperand *use : usesAcrossViews(value))
      all = all && endsNarrow(use->getOwner());
    return rounded[value] = all;
  }

private:
  /// Of a chain's operands. Small: all of them are constants or smaller than `elements`, and none has 16 bits.
  enum class Origin { Small, Narrow, Wide };

  Origin originOf(Value value) {
    value = rootOf(value);
    if (hasNarrowType(value))
      return Origin::Narrow;
    if (!isa<FloatType>(elementTypeOf(value)))
      return Origin::Small;
    if (auto known = origins.find(value); known != origins.end())
      return known->second;
    Origin origin = tensorTypeOf(value).getNumElements() < elements ? Origin::Small : Origin::Wide;
    Operation *op = value.getDefiningOp();
    if (op && (op->hasTrait<Pointwise>() || op->hasTrait<HandsOutElements>() || isa<BroadcastOp>(op) ||
               (isa<Fusible>(op) && op->getNumOperands() == 0))) {
      origin = Origin::Small;
      for (Value operand : op->getOperands())
        origin = std::max(origin, originOf(operand));
    }
    return origins[value] = origin;
  }

  bool endsNarrow(Operation *reader) {
    if (isa<Reducible>(reader))
      return true;
    if (!reader->hasTrait<Pointwise>() && !reader->hasTrait<HandsOutElements>())
      return false;
    Value result = reader->getResult(0);
    return hasNarrowType(result) || (isa<FloatType>(elementTypeOf(result)) && readsNarrow(result) && isRounded(result));
  }

  int64_t elements;
  llvm::DenseMap<Value, Origin> origins;
  llvm::DenseMap<Value, bool> rounded;
};

struct MarkNarrowPass : impl::MarkNarrowPassBase<MarkNarrowPass> {
  void runOnOperation() override {
    std::map<int64_t, Chains> chains;
    for (Operation &op : getOperation().getOps()) {
      if (!op.hasTrait<HasNearForm>() || elementTypeOf(op.getResult(0)).isF64())
        continue;
      const int64_t elements = tensorTypeOf(op.getResult(0)).getNumElements();
      Chains &around = chains.try_emplace(elements, elements).first->second;
      const bool isNarrow = hasNarrowType(op.getResult(0));
      if (isNarrow || (around.readsNarrow(op.getOperand(0)) && around.isRounded(op.getResult(0))))
        op.setAttr(names::kOfNarrow, UnitAttr::get(&getContext()));
    }
  }
};

} // namespace

} // namespace tcc::train
