//===- AttentionBlock.cpp - blocks of queries and keys --------------------===//
#include "compiler/kernels/AttentionBlock.h"

#include "compiler/kernels/BlockProduct.h"

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

Lane AttentionCode::load(int64_t scratchOffset, Value index) {
  return lane(e.load(scratch(0, 1), e.plus(index, scratchOffset), e.lanes()));
}

void AttentionCode::store(int64_t scratchOffset, Value index, Value value) {
  e.store(scratch(0, 1), e.plus(index, scratchOffset), value);
}

Lane AttentionCode::lanesFrom(Value first) {
  llvm::SmallVector<int32_t> numbers(e.lanes());
  for (int64_t i = 0; i < e.lanes(); ++i)
    numbers[i] = int32_t(i);
  auto type = VectorType::get({e.lanes()}, b.getI32Type());
  Value lanes = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, llvm::ArrayRef<int32_t>(numbers)));
  Value bound = e.splat(arith::TruncIOp::create(b, loc, b.getI32Type(), first), e.lanes());
  return lane(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, lanes, bound));
}

void AttentionBlock::setHead(Value newBatch, Value newHead) {
  batch = newBatch;
  head = newHead;
  keyHead = keyHeadOf(head);
}

void AttentionBlock::setQueries(Value first) {
  queryFirst = first;
  queryEnd = e.least(e.plus(first, AttentionCode::kBlockQueries), e.index(s.queries));
}

void AttentionBlock::setKeys(Value first) {
  keyFirst = first;
  keyEnd = e.least(e.plus(first, c.layout.blockKeys), keysSeenBefore(queryEnd));
}

Value AttentionBlock::keysSeenBefore(Value end) {
  if (!s.causal)
    return keysShown();
  return e.most(e.least(e.plus(end, s.causalOffset), keysShown()), e.index(0));
}

MatrixView AttentionBlock::rowsOf(MatrixView::Place place, int number, Value ofBatch, Value ofHead, Value first) {
  bool reads = place == MatrixView::kOperand;
  const StridedLayout &layout = reads ? c.loops.layout(unsigned(number)) : c.loops.resultLayout(unsigned(number));
  const bool words = reads && c.layout.pairs;
  auto in = [&](int64_t elements) { return words ? elements / 2 : elements; };
  Value base = e.plus(e.times(ofBatch, in(layout.strides[0])), e.times(ofHead, in(layout.strides[1])));
  base = e.plus(e.plus(base, e.times(first, in(layout.strides[2]))), in(layout.offset));
  return {place, unsigned(number), base, in(layout.strides[2]), 1, words};
}

void AttentionBlock::eachVectorOfQueries(llvm::function_ref<void(QueryVector)> body) {
  e.each(queryFirst, queryEnd, e.lanes(), [&](Value first) {
    QueryVector v;
    v.first = first;
    v.offset = e.minus(first, queryFirst);
    if (s.queries % e.lanes())
      v.active = e.minus(e.index(s.queries), first);
    body(v);
  });
}

void AttentionBlock::eachVector(llvm::function_ref<void(const QueryVector &)> body) {
  eachVectorOfQueries([&](QueryVector v) {
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

llvm::SmallVector<Value>
AttentionBlock::eachRow(const QueryVector &v, ValueRange inits,
                        llvm::function_ref<llvm::SmallVector<Value>(Value, bool, ValueRange)> body) {
  llvm::SmallVector<Value> carried = c.loops.loop(
      e.index(0), v.freeEnd, 1, inits, [&](Value row, ValueRange values) { return body(row, false, values); });
  if (!s.causal)
    return carried;
  return c.loops.loop(v.freeEnd, v.rowEnd, 1, carried,
                      [&](Value row, ValueRange values) { return body(row, true, values); });
}

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

AttentionScores::AttentionScores(AttentionCode &code, AttentionBlock &block)
    : formula(code.s, code.math), c(code), block(block),
      bias{c.s.bias, c.s.biasShape, c.layout.bias, scoreTermForm(c.s.biasShape)}, mask{c.s.mask, c.s.maskShape,
                                                                                       c.layout.mask,
                                                                                       scoreTermForm(c.s.maskShape)} {
  for (int64_t i = 0; c.s.dropout > 0 && i < 4; ++i) {
    Value stored = c.loops.load(unsigned(c.s.randomKey), c.e.index(i));
    randomWords.push_back(c.lane(c.e.splat(arith::ExtUIOp::create(c.b, c.loc, c.b.getI64Type(), stored), c.e.lanes())));
  }
}

void AttentionScores::bringTerms() {
  for (const Term *term : {&bias, &mask})
    if (term->form == ScoreTermForm::kFull)
      bring(*term);
}

Value AttentionScores::shownEnd() {
  BlockEmitter &e = c.e;
  const PaddingRule rule = paddingRuleOf(c.s);
  if (!rule)
    return Value();
  auto elementOf = [&](const Term &term, Value key) {
    MatrixView matrix = matrixOf(term);
    return e.load(matrix, e.indexOf(matrix, e.index(0), key));
  };
  Value zero = e.index(0), last = c.loops.loop(zero, e.index(c.s.keys), 1, {zero}, [&](Value key, ValueRange before) {
    Value shown;
    if (rule.byMask)
      shown = elementOf(mask, key);
    if (rule.byBias) {
      Value x = elementOf(bias, key);
      Value lowest = arith::ConstantOp::create(c.b, c.loc, c.b.getFloatAttr(x.getType(), rule.lowest));
      Value above = arith::CmpFOp::create(c.b, c.loc, arith::CmpFPredicate::UGT, x, lowest); // NaN is shown
      shown = shown ? arith::AndIOp::create(c.b, c.loc, shown, above).getResult() : above;
    }
    return llvm::SmallVector<Value>{arith::SelectOp::create(c.b, c.loc, shown, e.plus(key, 1), before[0]).getResult()};
  })[0];
  // If none is shown, weights are as the formula says.
  return e.choose(arith::CmpIPredicate::eq, last, zero, e.index(c.s.keys), last);
}

/// One head's part of a bias or mask; broadcast dimensions have stride 0.
MatrixView AttentionScores::matrixOf(const Term &term) {
  BlockEmitter &e = c.e;
  Value base = e.index(0);
  auto [batches, heads, queries, keys] = std::array{term.shape[0], term.shape[1], term.shape[2], term.shape[3]};
  if (batches > 1)
    base = e.plus(base, e.times(block.batch, heads * queries * keys));
  if (heads > 1)
    base = e.plus(base, e.times(block.head, queries * keys));
  return {MatrixView::kOperand, unsigned(term.operand), base, queries > 1 ? keys : 0, keys > 1 ? 1 : 0};
}

void AttentionScores::bring(const Term &term) {
  constexpr int64_t kBlockQueries = AttentionCode::kBlockQueries;
  BlockEmitter &e = c.e;
  MatrixView from = matrixOf(term), to = c.scratch(term.offset, kBlockQueries);
  from.base = e.plus(from.base, e.times(block.queryFirst, from.rowStride));
  to.base = e.minus(to.base, e.times(block.keyFirst, kBlockQueries));
  Value limit = c.s.queries % kBlockQueries ? e.minus(block.queryEnd, block.queryFirst) : Value();
  e.transposeIn(from, to, kBlockQueries, limit, block.keyFirst, block.keyEnd, c.s.keys);
}

Lane AttentionScores::at(const Term &term, const QueryVector &v, Value row) {
  BlockEmitter &e = c.e;
  if (term.form == ScoreTermForm::kFull)
    return c.load(term.offset, e.plus(e.times(row, AttentionCode::kBlockQueries), v.offset));
  MatrixView matrix = matrixOf(term);
  if (term.form == ScoreTermForm::kQueries)
    return c.lane(e.load(matrix, e.plus(matrix.base, v.first), e.lanes(), v.active));
  Value key = e.plus(block.keyFirst, row);
  return c.lane(e.splat(e.load(matrix, e.indexOf(matrix, e.index(0), key)), e.lanes()));
}

Lane AttentionScores::shown(const QueryVector &v, Value row) {
  Lane shown = at(mask, v, row);
  return shown.isFloat() ? isFalse(equal(shown, c.number(0))) : shown; // transposed masks are floats
}

Lane AttentionScores::score(Lane product, const QueryVector &v, Value row, bool diagonal, std::optional<Lane> *slope) {
  auto biasAt = [&] { return at(bias, v, row); };
  auto isShown = [&] { return shown(v, row); };
  Lane x = formula.score(product, biasAt, isShown, slope);
  if (!diagonal)
    return x;
  // Query i sees key j if j ≤ i + offset: lane ≥ j − offset − first.
  BlockEmitter &e = c.e;
  Lane sees = c.lanesFrom(e.minus(e.plus(e.plus(block.keyFirst, row), -c.s.causalOffset), v.first));
  return sees.select(x, c.number(-HUGE_VAL));
}

Lane AttentionScores::kept(const QueryVector &v, Value row) {
  BlockEmitter &e = c.e;
  llvm::SmallVector<int64_t> steps(e.lanes());
  for (int64_t i = 0; i < e.lanes(); ++i)
    steps[i] = i * c.s.keys;
  auto type = VectorType::get({e.lanes()}, c.b.getI64Type());
  Lane position =
      c.lane(arith::ConstantOp::create(c.b, c.loc, DenseElementsAttr::get(type, llvm::ArrayRef<int64_t>(steps))));
  Value first = e.plus(e.times(e.plus(block.queryBase(), v.first), c.s.keys), e.plus(block.keyFirst, row));
  position = position + c.lane(e.splat(first, e.lanes()));
  return formula.kept(position, randomWords);
}

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
