//===- Winograd.cpp - convolutions by Winograd's method: shapes, checks, evaluators -===//
#include "compiler/dialect/Winograd.h"

#include "compiler/dialect/Verify.h"
#include "compiler/dialect/Window.h"

using namespace mlir;

namespace tcc::train {

WinogradShape winogradShapeOf(WinogradConvOp op) {
  WinogradShape s = winogradShapeOf(op.getInput(), op.getResult(), op.getPadsBegin(), op.getDilations());
  s.channelsAtATime = int64_t(op.getChannelBlock().value_or(0));
  return s;
}
WinogradShape winogradShapeOf(WinogradWeightGradOp op) {
  return winogradShapeOf(op.getInput(), op.getGrad(), op.getPadsBegin(), op.getDilations());
}
Type winogradSumType(Type element) { return element.isF64() ? element : Float32Type::get(element.getContext()); }

/// Measured cost, in multiply-adds, of transforming one element of each tile, loads and stores included.
static constexpr double kTransform = 180;

double WinogradShape::operations() const {
  double inputs = double(tiles() * channels * featureParts()), outputs = double(tiles() * features);
  double weights = double(chunks() * channels * featureParts() * featurePart());
  double products = double(kPoints) * double(tiles() * channels * featureParts() * featurePart());
  return products + kTransform * (inputs + outputs + weights);
}

double WinogradShape::gradOperations() const {
  int64_t channelBlocks = llvm::divideCeil(channels, gradChannels()),
          featureBlocks = llvm::divideCeil(features, gradFeatures());
  double products = double(kPoints) * double(tiles() * channelBlocks * gradChannels() * featureBlocks * gradFeatures());
  double inputs = double(tiles() * channels * featureBlocks), grads = double(tiles() * features * channelBlocks);
  return products + kTransform * (inputs + grads + double(gradParts() * channels * features));
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//
static LogicalResult verifyActivations(Operation *op, Value input, Value output, llvm::ArrayRef<int64_t> padsBegin,
                                       llvm::ArrayRef<int64_t> dilations) {
  if (shapeOf(input).size() != 4 || shapeOf(output).size() != 4 || padsBegin.size() != 2 || dilations.size() != 2)
    return op->emitOpError("needs channels-last activations of rank 4, two pads and two dilations");
  if (shapeOf(input)[0] != shapeOf(output)[0])
    return op->emitOpError("needs one batch size");
  if (elementTypeOf(input) != elementTypeOf(output))
    return op->emitOpError("needs activations of one element type");
  if (padsBegin[0] < 0 || padsBegin[1] < 0)
    return op->emitOpError("needs pads that are not negative");
  if (dilations[0] < 1 || dilations[1] < 1)
    return op->emitOpError("needs dilations that are positive");
  return success();
}

LogicalResult WinogradConvOp::verify() {
  if (failed(verifyActivations(*this, getInput(), getResult(), getPadsBegin(), getDilations())))
    return failure();
  if (elementTypeOf(getWeight()) != elementTypeOf(getInput()))
    return emitOpError("needs weights of the input's element type");
  WinogradShape s = winogradShapeOf(*this);
  if (s.channels % s.channelBlock() != 0)
    return emitOpError("needs a channelBlock that divides its channels");
  bool turned = getTransposed();
  int64_t wanted[] = {turned ? s.channels : s.features, turned ? s.features : s.channels, WinogradShape::kTaps,
                      WinogradShape::kTaps};
  return shapeOf(getWeight()) == llvm::ArrayRef(wanted) ? success()
                                                        : emitOpError("needs 3x3 weights between its channels");
}

LogicalResult WinogradWeightGradOp::verify() {
  if (failed(verifyActivations(*this, getInput(), getGrad(), getPadsBegin(), getDilations())))
    return failure();
  WinogradShape s = winogradShapeOf(*this);
  int64_t wanted[] = {s.gradParts(), s.features, s.channels, WinogradShape::kTaps, WinogradShape::kTaps};
  if (shapeOf(getResult()) != llvm::ArrayRef(wanted) ||
      elementTypeOf(getResult()) != winogradSumType(elementTypeOf(getInput())))
    return emitOpError("needs a result of ")
           << s.gradParts() << " parts, features, channels, 3 and 3 in " << winogradSumType(elementTypeOf(getInput()));
  return success();
}

double WinogradConvOp::getFlops() { return 2 * winogradShapeOf(*this).productOperations(); }
double WinogradWeightGradOp::getFlops() { return 2 * winogradShapeOf(*this).productOperations(); }

//===----------------------------------------------------------------------===//
// Evaluators: plain sums of products
//===----------------------------------------------------------------------===//

/// Calls `product` with the tile's number and the indices of each input, tap and output that belong together, without
/// channel and feature, which callers add.
static void forEachTap(const WinogradShape &s,
                       llvm::function_ref<void(int64_t tile, int64_t pixel, int64_t tap, int64_t output)> product) {
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t row = 0; row < s.rows; ++row)
      for (int64_t column = 0; column < s.columns; ++column)
        for (int64_t tap = 0; tap < 9; ++tap) {
          int64_t y = row - s.padTop + tap / 3 * s.dilationRows, x = column - s.padLeft + tap % 3 * s.dilationColumns;
          if (y < 0 || y >= s.height || x < 0 || x >= s.width)
            continue;
          int64_t grid = (n * s.dilationRows + row % s.dilationRows) * s.dilationColumns + column % s.dilationColumns;
          int64_t tile = (grid * s.tileRows() + row / s.dilationRows / s.kOutputs) * s.tileColumns() +
                         column / s.dilationColumns / s.kOutputs;
          product(tile, (n * s.height + y) * s.width + x, tap, (n * s.rows + row) * s.columns + column);
        }
}

void WinogradConvOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  WinogradShape s = winogradShapeOf(*this);
  std::vector<double> sums(results[0].size());
  forEachTap(s, [&](int64_t, int64_t pixel, int64_t tap, int64_t output) {
    for (int64_t k = 0; k < s.features; ++k)
      for (int64_t c = 0; c < s.channels; ++c) {
        int64_t weight = getTransposed() ? (c * s.features + k) * 9 + 8 - tap : (k * s.channels + c) * 9 + tap;
        sums[output * s.features + k] += operands[0].getDouble(pixel * s.channels + c) * operands[1].getDouble(weight);
      }
  });
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setDouble(i, sums[i]);
}

void WinogradWeightGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  WinogradShape s = winogradShapeOf(*this);
  std::vector<double> sums(results[0].size());
  forEachTap(s, [&](int64_t tile, int64_t pixel, int64_t tap, int64_t output) {
    int64_t part = tile / s.gradPartTiles();
    for (int64_t c = 0; c < s.channels; ++c)
      for (int64_t k = 0; k < s.features; ++k)
        sums[((part * s.features + k) * s.channels + c) * 9 + tap] +=
            operands[0].getDouble(pixel * s.channels + c) * operands[1].getDouble(output * s.features + k);
  });
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setDouble(i, sums[i]);
}

} // namespace tcc::train
