//===- AttentionEmitter.cpp - IR for one block of attention scores --*- C++ -*-===//
#include "compiler/kernels/AttentionEmitter.h"
#include "compiler/dialect/PhiloxLanes.h"
#include "compiler/dialect/ScalarFunctions.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

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

bool isRowWise(const AttentionShape &s, Type element, const StridedLayout &layout) {
  if (layout.strides.back() > 1 || llvm::any_of(layout.strides, [](int64_t stride) { return stride < 0; }))
    return false;
  return !suitsPairs(s, element) ||
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

AttentionEmitter::AttentionEmitter(LoopBuilder &loops, const AttentionShape &shape, const AttentionLayout &layout)
    : s(shape), at(layout), loops(loops), b(loops.builder), loc(loops.loc), e(loops, shape.sumType),
      math(loops, e.lanes()), scalesLate(s.scale > 0 && !s.hasSlopes() && s.biasShape.empty()),
      bias{shape.bias, shape.biasShape, layout.bias, scoreTermForm(shape.biasShape)},
      mask{shape.mask, shape.maskShape, layout.mask, scoreTermForm(shape.maskShape)} {
  for (int64_t i = 0; s.dropout > 0 && i < 4; ++i) {
    Value stored = loops.load(unsigned(s.randomKey), e.index(i));
    randomWords.push_back(lane(e.splat(arith::ExtUIOp::create(b, loc, b.getI64Type(), stored), e.lanes())));
  }
}

Lane AttentionEmitter::load(int64_t scratchOffset, Value index) {
  return lane(e.load(scratch(0, 1), e.plus(index, scratchOffset), e.lanes()));
}

void AttentionEmitter::store(int64_t scratchOffset, Value index, Value value) {
  e.store(scratch(0, 1), e.plus(index, scratchOffset), value);
}

void AttentionEmitter::setHead(Value newBatch, Value newHead) {
  batch = newBatch;
  head = newHead;
  keyHead = keyHeadOf(head);
}

void AttentionEmitter::setQueries(Value first) {
  queryFirst = first;
  queryEnd = e.least(e.plus(first, kBlockQueries), e.index(s.queries));
}

void AttentionEmitter::setKeys(Value first) {
  keyFirst = first;
  keyEnd = e.least(e.plus(first, at.blockKeys), keysSeenBefore(queryEnd));
  for (const Term *term : {&bias, &mask})
    if (term->form == ScoreTermForm::kFull)
      bringTerm(*term);
}

Value AttentionEmitter::keysSeenBefore(Value end) {
  if (!s.causal)
    return e.index(s.keys);
  return e.most(e.least(e.plus(end, s.causalOffset), e.index(s.keys)), e.index(0));
}

Value AttentionEmitter::queryBase() { return e.times(e.plus(e.times(batch, s.heads), head), s.queries); }

MatrixView AttentionEmitter::rowsOf(MatrixView::Place place, int number, Value ofBatch, Value ofHead, Value first) {
  bool reads = place == MatrixView::kOperand;
  const StridedLayout &layout = reads ? loops.layout(unsigned(number)) : loops.resultLayout(unsigned(number));
  const bool words = reads && at.pairs;
  auto in = [&](int64_t elements) { return words ? elements / 2 : elements; };
  Value base = e.plus(e.times(ofBatch, in(layout.strides[0])), e.times(ofHead, in(layout.strides[1])));
  base = e.plus(e.plus(base, e.times(first, in(layout.strides[2]))), in(layout.offset));
  return {place, unsigned(number), base, in(layout.strides[2]), 1, words};
}

AttentionEmitter::RowsAhead AttentionEmitter::rowsAhead(MatrixView::Place place, int number, Value ofBatch,
                                                        Value ofHead, Value first, int64_t most) {
  // Operands are queries, keys and values, then what belongs to queries; results of the gradient are in that order, too.
  const bool ofKeys = number == 1 || number == 2;
  const int64_t extent = ofKeys ? s.keys : s.queries, count = std::min(most, extent);
  const bool ofValues = number == 2 || number == s.output || number == s.outputGrad;
  const bool isOutput = place == MatrixView::kResult && s.outputGrad < 0;
  Value start = e.least(first, e.index(extent - count));
  return {rowsOf(place, number, ofBatch, ofHead, start), count, ofValues || isOutput ? s.width : s.depth};
}

AttentionEmitter::Share AttentionEmitter::shareOf(Value row, int64_t rows, Value column, int64_t columns) {
  int64_t across = llvm::divideCeil(columns, e.lanes());
  Value part = e.plus(e.times(e.divide(row, e.rows()), across), e.divide(column, e.lanes()));
  return {part, int64_t(llvm::divideCeil(rows, e.rows())) * across};
}

void AttentionEmitter::askFor(const RowsAhead &ahead, const Share &share) {
  const int64_t lineElements = 64 / (at.isNarrow ? 2 : s.sumType.getIntOrFloatBitWidth() / 8);
  const int64_t count = llvm::divideCeil(ahead.count, share.parts);
  Value first = e.least(e.times(share.part, count), e.index(ahead.count - count));
  e.each(first, e.plus(first, count), 1, [&](Value row) {
    Value start = e.times(e.indexOf(ahead.rows, row, e.index(0)), ahead.rows.words ? 2 : 1);
    for (int64_t feature = 0; feature < ahead.features; feature += lineElements) {
      Value index = e.plus(start, feature);
      if (ahead.rows.place == MatrixView::kResult)
        loops.prefetchResult(ahead.rows.number, index);
      else
        loops.prefetch(ahead.rows.number, index);
    }
  });
}

MatrixView AttentionEmitter::widened(const MatrixView &matrix, int64_t copyOffset, Value rowEnd, int64_t columnCount) {
  if (!at.isNarrow || at.pairs)
    return matrix;
  MatrixView copy = scratch(copyOffset, columnCount);
  e.copyRows(matrix, copy, rowEnd, columnCount);
  return copy;
}

MatrixView AttentionEmitter::alongRows(const MatrixView &matrix, int64_t copyOffset, Value rowEnd, bool odd,
                                       int64_t columnCount) {
  if (!at.pairs)
    return widened(matrix, copyOffset, rowEnd, columnCount);
  MatrixView copy = words(copyOffset, columnCount);
  e.pairRows(matrix, copy, rowEnd, odd, columnCount / 2);
  return copy;
}

void AttentionEmitter::transposeQueries(const MatrixView &from, int64_t to, int64_t features) {
  Value count = e.minus(queryEnd, queryFirst);
  int64_t row = steps(features);
  e.each(e.index(0), e.roundUp(count, e.lanes()), e.lanes(), [&](Value offset) {
    MatrixView rows = from, target = scratch(to, e.lanes());
    target.words = from.words;
    rows.base = e.plus(rows.base, e.times(offset, rows.rowStride));
    target.base = e.plus(target.base, e.times(offset, row));
    e.transposeIn(rows, target, e.lanes(), s.queries % e.lanes() ? e.minus(count, offset) : Value(), e.index(0),
                  e.index(row), row);
  });
}

MatrixView AttentionEmitter::panel(int64_t offset, const Vector &v, int64_t features) {
  MatrixView view = scratch(offset, e.lanes());
  view.base = e.plus(view.base, e.times(v.offset, features));
  return view;
}

MatrixView AttentionEmitter::operandPanel(int64_t offset, const Vector &v, int64_t features) {
  MatrixView view = panel(offset, v, steps(features));
  view.words = at.pairs;
  return view;
}

void AttentionEmitter::eachVectorOfQueries(llvm::function_ref<void(Vector)> body) {
  e.each(queryFirst, queryEnd, e.lanes(), [&](Value first) {
    Vector v;
    v.first = first;
    v.offset = e.minus(first, queryFirst);
    if (s.queries % e.lanes())
      v.active = e.minus(e.index(s.queries), first);
    body(v);
  });
}

void AttentionEmitter::eachVector(llvm::function_ref<void(const Vector &)> body) {
  eachVectorOfQueries([&](Vector v) {
    Value end = e.least(e.plus(v.first, e.lanes()), queryEnd), zero = e.index(0);
    Value seen = e.most(e.minus(e.least(keysSeenBefore(end), keyEnd), keyFirst), zero);
    v.rowEnd = e.least(e.roundUp(seen, e.rows()), e.minus(e.index(s.keys), keyFirst));
    v.freeEnd = v.rowEnd;
    if (s.causal) {
      v.freeEnd = e.least(e.most(e.minus(e.plus(v.first, s.causalOffset + 1), keyFirst), zero), v.rowEnd);
      Value half = e.most(e.minus(keysSeenBefore(e.plus(v.first, e.lanes() / 2)), keyFirst), zero);
      v.halfEnd = e.least(e.roundUp(half, e.rows()), v.rowEnd);
    }
    body(v);
  });
}

MatrixView AttentionEmitter::secondHalf(MatrixView lanes, Value firstRow) {
  lanes.base = e.plus(e.plus(lanes.base, e.times(firstRow, lanes.rowStride)), e.lanes() / 2);
  return lanes;
}

void AttentionEmitter::multiplyRows(const MatrixView &rows, const MatrixView &panel, const MatrixView &to,
                                    const Vector &v, int64_t features,
                                    llvm::function_ref<void(Value, Value)> beside, Value finishEnd,
                                    llvm::function_ref<Value(Value, Value)> finish) {
  auto all = [&](Value) { return std::pair(e.index(0), e.index(steps(features))); };
  Value wholeEnd = v.halfEnd ? v.halfEnd : v.rowEnd;
  if (!finishEnd)
    finishEnd = wholeEnd;
  e.multiply({rows, panel, to, finishEnd, s.keys % e.rows(), e.lanes(), all, false, {}, beside, finish});
  auto from = [&](MatrixView matrix, Value row) {
    matrix.base = e.plus(matrix.base, e.times(row, matrix.rowStride));
    return matrix;
  };
  if (finishEnd != wholeEnd)
    e.multiply({from(rows, finishEnd), panel, from(to, finishEnd), e.minus(wholeEnd, finishEnd), s.keys % e.rows(),
                e.lanes(), all, false});
  if (!v.halfEnd)
    return;
  MatrixView rest = from(rows, v.halfEnd);
  e.multiply({rest, secondHalf(panel, e.index(0)), secondHalf(to, v.halfEnd), e.minus(v.rowEnd, v.halfEnd),
              s.keys % e.rows(), e.lanes() / 2, all, false});
}

llvm::SmallVector<Value>
AttentionEmitter::eachRow(const Vector &v, ValueRange inits,
                          llvm::function_ref<llvm::SmallVector<Value>(Value, bool, ValueRange)> body) {
  llvm::SmallVector<Value> carried = loops.loop(e.index(0), v.freeEnd, 1, inits,
                                                [&](Value row, ValueRange values) { return body(row, false, values); });
  if (!s.causal)
    return carried;
  return loops.loop(v.freeEnd, v.rowEnd, 1, carried,
                    [&](Value row, ValueRange values) { return body(row, true, values); });
}

/// One head's part of a bias or mask; what it does not depend on has stride 0.
MatrixView AttentionEmitter::termMatrix(const Term &term) {
  Value base = e.index(0);
  auto [batches, heads, queries, keys] = std::array{term.shape[0], term.shape[1], term.shape[2], term.shape[3]};
  if (batches > 1)
    base = e.plus(base, e.times(batch, heads * queries * keys));
  if (heads > 1)
    base = e.plus(base, e.times(head, queries * keys));
  return {MatrixView::kOperand, unsigned(term.operand), base, queries > 1 ? keys : 0, keys > 1 ? 1 : 0};
}

void AttentionEmitter::bringTerm(const Term &term) {
  MatrixView from = termMatrix(term), to = scratch(term.offset, kBlockQueries);
  from.base = e.plus(from.base, e.times(queryFirst, from.rowStride));
  to.base = e.minus(to.base, e.times(keyFirst, kBlockQueries));
  Value limit = s.queries % kBlockQueries ? e.minus(queryEnd, queryFirst) : Value();
  e.transposeIn(from, to, kBlockQueries, limit, keyFirst, keyEnd, s.keys);
}

Lane AttentionEmitter::termAt(const Term &term, const Vector &v, Value row) {
  if (term.form == ScoreTermForm::kFull)
    return load(term.offset, e.plus(e.times(row, kBlockQueries), v.offset));
  MatrixView matrix = termMatrix(term);
  if (term.form == ScoreTermForm::kQueries)
    return lane(e.load(matrix, e.plus(matrix.base, v.first), e.lanes(), v.active));
  Value key = e.plus(keyFirst, row);
  return lane(e.splat(e.load(matrix, e.indexOf(matrix, e.index(0), key)), e.lanes()));
}

Lane AttentionEmitter::shown(const Vector &v, Value row) {
  Lane shown = termAt(mask, v, row);
  return shown.isFloat() ? isFalse(equal(shown, number(0))) : shown; // floats came transposed
}

Lane AttentionEmitter::score(Lane product, const Vector &v, Value row, bool diagonal, std::optional<Lane> *slope) {
  Lane x = scalesLate ? product : product * number(s.scale), derivative = number(1);
  if (s.softcap > 0) {
    Lane t = scalar::tanh(x * number(1 / s.softcap));
    derivative = 1.0 - t * t;
    x = t * number(s.softcap);
  }
  if (s.maskFill) {
    Lane isShown = shown(v, row);
    derivative = isShown.select(derivative, number(0));
    x = isShown.select(x, number(*s.maskFill));
  }
  if (slope && s.hasSlopes())
    *slope = derivative;
  if (bias.form != ScoreTermForm::kNone)
    x = x + termAt(bias, v, row);
  Lane excluded = number(-HUGE_VAL);
  if (mask.form != ScoreTermForm::kNone && !s.maskFill)
    x = shown(v, row).select(x, excluded);
  if (!diagonal)
    return x;
  // Query i sees key j if j ≤ i + offset: lane ≥ j − offset − first.
  return lanesFrom(e.minus(e.plus(e.plus(keyFirst, row), -s.causalOffset), v.first)).select(x, excluded);
}

Lane AttentionEmitter::lanesFrom(Value first) {
  llvm::SmallVector<int32_t> numbers(e.lanes());
  for (int64_t i = 0; i < e.lanes(); ++i)
    numbers[i] = int32_t(i);
  auto type = VectorType::get({e.lanes()}, b.getI32Type());
  Value lanes = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, llvm::ArrayRef<int32_t>(numbers)));
  Value bound = e.splat(arith::TruncIOp::create(b, loc, b.getI32Type(), first), e.lanes());
  return lane(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, lanes, bound));
}

Lane AttentionEmitter::kept(const Vector &v, Value row) {
  llvm::SmallVector<int64_t> steps(e.lanes());
  for (int64_t i = 0; i < e.lanes(); ++i)
    steps[i] = i * s.keys;
  auto type = VectorType::get({e.lanes()}, b.getI64Type());
  Lane position = lane(arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, llvm::ArrayRef<int64_t>(steps))));
  Value first = e.plus(e.times(e.plus(queryBase(), v.first), s.keys), e.plus(keyFirst, row));
  position = position + lane(e.splat(first, e.lanes()));
  Lane bits = emitPhilox(position, randomWords, uint64_t(s.dropoutId))[0];
  return isFalse(less(bits, bits.likeInt(int64_t(s.dropThreshold()))));
}

Lane AttentionEmitter::scaled(Lane score) { return scalesLate ? score * number(s.scale) : score; }

Lane AttentionEmitter::expAbove(Lane score, Lane base, std::optional<Lane> rest) {
  Lane x = scalesLate ? score.fma(number(s.scale), -base) : score - base;
  return exp(rest ? x - *rest : x);
}

Lane AttentionEmitter::exp(Lane x) {
  // Below `normal` the result is arbitrary; the select at the end replaces it.
  Lane normal = x.compare(arith::CmpFPredicate::UGE, number(x.isDouble() ? -708 : -87)), zero = number(0);
  if (x.isDouble()) {
    scalar::ReducedExp<Lane> parts = scalar::reduceExp<Lane>(x, nullptr);
    return normal.select((parts.rest + 1.0) * parts.power(), zero);
  }
  // The units that multiply have nothing to spare: ln 2 is one number, off by a tenth of what rounding x leaves, and
  // Cephes's polynomial goes on to the power itself.
  Lane shifted = x.fma(number(1.44269504088896340736), number(0x1.8p23 + 127)), n = shifted - number(0x1.8p23 + 127);
  Lane r = n.fma(number(-0.693147180559945309417), x);
  Lane p = scalar::polynomial(
      r, {1.38145405034e-3, 8.36874547214e-3, 4.16683908056e-2, 1.66665203960e-1, 4.99999934320e-1, 1.0, 1.0});
  return normal.select(p * shifted.bits().shiftLeft(23).asFloat(), zero);
}

} // namespace tcc::train
