//===- AttentionLayout.cpp - scratch of attention's kernels ---------------===//
#include "compiler/kernels/AttentionLayout.h"

#include "compiler/kernels/BlockProduct.h"

using namespace mlir;

namespace tcc::train {

ScoreTermForm scoreTermForm(llvm::ArrayRef<int64_t> shape) {
  if (shape.empty())
    return ScoreTermForm::kNone;
  if (shape[2] == 1)
    return ScoreTermForm::kKeys;
  return shape[3] == 1 ? ScoreTermForm::kQueries : ScoreTermForm::kFull;
}

bool suitsPairs(const AttentionShape &s, Type element) {
  return element.isBF16() && s.depth % 2 == 0 && s.width % 2 == 0;
}

bool isRowWise(const AttentionShape &s, Type element, const StridedLayout &layout, int64_t features, bool wordRows) {
  if (layout.strides.back() != (features > 1) ||
      llvm::any_of(layout.strides, [](int64_t stride) { return stride < 0; }))
    return false;
  return !(wordRows || suitsPairs(s, element)) ||
         (layout.offset % 2 == 0 &&
          llvm::all_of(llvm::ArrayRef(layout.strides).drop_back(), [](int64_t stride) { return stride % 2 == 0; }));
}

AttentionLayout::AttentionLayout(const AttentionShape &s, Type element, int64_t mostKeys, bool pairs)
    : isNarrow(element.getIntOrFloatBitWidth() == 16), pairs(pairs),
      blockKeys(std::min(mostKeys,
                         (s.keys + BlockEmitter::kMostRows - 1) / BlockEmitter::kMostRows * BlockEmitter::kMostRows)),
      elementBytes(s.sumType.isF64() ? 8 : 4) {
  if (scoreTermForm(s.biasShape) == ScoreTermForm::kFull)
    bias = take(blockKeys * kBlockQueries);
  if (scoreTermForm(s.maskShape) == ScoreTermForm::kFull)
    mask = take(blockKeys * kBlockQueries);
}

} // namespace tcc::train
