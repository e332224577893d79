//===- AttentionScores.cpp - from products to scores and weights ----------===//
#include "compiler/kernels/AttentionScores.h"

#include "compiler/dialect/PhiloxLanes.h"
#include "compiler/dialect/ScalarFunctions.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace tcc::train {

AttentionScores::AttentionScores(AttentionCode &code, AttentionBlock &block)
    : c(code), block(block), scalesLate(c.s.scale > 0 && !c.s.hasSlopes() && c.s.biasShape.empty()),
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

/// One head's part of a bias or mask; what it does not depend on has stride 0.
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
  return shown.isFloat() ? isFalse(equal(shown, c.number(0))) : shown; // floats came transposed
}

Lane AttentionScores::score(Lane product, const QueryVector &v, Value row, bool diagonal, std::optional<Lane> *slope) {
  Lane x = scalesLate ? product : product * c.number(c.s.scale), derivative = c.number(1);
  if (c.s.softcap > 0) {
    Lane t = scalar::tanh(x * c.number(1 / c.s.softcap));
    derivative = 1.0 - t * t;
    x = t * c.number(c.s.softcap);
  }
  if (c.s.maskFill) {
    Lane isShown = shown(v, row);
    derivative = isShown.select(derivative, c.number(0));
    x = isShown.select(x, c.number(*c.s.maskFill));
  }
  if (slope && c.s.hasSlopes())
    *slope = derivative;
  if (bias.form != ScoreTermForm::kNone)
    x = x + at(bias, v, row);
  Lane excluded = c.number(-HUGE_VAL);
  if (mask.form != ScoreTermForm::kNone && !c.s.maskFill)
    x = shown(v, row).select(x, excluded);
  if (!diagonal)
    return x;
  // Query i sees key j if j ≤ i + offset: lane ≥ j − offset − first.
  BlockEmitter &e = c.e;
  return c.lanesFrom(e.minus(e.plus(e.plus(block.keyFirst, row), -c.s.causalOffset), v.first)).select(x, excluded);
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
  Lane bits = emitPhilox(position, randomWords, uint64_t(c.s.dropoutId))[0];
  return isFalse(less(bits, bits.likeInt(int64_t(c.s.dropThreshold()))));
}

Lane AttentionScores::expAbove(Lane score, Lane base, std::optional<Lane> rest) {
  Lane x = scalesLate ? score.fma(c.number(c.s.scale), -base) : score - base;
  return exp(rest ? x - *rest : x);
}

Lane AttentionScores::exp(Lane x) {
  // Below `normal` the result is arbitrary; the select at the end replaces it.
  Lane normal = x.compare(arith::CmpFPredicate::UGE, c.number(x.isDouble() ? -708 : -87)), zero = c.number(0);
  if (x.isDouble()) {
    scalar::ReducedExp<Lane> parts = scalar::reduceExp<Lane>(x, nullptr);
    return normal.select((parts.rest + 1.0) * parts.power(), zero);
  }
  // The units that multiply have nothing to spare: ln 2 is one number, off by a tenth of what rounding x leaves, and
  // Cephes's polynomial goes on to the power itself.
  Lane shifted = x.fma(c.number(1.44269504088896340736), c.number(0x1.8p23 + 127)),
       n = shifted - c.number(0x1.8p23 + 127);
  Lane r = n.fma(c.number(-0.693147180559945309417), x);
  Lane p = scalar::polynomial(
      r, {1.38145405034e-3, 8.36874547214e-3, 4.16683908056e-2, 1.66665203960e-1, 4.99999934320e-1, 1.0, 1.0});
  return normal.select(p * shifted.bits().shiftLeft(23).asFloat(), zero);
}

} // namespace tcc::train
