//===- SplitTaps.cpp - convolutions whose taps reach few outputs ----------===//
//
// If the dilation is a large part of the image, every tap except the middle one reads padding for most outputs. The
// convolution then becomes a sum of products, one for each tap, over the outputs that the tap reaches.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/passes/CpuPasses.h"
#include "compiler/target/cpu/passes/Taps.h"
#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SPLITTAPSPASS
#include "compiler/target/cpu/passes/CpuPasses.h.inc"

namespace {

/// A tap of all axes: the outputs that it reaches, and the inputs that they read.
struct Reach {
  int64_t tap = 0; ///< row-major in the kernel
  SmallVector<int64_t> output, input, extent;
};

SmallVector<Reach> reachesOf(ArrayRef<TapAxis> axes) {
  SmallVector<Reach> all{Reach()};
  for (const TapAxis &axis : axes) {
    SmallVector<Reach> longer;
    for (const Reach &reach : all)
      for (int64_t tap = 0; tap < axis.kernel; ++tap) {
        auto [first, end] = axis.reached(tap);
        if (first == end)
          continue;
        Reach more = reach;
        more.tap = reach.tap * axis.kernel + tap;
        more.output.push_back(first);
        more.input.push_back(first + axis.offset(tap));
        more.extent.push_back(end - first);
        longer.push_back(std::move(more));
      }
    all = std::move(longer);
  }
  return all;
}

/// Dimensions of a channels-last tensor.
SmallVector<int64_t> around(int64_t batch, ArrayRef<int64_t> spatial, int64_t channels) {
  SmallVector<int64_t> all{batch};
  llvm::append_range(all, spatial);
  all.push_back(channels);
  return all;
}

Value sliceOf(OpBuilder &builder, Value value, ArrayRef<int64_t> starts, ArrayRef<int64_t> shape) {
  if (shape == shapeOf(value))
    return value;
  return SliceOp::create(builder, value.getLoc(), RankedTensorType::get(shape, elementTypeOf(value)), value, starts,
                         SmallVector<int64_t>(shape.size(), 1));
}

/// Creates the ops of one split convolution.
class Splitter {
public:
  Splitter(Operation *op, ArrayRef<TapAxis> axes) : builder(op), loc(op->getLoc()), reaches(reachesOf(axes)) {
    Type element = elementTypeOf(op->getOperand(0));
    sumType = element.isF64() ? element : builder.getF32Type();
    for (const TapAxis &axis : axes)
      kernel *= axis.kernel;
  }

  Value forward(ConvOp op) {
    return correlation(op.getResult(), op.getInput(), op.getWeight(), &Reach::input, &Reach::output, true);
  }
  Value inputGradient(ConvInputGradOp op) {
    return correlation(op.getResult(), op.getGrad(), op.getWeight(), &Reach::output, &Reach::input, false);
  }
  Value weightGradient(ConvWeightGradOp op) {
    ArrayRef<int64_t> shape = shapeOf(op.getResult());
    SmallVector<Value> taps(kernel);
    for (const Reach &reach : reaches)
      taps[size_t(reach.tap)] =
          multiply(pixels(op.getGrad(), reach.output, reach), pixels(op.getInput(), reach.input, reach), true, false);
    for (Value &tap : taps)
      if (!tap)
        tap = splat(builder, loc, RankedTensorType::get({1, shape[0], shape[1]}, sumType), 0);
    auto type = RankedTensorType::get({int64_t(taps.size()), shape[0], shape[1]}, sumType);
    Value all = ConcatOp::create(builder, loc, type, taps, int64_t(0));
    all = reshape(builder, loc, transpose(builder, loc, all, {1, 2, 0}), shape);
    return train::cast(builder, loc, all, elementTypeOf(op.getResult()));
  }

private:
  /// [taps, outputs, inputs]
  Value tapsFirst(Value weight) {
    ArrayRef<int64_t> shape = shapeOf(weight);
    Value flat = reshape(builder, loc, weight, {shape[0], shape[1], kernel});
    return transpose(builder, loc, flat, {2, 0, 1});
  }
  Value weightOf(Value weights, const Reach &reach) {
    return sliceOf(builder, weights, {reach.tap, 0, 0}, {1, shapeOf(weights)[1], shapeOf(weights)[2]});
  }
  /// A matrix with a row for each pixel.
  Value pixels(Value value, ArrayRef<int64_t> first, const Reach &reach) {
    ArrayRef<int64_t> shape = shapeOf(value);
    Value part = sliceOf(builder, value, around(0, first, 0), around(shape[0], reach.extent, shape.back()));
    return reshape(builder, loc, part, {1, tensorTypeOf(part).getNumElements() / shape.back(), shape.back()});
  }
  Value multiply(Value lhs, Value rhs, bool transA, bool transB) {
    auto type = RankedTensorType::get({1, shapeOf(lhs)[transA ? 2 : 1], shapeOf(rhs)[transB ? 1 : 2]}, sumType);
    return MatMulOp::create(builder, loc, type, lhs, rhs, transA, transB);
  }

  using Place = SmallVector<int64_t> Reach::*;
  /// The products of all taps with the pixels of `source` at `from`, each added to the pixels of the result at `to`.
  Value correlation(Value result, Value source, Value weight, Place from, Place to, bool transB) {
    ArrayRef<int64_t> shape = shapeOf(result);
    auto type = RankedTensorType::get(shape, sumType);
    Value weights = tapsFirst(weight), all;
    for (const Reach &reach : reaches) {
      SmallVector<int64_t> extents = around(shape[0], reach.extent, shape.back());
      Value part = multiply(pixels(source, reach.*from, reach), weightOf(weights, reach), false, transB);
      part = reshape(builder, loc, part, extents);
      if (extents != shape)
        part = PadOp::create(builder, loc, type, part, around(0, reach.*to, 0),
                             SmallVector<int64_t>(extents.size(), 1), llvm::APFloat(0.0));
      all = all ? add(builder, loc, all, part) : part;
    }
    return train::cast(builder, loc, all, elementTypeOf(result));
  }

  OpBuilder builder;
  Location loc;
  SmallVector<Reach> reaches;
  int64_t kernel = 1; ///< taps
  Type sumType;
};

struct SplitTaps : impl::SplitTapsPassBase<SplitTaps> {
  void runOnOperation() override {
    if (!getOperation()->hasAttr(names::kEntry))
      return;
    for (Operation &op : llvm::make_early_inc_range(getOperation().getBody().front())) {
      Value result;
      if (auto conv = dyn_cast<ConvOp>(op); conv && pays(conv, conv.getWeight()))
        result = Splitter(&op, tapAxesOf(conv)).forward(conv);
      else if (auto grad = dyn_cast<ConvInputGradOp>(op); grad && pays(grad, grad.getWeight()))
        result = Splitter(&op, tapAxesOf(grad)).inputGradient(grad);
      else if (auto grad = dyn_cast<ConvWeightGradOp>(op); grad && pays(grad, grad.getResult()))
        result = Splitter(&op, tapAxesOf(grad)).weightGradient(grad);
      if (!result)
        continue;
      op.getResult(0).replaceAllUsesWith(result);
      op.erase();
    }
  }

private:
  /// Largest ratio of the operations of the split convolution to those of a direct one.
  static constexpr double kMostShare = 0.75;
  /// Most products that one convolution becomes.
  static constexpr int64_t kMostTaps = 32;

  template <typename OpTy> static bool pays(OpTy op, Value weight) {
    if (!op.getChannelsLast() || op.getGroups() != 1 || llvm::any_of(op.getStrides(), [](int64_t s) { return s != 1; }))
      return false;
    SmallVector<TapAxis> axes = tapAxesOf(op);
    auto channels = double(shapeOf(weight)[1]), features = double(shapeOf(weight)[0]);
    double share = 1, pixels = double(shapeOf(op->getOperand(0))[0]), taps = 1;
    for (const TapAxis &axis : axes) {
      share *= axis.share();
      pixels *= double(axis.output);
      taps *= double(axis.kernel);
    }
    if (share == 0 || share > kMostShare || taps > double(kMostTaps))
      return false;
    double direct = taps * pixels * channels * features;
    double copied = share * taps * pixels * (channels + features) + 2 * taps * channels * features;
    return share * direct + kCopiedElement * copied <= kMostShare * direct;
  }
};

} // namespace

} // namespace tcc::train
