//===- AttentionFactors.cpp - operands as factors of products -------------===//
#include "compiler/kernels/AttentionFactors.h"

using namespace mlir;

namespace tcc::train {

MatrixView AttentionFactors::widened(const MatrixView &matrix, int64_t copyOffset, Value rowEnd, int64_t columnCount) {
  if (!c.layout.isNarrow || c.layout.pairs)
    return matrix;
  MatrixView copy = c.scratch(copyOffset, columnCount);
  e.copyRows(matrix, copy, rowEnd, columnCount);
  return copy;
}

MatrixView AttentionFactors::alongRows(const MatrixView &matrix, int64_t copyOffset, Value rowEnd, bool odd,
                                       int64_t columnCount) {
  if (!c.layout.pairs)
    return widened(matrix, copyOffset, rowEnd, columnCount);
  MatrixView copy = c.words(copyOffset, columnCount);
  e.pairRows(matrix, copy, rowEnd, odd, columnCount / 2);
  return copy;
}

void AttentionFactors::transposeQueries(const MatrixView &from, int64_t to, int64_t features) {
  Value count = e.minus(block.queryEnd, block.queryFirst);
  int64_t row = c.steps(features);
  e.each(e.index(0), e.roundUp(count, e.lanes()), e.lanes(), [&](Value offset) {
    MatrixView rows = from, target = c.scratch(to, e.lanes());
    target.words = from.words;
    rows.base = e.plus(rows.base, e.times(offset, rows.rowStride));
    target.base = e.plus(target.base, e.times(offset, row));
    e.transposeIn(rows, target, e.lanes(), c.s.queries % e.lanes() ? e.minus(count, offset) : Value(), e.index(0),
                  e.index(row), row);
  });
}

MatrixView AttentionFactors::panel(int64_t offset, const QueryVector &v, int64_t features) {
  MatrixView view = c.scratch(offset, e.lanes());
  view.base = e.plus(view.base, e.times(v.offset, features));
  return view;
}

MatrixView AttentionFactors::operandPanel(int64_t offset, const QueryVector &v, int64_t features) {
  MatrixView view = panel(offset, v, c.steps(features));
  view.words = c.layout.pairs;
  return view;
}

MatrixView AttentionFactors::secondHalf(MatrixView lanes, Value firstRow) {
  lanes.base = e.plus(e.plus(lanes.base, e.times(firstRow, lanes.rowStride)), e.lanes() / 2);
  return lanes;
}

void AttentionFactors::multiplyRows(const MatrixView &rows, const MatrixView &panel, const MatrixView &to,
                                    const QueryVector &v, int64_t features,
                                    llvm::function_ref<void(Value, Value)> beside, Value finishEnd,
                                    llvm::function_ref<Value(Value, Value)> finish) {
  const int64_t keys = c.s.keys;
  auto all = [&](Value) { return std::pair(e.index(0), e.index(c.steps(features))); };
  Value wholeEnd = v.halfEnd ? v.halfEnd : v.rowEnd;
  if (!finishEnd)
    finishEnd = wholeEnd;
  e.multiply({rows, panel, to, finishEnd, keys % e.rows(), e.lanes(), all, false, {}, beside, finish});
  auto from = [&](MatrixView matrix, Value row) {
    matrix.base = e.plus(matrix.base, e.times(row, matrix.rowStride));
    return matrix;
  };
  if (finishEnd != wholeEnd)
    e.multiply({from(rows, finishEnd), panel, from(to, finishEnd), e.minus(wholeEnd, finishEnd), keys % e.rows(),
                e.lanes(), all, false});
  if (!v.halfEnd)
    return;
  MatrixView rest = from(rows, v.halfEnd);
  e.multiply({rest, secondHalf(panel, e.index(0)), secondHalf(to, v.halfEnd), e.minus(v.rowEnd, v.halfEnd),
              keys % e.rows(), e.lanes() / 2, all, false});
}

} // namespace tcc::train
