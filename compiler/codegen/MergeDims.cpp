//===- MergeDims.cpp - merge adjacent dimensions of kernels ---------------===//
#include "compiler/codegen/KernelEmitter.h"

using namespace mlir;

namespace tcc::codegen {

namespace {

/// Merges adjacent dimensions in which every operand is dense or every operand broadcast: an elementwise region over
/// [4, 64, 768] becomes one over [256, 768]. Not for reductions, whose tree would change. Rewrites the clone's types;
/// memory does not change.
void collapseDims(train::FusedOp fused) {
  Block &body = fused.getBody().front();
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  auto yield = cast<train::YieldOp>(body.getTerminator());
  if (yield.getValues().empty())
    return;
  SmallVector<int64_t> shape(shapeOf(yield.getValues()[0]));
  if (shape.size() < 2)
    return;
  for (Value value : yield.getValues())
    if (shapeOf(value) != ArrayRef<int64_t>(shape))
      return;
  auto isSmall = [&](Value value) { return cast<RankedTensorType>(value.getType()).getNumElements() == 1; };
  if (isSmall(yield.getValues()[0]))
    return; // small regions keep their dimensions, since merging would gain nothing
  SmallVector<bool> mergeable(shape.size() - 1, true); // with the next dimension
  for (Operation &op : body.without_terminator()) {
    if (op.hasTrait<train::Pointwise>() || isa<train::ConstantOp>(op)) {
      if (shapeOf(op.getResult(0)) != ArrayRef<int64_t>(shape) && !isSmall(op.getResult(0)))
        return;
      continue;
    }
    auto broadcast = dyn_cast<train::BroadcastOp>(&op);
    bool smallOnly = llvm::all_of(op.getResults(), isSmall) && llvm::all_of(op.getOperands(), isSmall);
    if (smallOnly || (broadcast && isSmall(broadcast.getInput()) && shapeOf(op.getResult(0)).size() == shape.size() &&
                      cast<RankedTensorType>(broadcast.getInput().getType()).getRank() <= 1))
      continue;
    if (isa<train::RandomOp>(op) && shapeOf(op.getResult(0)) == ArrayRef<int64_t>(shape))
      continue; // depends on the row-major index, which merging preserves
    if (isa<train::SliceOp>(op) && isSmall(op.getResult(0)))
      continue; // an element of the block of scalars
    if (!broadcast || !isa<BlockArgument>(broadcast.getInput()) || !broadcast.getInput().hasOneUse() ||
        shapeOf(op.getResult(0)) != ArrayRef<int64_t>(shape))
      return;
    ArrayRef<int64_t> from = shapeOf(broadcast.getInput());
    auto repeated = [&](size_t dim) {
      int64_t lead = shape.size() - from.size();
      return int64_t(dim) < lead || from[dim - lead] == 1;
    };
    // Dimensions of extent 1 merge with any: compare with the nearest longer dimension before.
    std::optional<bool> before;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (shape[dim] == 1)
        continue;
      if (before && *before != repeated(dim))
        mergeable[dim - 1] = false;
      before = repeated(dim);
    }
  }
  auto merge = [&](ArrayRef<int64_t> extents) {
    SmallVector<int64_t> merged{extents[0]};
    for (size_t dim = 1; dim < extents.size(); ++dim) {
      if (mergeable[dim - 1])
        merged.back() *= extents[dim];
      else
        merged.push_back(extents[dim]);
    }
    return merged;
  };
  if (!llvm::is_contained(mergeable, true))
    return;
  auto retype = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() == ArrayRef<int64_t>(shape))
      value.setType(RankedTensorType::get(merge(type.getShape()), type.getElementType()));
  };
  for (Operation &op : body.without_terminator())
    if (auto broadcast = dyn_cast<train::BroadcastOp>(&op); broadcast && !isSmall(broadcast.getInput())) {
      auto type = cast<RankedTensorType>(broadcast.getInput().getType());
      SmallVector<int64_t> padded(shape.size() - type.getRank(), 1);
      llvm::append_range(padded, type.getShape());
      broadcast.getInput().setType(RankedTensorType::get(merge(padded), type.getElementType()));
    }
  SmallVector<Value> values;
  for (BlockArgument argument : body.getArguments())
    values.push_back(argument);
  for (Operation &op : body.without_terminator())
    llvm::append_range(values, op.getResults());
  // The attribute of a constant has the type, too.
  for (Value value : values) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() != ArrayRef<int64_t>(shape))
      continue;
    retype(value);
    if (auto constant = value.getDefiningOp<train::ConstantOp>())
      constant.setValueAttr(
          cast<DenseElementsAttr>(constant.getValue()).resizeSplat(cast<ShapedType>(value.getType())));
  }
}

} // namespace

void mergeDims(train::FusedOp fused) {
  if (fused.getTileElements())
    return; // its rows correspond to those of a product
  for (Operation &op : fused.getBody().front())
    if (isa<train::Reducible>(op) || isa<train::LoopKernel>(op))
      return;
  collapseDims(fused);
}

} // namespace tcc::codegen
