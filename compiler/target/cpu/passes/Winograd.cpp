//===- Winograd.cpp - which convolutions are computed by Winograd's method -===//
//
// 3×3 convolutions of stride 1 need 36 instead of 144 multiplications for each 4×4 outputs of a channel and feature,
// plus transforms, whose cost is amortised over the features (inputs), the channels (outputs) and the tiles (weights).
// The outputs of a dilated convolution are interleaved grids, each of which is an undilated convolution. Only an op's
// shape decides, so that its bits do not depend on the machine.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Winograd.h"
#include "compiler/target/cpu/passes/CpuPasses.h"
#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_WINOGRADPASS
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

namespace {

/// Largest ratio of Winograd's operations to those of a direct convolution: its products are smaller and slower than
/// the library's.
constexpr double kMostShare = 0.6;
/// With fewer channels or features registers stay half empty.
constexpr int64_t kLeastChannels = 16;

/// Whether attributes and types fit; extents are judged by pays().
template <typename OpTy> bool fits(OpTy op, Value weight) {
  llvm::ArrayRef<int64_t> w = shapeOf(weight);
  auto all = [](llvm::ArrayRef<int64_t> values, int64_t wanted) {
    return llvm::all_of(values, [&](int64_t v) { return v == wanted; });
  };
  Type element = elementTypeOf(op->getOperand(0));
  return op.getChannelsLast() && op.getGroups() == 1 && w.size() == 4 && w[2] == 3 && w[3] == 3 &&
         w[0] >= kLeastChannels && w[1] >= kLeastChannels && all(op.getStrides(), 1) && !element.isF64() &&
         llvm::all_of(llvm::zip(op.getPadsBegin(), op.getDilations()),
                      [](auto pair) { return std::get<0>(pair) <= 2 * std::get<1>(pair); });
}

struct Winograd : impl::WinogradPassBase<Winograd> {
  void runOnOperation() override {
    if (!getOperation()->hasAttr(names::kEntry))
      return;
    SmallVector<Operation *> convolutions;
    for (Operation &op : getOperation().getBody().front())
      if (isa<ConvOp, ConvInputGradOp, ConvWeightGradOp>(op))
        convolutions.push_back(&op);
    for (Operation *op : convolutions) {
      OpBuilder builder(op);
      Value result;
      if (auto conv = dyn_cast<ConvOp>(op))
        result = replace(builder, conv);
      else if (auto grad = dyn_cast<ConvInputGradOp>(op))
        result = replace(builder, grad);
      else
        result = replace(builder, cast<ConvWeightGradOp>(op));
      if (!result)
        continue;
      op->getResult(0).replaceAllUsesWith(result);
      op->erase();
    }
  }

private:
  static bool pays(double operations, const WinogradShape &s) {
    return operations <= kMostShare * s.directOperations();
  }

  static Value replace(OpBuilder &builder, ConvOp op) {
    if (!fits(op, op.getWeight()))
      return {};
    WinogradShape s = winogradShapeOf(op.getInput(), op.getResult(), op.getPadsBegin(), op.getDilations());
    if (!pays(s.operations(), s))
      return {};
    return WinogradConvOp::create(builder, op.getLoc(), op.getType(), op.getInput(), op.getWeight(), op.getPadsBegin(),
                                  op.getDilations(), /*transposed=*/false, /*channelBlock=*/IntegerAttr());
  }

  /// The gradient of an input is the convolution of the output's gradient with the reversed taps, with complementary
  /// padding (2 · dilation − pad).
  static Value replace(OpBuilder &builder, ConvInputGradOp op) {
    if (!fits(op, op.getWeight()))
      return {};
    ArrayRef<int64_t> dilations = op.getDilations();
    int64_t pads[] = {2 * dilations[0] - op.getPadsBegin()[0], 2 * dilations[1] - op.getPadsBegin()[1]};
    WinogradShape s = winogradShapeOf(op.getGrad(), op.getResult(), pads, dilations);
    if (!pays(s.operations(), s))
      return {};
    return WinogradConvOp::create(builder, op.getLoc(), op.getType(), op.getGrad(), op.getWeight(), pads, dilations,
                                  /*transposed=*/true, /*channelBlock=*/IntegerAttr());
  }

  static Value replace(OpBuilder &builder, ConvWeightGradOp op) {
    if (!fits(op, op.getResult()))
      return {};
    WinogradShape s = winogradShapeOf(op.getInput(), op.getGrad(), op.getPadsBegin(), op.getDilations());
    if (!pays(s.gradOperations(), s))
      return {};
    auto type = RankedTensorType::get({s.gradParts(), s.features, s.channels, 3, 3},
                                      winogradSumType(elementTypeOf(op.getInput())));
    Value parts = WinogradWeightGradOp::create(builder, op.getLoc(), type, op.getInput(), op.getGrad(),
                                               op.getPadsBegin(), op.getDilations());
    Value sum = s.gradParts() == 1 ? parts : reduceSum(builder, op.getLoc(), parts, {0});
    sum = reshape(builder, op.getLoc(), sum, shapeOf(op.getResult()));
    return train::cast(builder, op.getLoc(), sum, elementTypeOf(op.getResult()));
  }
};

} // namespace

} // namespace tcc::train
