//===- PointwiseConvolutions.cpp - 1×1 convolutions that are products ----===//
//
// A channels-last 1×1 convolution multiplies the pixels of all samples, a matrix with a row for each, by its weights,
// and its gradients are the other two products of the three matrices. With stride 1 tensors are only reshaped. With a
// larger stride the pixels that are read are gathered, and their gradients padded with zeros.
//
// Both ways add the same products, but copy different operands (measured in docs/design/layouts.md):
//  - bf16 on a level without bf16 instructions: panels widen operands as they read them; the library needs widened
//    copies. The product is used whenever it runs on panels.
//  - Else the library copies a convolution's weights into its own layout at each call, and several partial sums of
//    their gradient back. The product is used if weights are large and pixels few.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "compiler/target/cpu/passes/CpuPasses.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_POINTWISECONVOLUTIONSPASS
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

namespace {

class PointwiseConvolutions : public impl::PointwiseConvolutionsPassBase<PointwiseConvolutions> {
public:
  using PointwiseConvolutionsPassBase::PointwiseConvolutionsPassBase;

  void runOnOperation() override {
    if (!getOperation()->hasAttr(names::kEntry))
      return;
    target = target::targetOf(getOperation());
    if (!target)
      return;
    for (Operation &op : llvm::make_early_inc_range(getOperation().getBody().front())) {
      OpBuilder builder(&op);
      Value result;
      if (auto conv = dyn_cast<ConvOp>(op))
        result = replace(builder, conv);
      else if (auto grad = dyn_cast<ConvInputGradOp>(op))
        result = replace(builder, grad);
      else if (auto grad = dyn_cast<ConvWeightGradOp>(op))
        result = replace(builder, grad);
      if (!result)
        continue;
      op.getResult(0).replaceAllUsesWith(result);
      op.erase();
    }
    eraseDeadOps(getOperation()); // views made for products that were not used
  }

private:
  /// Least elements of large weights, and the most pixels for which copying them matters: once for an input gradient,
  /// and once for each part of the batch for a weight gradient.
  static constexpr int64_t kLargeWeight = 1 << 18, kFewPixels = 512, kFewPixelsOfSums = 2048;

  template <typename OpTy> static bool isPointwise(OpTy op, Value weight) {
    auto zero = [](int64_t value) { return value == 0; };
    return op.getChannelsLast() && op.getGroups() == 1 &&
           llvm::all_of(shapeOf(weight).drop_front(2), [](int64_t extent) { return extent == 1; }) &&
           llvm::all_of(op.getPadsBegin(), zero) && llvm::all_of(op.getPadsEnd(), zero);
  }

  Value replace(OpBuilder &builder, ConvOp op) {
    if (!isPointwise(op, op.getWeight()))
      return {};
    Value pixels = gather(builder, op.getInput(), op.getStrides());
    Value made = multiply(builder, op, pixels, op.getWeight(), false, true, /*fewPixels=*/0);
    return made ? reshape(builder, op.getLoc(), made, shapeOf(op.getResult())) : Value();
  }

  Value replace(OpBuilder &builder, ConvInputGradOp op) {
    if (!isPointwise(op, op.getWeight()))
      return {};
    Value made = multiply(builder, op, op.getGrad(), op.getWeight(), false, false, kFewPixels);
    if (!made)
      return {};
    SmallVector<int64_t> shape(shapeOf(op.getGrad()));
    shape.back() = shapeOf(op.getResult()).back();
    made = reshape(builder, op.getLoc(), made, shape);
    if (shape == shapeOf(op.getResult()))
      return made;
    return PadOp::create(builder, op.getLoc(), op.getResult().getType(), made, SmallVector<int64_t>(shape.size(), 0),
                         stepsOf(op.getStrides()), llvm::APFloat(0.0));
  }

  Value replace(OpBuilder &builder, ConvWeightGradOp op) {
    if (!isPointwise(op, op.getResult()))
      return {};
    Value pixels = gather(builder, op.getInput(), op.getStrides());
    Value made = multiply(builder, op, op.getGrad(), pixels, true, false, kFewPixelsOfSums);
    return made ? reshape(builder, op.getLoc(), made, shapeOf(op.getResult())) : Value();
  }

  /// The steps of all dimensions of a channels-last tensor.
  static SmallVector<int64_t> stepsOf(ArrayRef<int64_t> strides) {
    SmallVector<int64_t> steps{1};
    llvm::append_range(steps, strides);
    steps.push_back(1);
    return steps;
  }

  /// The pixels that a convolution reads. Each product gathers them itself; minimize-saved decides whether they are
  /// kept for the backward pass.
  static Value gather(OpBuilder &builder, Value value, ArrayRef<int64_t> strides) {
    SmallVector<int64_t> shape(shapeOf(value)), steps = stepsOf(strides);
    for (auto [extent, step] : llvm::zip(shape, steps))
      extent = llvm::divideCeil(extent, step);
    if (shape == shapeOf(value))
      return value;
    auto type = RankedTensorType::get(shape, elementTypeOf(value));
    return SliceOp::create(builder, value.getLoc(), type, value, SmallVector<int64_t>(shape.size(), 0), steps);
  }

  /// Reshapes to one matrix, with a row for each pixel of a channels-last tensor, or for each feature of weights.
  static Value asMatrix(OpBuilder &builder, Value value, bool isWeight) {
    int64_t columns = isWeight ? shapeOf(value)[1] : shapeOf(value).back();
    return reshape(builder, value.getLoc(), value, {1, tensorTypeOf(value).getNumElements() / columns, columns});
  }

  /// Creates the product that equals `op`, or returns null if it is not faster. Copies matter up to `fewPixels` pixels.
  Value multiply(OpBuilder &builder, Operation *op, Value lhs, Value rhs, bool transA, bool transB, int64_t fewPixels) {
    lhs = asMatrix(builder, lhs, false);
    rhs = asMatrix(builder, rhs, /*isWeight=*/!transA);
    auto type = RankedTensorType::get({1, shapeOf(lhs)[transA ? 2 : 1], shapeOf(rhs)[transB ? 1 : 2]},
                                      elementTypeOf(op->getResult(0)));
    auto product = MatMulOp::create(builder, op->getLoc(), type, lhs, rhs, transA, transB);
    int64_t weights = transA ? type.getNumElements() : tensorTypeOf(rhs).getNumElements();
    bool copiesCount = weights >= kLargeWeight && shapeOf(lhs)[1] <= fewPixels;
    bool isWidened = elementTypeOf(lhs).isBF16() && !target->capabilities().multipliesBf16;
    std::optional<target::Call> call = target->call(product);
    if (call && (isWidened ? call->readsInPlace : copiesCount))
      return product;
    product->erase();
    return {};
  }

  const target::Target *target = nullptr;
};

} // namespace

} // namespace tcc::train
