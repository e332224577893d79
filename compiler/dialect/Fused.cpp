//===- Fused.cpp - questions about fused regions --------------------------===//
#include "compiler/dialect/TrainDialect.h"

using namespace mlir;

namespace tcc::train {

LoopKernel FusedOp::getLoopKernel() {
  for (Operation &op : getBody().front())
    if (auto kernel = dyn_cast<LoopKernel>(&op))
      return kernel;
  return nullptr;
}

int FusedOp::getRequiredInPlaceOperand() {
  LoopKernel kernel = getLoopKernel();
  if (!kernel || kernel.getInPlaceOperand() < 0)
    return -1;
  auto argument = dyn_cast<BlockArgument>(kernel->getOperand(kernel.getInPlaceOperand()));
  return argument ? int(argument.getArgNumber()) : -1;
}

SmallVector<std::pair<unsigned, unsigned>> FusedOp::getInPlacePairs() {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  Block &body = getBody().front();
  if (getLoopKernel()) {
    if (int operand = getRequiredInPlaceOperand(); operand >= 0)
      pairs.push_back({unsigned(operand), 0});
    return pairs;
  }
  // With a reduction an element is read again after it is written, level by level.
  for (Operation &op : body)
    if (isa<Reducible>(op))
      return pairs;
  OperandRange values = cast<YieldOp>(body.getTerminator()).getValues();
  for (BlockArgument argument : body.getArguments()) {
    // Every use is pointwise, up to the outputs.
    llvm::SmallPtrSet<Operation *, 8> seen;
    SmallVector<Value> work{argument};
    bool pointwise = true;
    while (!work.empty() && pointwise) {
      Value value = work.pop_back_val();
      for (Operation *user : value.getUsers()) {
        if (isa<YieldOp>(user) || !seen.insert(user).second)
          continue;
        pointwise = user->hasTrait<Pointwise>();
        if (!pointwise)
          break;
        llvm::append_range(work, user->getResults());
      }
    }
    if (!pointwise)
      continue;
    for (auto [index, value] : llvm::enumerate(values))
      if (value.getType() == argument.getType())
        pairs.push_back({argument.getArgNumber(), unsigned(index)});
  }
  return pairs;
}

} // namespace tcc::train
