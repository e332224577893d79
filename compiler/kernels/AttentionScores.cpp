//===- AttentionScores.cpp - from products to scores and weights ----------===//
#include "compiler/kernels/AttentionScores.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace tcc::train {

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

} // namespace tcc::train
