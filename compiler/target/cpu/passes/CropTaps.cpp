//===- CropTaps.cpp - kernels without the taps that read padding alone ----===//
//
// If a kernel or its dilation is larger than the input, the outer taps read only padding, for all outputs: a 3×3 kernel
// of dilation 36 over 32×32 pixels is a 1×1 kernel. The convolution gets a slice of the weights; the gradient of the
// others is 0.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/passes/CpuPasses.h"
#include "compiler/target/cpu/passes/Taps.h"
#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_CROPTAPSPASS
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

namespace {

/// Largest ratio of the cost of copying the remaining taps to the cost of the saved multiplications: a wide kernel that
/// loses only a few taps would just take more memory.
constexpr double kMostCopied = 0.5;

/// The remaining part of a convolution's kernel.
struct Crop {
  SmallVector<int64_t> first, kernel, padsBegin, padsEnd;
};

/// nullopt if each tap reaches some output, or if the copy of the weights costs too much.
template <typename OpTy> std::optional<Crop> cropOf(OpTy op) {
  if (!op.getChannelsLast())
    return std::nullopt;
  Crop crop;
  double taps = 1, left = 1, pixels = double(shapeOf(op->getOperand(0))[0]);
  for (auto [axis, end] : llvm::zip(tapAxesOf(op), op.getPadsEnd())) {
    int64_t first = 0, last = axis.kernel - 1, padEnd = end;
    while (first < last && !axis.reaches(first) && axis.offset(first + 1) <= 0)
      ++first;
    while (last > first && !axis.reaches(last) && padEnd >= axis.dilation) {
      --last;
      padEnd -= axis.dilation;
    }
    taps *= double(axis.kernel);
    left *= double(last + 1 - first);
    pixels *= double(axis.output);
    crop.first.push_back(first);
    crop.kernel.push_back(last + 1 - first);
    crop.padsBegin.push_back(-axis.offset(first));
    crop.padsEnd.push_back(padEnd);
  }
  // Both numbers for one input and one output channel.
  bool pays = left < taps && kCopiedElement * left <= kMostCopied * (taps - left) * pixels;
  return pays ? std::optional(crop) : std::nullopt;
}

struct CropTaps : impl::CropTapsPassBase<CropTaps> {
  void runOnOperation() override {
    if (!getOperation()->hasAttr(names::kEntry))
      return;
    for (Operation &op : llvm::make_early_inc_range(getOperation().getBody().front())) {
      if (auto conv = dyn_cast<ConvOp>(op))
        cropWeight(conv);
      else if (auto grad = dyn_cast<ConvInputGradOp>(op))
        cropWeight(grad);
      else if (auto grad = dyn_cast<ConvWeightGradOp>(op))
        cropGradient(grad);
    }
  }

private:
  static RankedTensorType typeOf(Value weight, const Crop &crop) {
    SmallVector<int64_t> shape(shapeOf(weight).take_front(2));
    llvm::append_range(shape, crop.kernel);
    return RankedTensorType::get(shape, elementTypeOf(weight));
  }
  static SmallVector<int64_t> startsOf(const Crop &crop) {
    SmallVector<int64_t> starts{0, 0};
    llvm::append_range(starts, crop.first);
    return starts;
  }
  template <typename OpTy> static void setPads(OpTy op, const Crop &crop) {
    op.setPadsBegin(crop.padsBegin);
    op.setPadsEnd(crop.padsEnd);
  }

  template <typename OpTy> static void cropWeight(OpTy op) {
    auto crop = cropOf(op);
    if (!crop)
      return;
    OpBuilder builder(op);
    auto type = typeOf(op.getWeight(), *crop);
    Value cut = SliceOp::create(builder, op.getLoc(), type, op.getWeight(), startsOf(*crop),
                                SmallVector<int64_t>(size_t(type.getRank()), 1));
    op.getWeightMutable().set(cut);
    setPads(op, *crop);
  }

  static void cropGradient(ConvWeightGradOp op) {
    auto crop = cropOf(op);
    if (!crop)
      return;
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    auto whole = op.getResult().getType();
    op.getResult().setType(typeOf(op.getResult(), *crop));
    setPads(op, *crop);
    auto padded = PadOp::create(builder, op.getLoc(), whole, op.getResult(), startsOf(*crop),
                                SmallVector<int64_t>(size_t(whole.getRank()), 1), llvm::APFloat(0.0));
    op.getResult().replaceAllUsesExcept(padded, padded);
  }
};

} // namespace

} // namespace tcc::train
