//===- Attention.cpp - scaled dot-product attention -------------*- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Verify.h"

using namespace mlir;

namespace tcc::train {

LogicalResult AttentionOp::verify() { return success(); }
double AttentionOp::getFlops() { return 0; }
void AttentionOp::evaluate(llvm::ArrayRef<HostTensor>, llvm::MutableArrayRef<HostTensor>) {}
int64_t AttentionOp::getTileCount() { return 1; }
int64_t AttentionOp::getScratchBytes() { return 0; }
void AttentionOp::emitTile(LoopBuilder &, Value) {}
llvm::SmallVector<unsigned> AttentionOp::getAutocastOperands() { return {0, 1, 2}; }
void AttentionOp::buildGradient(OpBuilder &, ValueRange, llvm::SmallVectorImpl<Value> &gradients) {
  gradients.resize(getNumOperands());
}
llvm::SmallVector<Value> AttentionOp::buildInference(OpBuilder &) { return {getOutput(), getLogsumexp()}; }

LogicalResult AttentionGradOp::verify() { return success(); }
double AttentionGradOp::getFlops() { return 0; }
void AttentionGradOp::evaluate(llvm::ArrayRef<HostTensor>, llvm::MutableArrayRef<HostTensor>) {}
int64_t AttentionGradOp::getTileCount() { return 1; }
int64_t AttentionGradOp::getScratchBytes() { return 0; }
void AttentionGradOp::emitTile(LoopBuilder &, Value) {}
void AttentionGradOp::getCanonicalizationPatterns(RewritePatternSet &, MLIRContext *) {}

} // namespace tcc::train
