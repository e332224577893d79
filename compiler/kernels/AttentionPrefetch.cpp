//===- AttentionPrefetch.cpp - prefetch rows during products --------------===//
#include "compiler/kernels/AttentionPrefetch.h"

using namespace mlir;

namespace tcc::train {

AttentionPrefetch::Rows AttentionPrefetch::rows(MatrixView::Place place, int number, Value ofBatch, Value ofHead,
                                                Value first, int64_t most) {
  // Operands are queries, keys and values, then tensors with a row for each query; results of the gradient have the
  // same order.
  const AttentionShape &s = c.s;
  const bool ofKeys = number == 1 || number == 2;
  const int64_t extent = ofKeys ? s.keys : s.queries, count = std::min(most, extent);
  const bool ofValues = number == 2 || number == s.output || number == s.outputGrad;
  const bool isOutput = place == MatrixView::kResult && s.outputGrad < 0;
  Value start = e.least(first, e.index(extent - count));
  return {block.rowsOf(place, number, ofBatch, ofHead, start), count, ofValues || isOutput ? s.width : s.depth};
}

AttentionPrefetch::Share AttentionPrefetch::share(Value row, int64_t rows, Value column, int64_t columns) {
  int64_t across = llvm::divideCeil(columns, e.lanes());
  Value part = e.plus(e.times(e.divide(row, e.rows()), across), e.divide(column, e.lanes()));
  return {part, int64_t(llvm::divideCeil(rows, e.rows())) * across};
}

void AttentionPrefetch::ask(const Rows &ahead, const Share &share) {
  const int64_t lineElements = 64 / (c.layout.isNarrow ? 2 : c.s.sumType.getIntOrFloatBitWidth() / 8);
  const int64_t count = llvm::divideCeil(ahead.count, share.parts);
  Value first = e.least(e.times(share.part, count), e.index(ahead.count - count));
  e.each(first, e.plus(first, count), 1, [&](Value row) {
    Value start = e.times(e.indexOf(ahead.rows, row, e.index(0)), ahead.rows.words ? 2 : 1);
    for (int64_t feature = 0; feature < ahead.features; feature += lineElements) {
      Value index = e.plus(start, feature);
      if (ahead.rows.place == MatrixView::kResult)
        c.loops.prefetchResult(ahead.rows.number, index);
      else
        c.loops.prefetch(ahead.rows.number, index);
    }
  });
}

} // namespace tcc::train
