//===- FoldConstants.cpp - evaluate ops whose operands are constants ------===//
//
// One sweep in program order suffices: a folded result is a constant operand of later ops. A gather whose constant
// indices form an arithmetic sequence (position embeddings) becomes a slice: it needs no look-up, and its gradient is
// written directly, where a scatter would add to zeros.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Fold.h"
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_FOLDCONSTANTSPASS
#include "passes/Passes.h.inc"

namespace {

/// First index and step of an increasing arithmetic sequence of indices within [0, extent); nullopt for others.
std::optional<std::pair<int64_t, int64_t>> progression(const HostTensor &indices, int64_t extent) {
  if (indices.size() == 0)
    return std::nullopt;
  auto at = [&](int64_t i) { return indices.getInt(i) < 0 ? indices.getInt(i) + extent : indices.getInt(i); };
  int64_t first = at(0), step = indices.size() > 1 ? at(1) - first : 1;
  if (step < 1 || first < 0)
    return std::nullopt;
  for (int64_t i = 0; i < indices.size(); ++i)
    if (at(i) != first + i * step || at(i) >= extent)
      return std::nullopt;
  return std::pair(first, step);
}

/// A slice equal to `gather`, or null.
Value gatherAsSlice(OpBuilder &builder, GatherOp gather) {
  auto constant = gather.getIndices().getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  // A splat does not increase, and expanding it may take any amount of memory.
  if (!dense || (dense.isSplat() && dense.getNumElements() > 1))
    return nullptr;
  Expr input(builder, gather.getLoc(), gather.getInput());
  llvm::SmallVector<int64_t> shape(shapeOf(input)), starts(shape.size(), 0), steps(shape.size(), 1);
  int64_t axis = gather.getAxis();
  auto found = progression(HostTensor::fromAttribute(constant.getValue()), shape[axis]);
  if (!found)
    return nullptr;
  std::tie(starts[axis], steps[axis]) = *found;
  shape[axis] = tensorTypeOf(gather.getIndices()).getNumElements();
  Value slice = SliceOp::create(builder, gather.getLoc(), RankedTensorType::get(shape, elementTypeOf(input)), input,
                                starts, steps);
  return input.with(slice).reshape(shapeOf(gather.getResult()));
}

struct FoldConstantsPass : impl::FoldConstantsPassBase<FoldConstantsPass> {
  using FoldConstantsPassBase::FoldConstantsPassBase;

  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      function.walk([&](Operation *op) {
        if (op->getNumOperands() == 0)
          return; // a constant already, or an iota: cheaper to compute than to load
        OpBuilder builder(op);
        llvm::SmallVector<Value> constants = foldIfConstant(builder, op, maxBytes);
        if (auto gather = dyn_cast<GatherOp>(op); gather && constants.empty())
          if (Value slice = gatherAsSlice(builder, gather))
            constants.push_back(slice);
        if (constants.empty())
          return;
        op->replaceAllUsesWith(constants);
        op->erase();
      });
      eraseDeadOps(function);
    }
  }
};
} // namespace
} // namespace tcc::train
