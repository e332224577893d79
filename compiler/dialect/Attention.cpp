//===- Attention.cpp - scaled dot-product attention -------------*- C++ -*-===//
//
// The semantics of attention: checks, naive evaluators and gradient. Its kernels are in AttentionKernel.cpp and
// AttentionGradKernel.cpp.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"

#include "compiler/dialect/Philox.h"
#include "compiler/dialect/Verify.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace tcc::train {

namespace {

using Dims = llvm::SmallVector<int64_t>;

/// Operations per score besides the products: the online softmax, softcap, a random number.
double operationsPerScore(const AttentionShape &s) { return 24 + (s.softcap > 0 ? 30 : 0) + (s.dropout > 0 ? 62 : 0); }

LogicalResult verifyBroadcasts(Operation *op, Value value, const Dims &full, const char *what) {
  if (!value)
    return success();
  llvm::ArrayRef<int64_t> shape = shapeOf(value);
  bool fits = shape.size() == full.size();
  for (size_t i = 0; fits && i < full.size(); ++i)
    fits = shape[i] == full[i] || shape[i] == 1;
  if (fits)
    return success();
  return op->emitOpError("needs a ") << what << " that broadcasts to " << full[0] << "x" << full[1] << "x" << full[2]
                                     << "x" << full[3] << ": four dimensions, each of them full or 1";
}

/// Checks the operands and settings that both ops share.
template <typename OpTy> LogicalResult verifyCommon(OpTy op) {
  llvm::ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey()), value = shapeOf(op.getValue());
  if (query.size() != 4 || key.size() != 4 || value.size() != 4)
    return op.emitOpError("needs query, key and value of rank 4: batch, heads, positions, features");
  if (elementTypeOf(op.getKey()) != elementTypeOf(op.getQuery()) ||
      elementTypeOf(op.getValue()) != elementTypeOf(op.getQuery()))
    return op.emitOpError("needs query, key and value of one element type");
  if (key[0] != query[0] || value[0] != query[0])
    return op.emitOpError("needs one batch size");
  if (key[1] != value[1] || key[2] != value[2])
    return op.emitOpError("needs as many heads and positions of value as of key");
  if (key[3] != query[3])
    return op.emitOpError("needs as many features of key as of query");
  if (key[1] == 0 || query[1] % key[1] != 0)
    return op.emitOpError("needs a number of query heads that is a multiple of the key heads, not ")
           << query[1] << " and " << key[1];
  if (Value bias = op.getBias())
    if (elementTypeOf(bias) != elementTypeOf(op.getQuery()) && elementTypeOf(bias) != attentionShapeOf(op).sumType)
      return op.emitOpError("needs a bias of query's element type or of the sums', ") << attentionShapeOf(op).sumType;
  Dims full = {query[0], query[1], query[2], key[2]};
  if (failed(verifyBroadcasts(op, op.getBias(), full, "bias")) ||
      failed(verifyBroadcasts(op, op.getMask(), full, "mask")))
    return failure();
  double p = op.getDropout().convertToDouble();
  if (!(p >= 0 && p <= 1))
    return op.emitOpError("needs a probability of dropout, not ") << p;
  if (p > 0 && !op.getRandomKey())
    return op.emitOpError("needs a key of random numbers for its dropout");
  if (op.getRandomKey() && shapeOf(op.getRandomKey()) != llvm::ArrayRef<int64_t>{4})
    return op.emitOpError("needs a key of 4 words");
  if (op.getMaskFill() && (!op.getMask() || !op.getMaskFill()->isFinite()))
    return op.emitOpError("needs a mask for its maskFill, which is a finite number");
  if (!(op.getSoftcap().convertToDouble() >= 0))
    return op.emitOpError("needs a softcap that is not negative");
  return success();
}

/// Checks `outputs`, which have the output's shape and type, and `rows`, with one number for each row of scores.
template <typename OpTy>
LogicalResult verifyOutputs(OpTy op, llvm::ArrayRef<Value> outputs, llvm::ArrayRef<Value> rows) {
  AttentionShape s = attentionShapeOf(op);
  for (Value output : outputs)
    if (shapeOf(output) != llvm::ArrayRef(Dims{s.batch, s.heads, s.queries, s.width}) ||
        elementTypeOf(output) != elementTypeOf(op.getQuery()))
      return op.emitOpError(
          "needs an output of batch, heads, queries, and the features of value, in query's element type");
  for (Value row : rows)
    if (shapeOf(row) != llvm::ArrayRef(Dims{s.batch, s.heads, s.queries, 1}) || elementTypeOf(row) != s.sumType)
      return op.emitOpError("needs logsumexp and its rest of batch, heads, queries and 1 in ") << s.sumType;
  return success();
}

/// Computes scores one by one, in double.
class NaiveScores {
public:
  NaiveScores(const AttentionShape &s, llvm::ArrayRef<HostTensor> operands) : s(s), operands(operands) {}

  int64_t keyHead(int64_t h) const { return h / s.groupSize(); }
  double query(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return operands[0].getDouble(queryIndex(b, h, i, d));
  }
  double key(int64_t b, int64_t h, int64_t j, int64_t d) const { return operands[1].getDouble(keyIndex(b, h, j, d)); }
  double value(int64_t b, int64_t h, int64_t j, int64_t v) const {
    return operands[2].getDouble(valueIndex(b, h, j, v));
  }
  int64_t queryIndex(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return ((b * s.heads + h) * s.queries + i) * s.depth + d;
  }
  int64_t keyIndex(int64_t b, int64_t h, int64_t j, int64_t d) const {
    return ((b * s.keyHeads + keyHead(h)) * s.keys + j) * s.depth + d;
  }
  int64_t valueIndex(int64_t b, int64_t h, int64_t j, int64_t v) const {
    return ((b * s.keyHeads + keyHead(h)) * s.keys + j) * s.width + v;
  }
  int64_t outputIndex(int64_t b, int64_t h, int64_t i, int64_t v) const {
    return ((b * s.heads + h) * s.queries + i) * s.width + v;
  }
  int64_t rowIndex(int64_t b, int64_t h, int64_t i) const { return (b * s.heads + h) * s.queries + i; }
  int64_t scoreIndex(int64_t b, int64_t h, int64_t i, int64_t j) const { return rowIndex(b, h, i) * s.keys + j; }

  bool excluded(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return j >= s.seenBy(i) || (!s.maskFill && masked(b, h, i, j));
  }
  /// True if the score is replaced by maskFill.
  bool filled(int64_t b, int64_t h, int64_t i, int64_t j) const { return s.maskFill && masked(b, h, i, j); }
  /// tanh of the raw score over the cap; 0 without one.
  double capped(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return s.softcap > 0 ? std::tanh(raw(b, h, i, j) / s.softcap) : 0;
  }
  double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double x = filled(b, h, i, j) ? *s.maskFill : s.softcap > 0 ? s.softcap * capped(b, h, i, j) : raw(b, h, i, j);
    return s.bias >= 0 ? x + operands[s.bias].getDouble(broadcastIndex(s.biasShape, b, h, i, j)) : x;
  }
  /// The factor by which dropout multiplies a weight.
  double kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (s.dropout <= 0)
      return 1;
    auto word = [&](int64_t n) { return uint32_t(operands[s.randomKey].getInt(n)); };
    uint64_t id = uint64_t(s.dropoutId), index = uint64_t(scoreIndex(b, h, i, j));
    uint32_t bits = philox({uint32_t(index), uint32_t(index >> 32), word(2), word(3)},
                           {word(0) ^ uint32_t(id), word(1) ^ uint32_t(id >> 32)})[0];
    return bits >= s.dropThreshold() ? s.keptScale() : 0;
  }

  void forEachRow(llvm::function_ref<void(int64_t b, int64_t h, int64_t i)> body) const {
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i)
          body(b, h, i);
  }

  static int64_t broadcastIndex(llvm::ArrayRef<int64_t> shape, int64_t b, int64_t h, int64_t i, int64_t j) {
    Dims at = {b, h, i, j};
    for (auto [coordinate, extent] : llvm::zip_equal(at, shape))
      coordinate = extent == 1 ? 0 : coordinate;
    return ravel(at, shape);
  }

private:
  bool masked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return s.mask >= 0 && !operands[s.mask].getInt(broadcastIndex(s.maskShape, b, h, i, j));
  }
  double raw(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < s.depth; ++d)
      sum += query(b, h, i, d) * key(b, h, j, d);
    return s.scale * sum;
  }
  const AttentionShape &s;
  llvm::ArrayRef<HostTensor> operands;
};

/// A weight after dropout; a dropped one is 0, even if it was NaN or ∞.
double dropped(double weight, double kept) { return kept == 0 ? 0 : weight * kept; }

} // namespace

//===----------------------------------------------------------------------===//
// attention
//===----------------------------------------------------------------------===//
LogicalResult AttentionOp::verify() {
  return failed(verifyCommon(*this)) ? failure()
                                     : verifyOutputs(*this, {getOutput()}, {getLogsumexp(), getLogsumexpRest()});
}

double AttentionOp::getFlops() {
  AttentionShape s = attentionShapeOf(*this);
  return s.scores() * (2.0 * double(s.depth + s.width) + operationsPerScore(s));
}

TileNumbers tileNumbersFor(Type element, bool tf32) {
  if (element.isF32())
    return tf32 ? TileNumbers::TF32 : TileNumbers::F32;
  return element.isBF16() ? TileNumbers::BF16 : element.isF16() ? TileNumbers::F16 : TileNumbers::None;
}

bool suitsTiles(TileNumbers numbers, int64_t depth, int64_t width) {
  const bool narrow = numbers == TileNumbers::BF16 || numbers == TileNumbers::F16;
  // A thread keeps equally many words of a row for 256 numbers of 16 bits, 128 of TF32 and 64 pairs of TF32.
  const int64_t most = narrow ? 256 : numbers == TileNumbers::TF32 ? 128 : 64;
  return numbers != TileNumbers::None && (!narrow || (depth % 2 == 0 && width % 2 == 0)) &&
         std::min(depth, width) > 0 && std::max(depth, width) <= most;
}

void evaluateAttention(const AttentionShape &s, llvm::ArrayRef<HostTensor> operands,
                       llvm::MutableArrayRef<HostTensor> results) {
  NaiveScores naive(s, operands);
  naive.forEachRow([&](int64_t b, int64_t h, int64_t i) {
    std::vector<double> scores(s.keys, -HUGE_VAL), sums(s.width, 0);
    double largest = -HUGE_VAL, total = 0;
    bool isNan = false;
    for (int64_t j = 0; j < s.keys; ++j)
      if (!naive.excluded(b, h, i, j)) {
        scores[j] = naive.score(b, h, i, j);
        largest = std::max(largest, scores[j]);
        isNan |= std::isnan(scores[j]);
      }
    if (largest == -HUGE_VAL && !isNan) { // everything is excluded
      for (int64_t v = 0; v < s.width; ++v)
        results[0].setDouble(naive.outputIndex(b, h, i, v), 0);
      results[1].setDouble(naive.rowIndex(b, h, i), -HUGE_VAL);
      if (results.size() > 2)
        results[2].setDouble(naive.rowIndex(b, h, i), 0);
      return;
    }
    for (double &score : scores)
      total += score = std::exp(score - largest);
    for (int64_t j = 0; j < s.keys; ++j)
      if (!naive.excluded(b, h, i, j))
        for (int64_t v = 0; v < s.width; ++v)
          sums[v] += dropped(scores[j], naive.kept(b, h, i, j)) * naive.value(b, h, j, v);
    for (int64_t v = 0; v < s.width; ++v)
      results[0].setDouble(naive.outputIndex(b, h, i, v), sums[v] / total);
    const int64_t row = naive.rowIndex(b, h, i);
    results[1].setDouble(row, largest + std::log(total));
    if (results.size() > 2)
      results[2].setDouble(row, largest - results[1].getDouble(row) + std::log(total));
  });
}

void AttentionOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateAttention(attentionShapeOf(*this), operands, results);
}

/// The gradient g of logsumexp adds g·p to the scores' gradient p∘(…− δ). So it is subtracted from δ = Σ
/// output·outputGrad by one more feature: output g, outputGrad −1, value 0. The rounding error of logsumexp has no
/// gradient.
void AttentionOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &gradients) {
  gradients.resize(getNumOperands());
  if (!resultGradients[0] && !resultGradients[1])
    return;
  Location loc = getLoc();
  Value output = getOutput(), value = getValue(), outputGrad = resultGradients[0];
  if (!outputGrad)
    outputGrad = splat(builder, loc, output.getType(), 0);
  auto append = [&](Value to, Value column) -> Value {
    Dims shape(shapeOf(to));
    ++shape[3];
    return ConcatOp::create(builder, loc, RankedTensorType::get(shape, elementTypeOf(to)), ValueRange{to, column}, 3);
  };
  if (resultGradients[1]) {
    auto column = [&](Value like) {
      Dims shape(shapeOf(like));
      shape[3] = 1;
      return RankedTensorType::get(shape, elementTypeOf(like));
    };
    value = append(value, splat(builder, loc, column(value), 0));
    outputGrad = append(outputGrad, splat(builder, loc, column(outputGrad), -1));
    output = append(output, cast(builder, loc, resultGradients[1], elementTypeOf(output)));
  }
  llvm::SmallVector<Type> biasGrad;
  if (Value bias = getBias())
    biasGrad.push_back(RankedTensorType::get(
        {shapeOf(getQuery())[0], shapeOf(getQuery())[1], shapeOf(getQuery())[2], shapeOf(getKey())[2]},
        elementTypeOf(bias)));
  auto grad = AttentionGradOp::create(
      builder, loc, getQuery().getType(), getKey().getType(), value.getType(), biasGrad, getQuery(), getKey(), value,
      getBias(), getMask(), getRandomKey(), output, /*delta=*/Value(), getLogsumexp(), getLogsumexpRest(), outputGrad,
      getScale(), getCausal(), getCausalOffset(), getSoftcap(), getDropout(), getDropoutId(), getMaskFillAttr());
  grad->setDiscardableAttrs((*this)->getDiscardableAttrDictionary());
  gradients[0] = grad.getQueryGrad();
  gradients[1] = grad.getKeyGrad();
  gradients[2] = grad.getValueGrad();
  if (resultGradients[1])
    gradients[2] = SliceOp::create(builder, loc, getValue().getType(), gradients[2],
                                   llvm::ArrayRef<int64_t>{0, 0, 0, 0}, llvm::ArrayRef<int64_t>{1, 1, 1, 1});
  if (getBias())
    gradients[3] = unbroadcast(builder, loc, grad.getBiasGrad()[0], shapeOf(getBias()));
}

llvm::SmallVector<Value> AttentionOp::buildInference(OpBuilder &builder) {
  auto op = AttentionOp::create(builder, getLoc(), getOutput().getType(), getLogsumexp().getType(),
                                getLogsumexpRest().getType(), getQuery(), getKey(), getValue(), getBias(), getMask(),
                                Value(), getScale(), getCausal(), getCausalOffset(), getSoftcap(), llvm::APFloat(0.0),
                                0, getMaskFillAttr());
  op->setDiscardableAttrs((*this)->getDiscardableAttrDictionary());
  return {op.getOutput(), op.getLogsumexp(), op.getLogsumexpRest()};
}

llvm::SmallVector<unsigned> AttentionOp::getAutocastOperands() { return {0, 1, 2}; }

//===----------------------------------------------------------------------===//
// attention_grad
//===----------------------------------------------------------------------===//
LogicalResult AttentionGradOp::verify() {
  if (!getOutput() == !getDelta())
    return emitOpError("needs either the output or its rows' sums");
  llvm::SmallVector<Value> outputs{getOutputGrad()}, rows{getLogsumexp()};
  if (getLogsumexpRest())
    rows.push_back(getLogsumexpRest());
  (getOutput() ? outputs : rows).push_back(getOutput() ? getOutput() : getDelta());
  if (failed(verifyCommon(*this)) || failed(verifyOutputs(*this, outputs, rows)))
    return failure();
  if (getQueryGrad().getType() != getQuery().getType() || getKeyGrad().getType() != getKey().getType() ||
      getValueGrad().getType() != getValue().getType())
    return emitOpError("needs gradients of the types of query, key and value");
  AttentionShape s = attentionShapeOf(*this);
  if (getBiasGrad().size() > 1 ||
      (!getBiasGrad().empty() &&
       shapeOf(getBiasGrad()[0]) != llvm::ArrayRef(Dims{s.batch, s.heads, s.queries, s.keys})))
    return emitOpError("needs one gradient of the bias at most, of every score");
  return success();
}

double AttentionGradOp::getFlops() {
  AttentionShape s = attentionShapeOf(*this);
  double rows = double(s.batch * s.heads * s.queries);
  return s.scores() * (2.0 * double(3 * s.depth + 2 * s.width) + operationsPerScore(s) + 4) +
         (s.output >= 0 ? 2 * rows * double(s.width) : 0);
}

void evaluateAttentionGrad(const AttentionShape &s, llvm::ArrayRef<HostTensor> operands,
                           llvm::MutableArrayRef<HostTensor> results) {
  NaiveScores naive(s, operands);
  const HostTensor &outputGrad = operands[s.outputGrad];
  std::vector<std::vector<double>> sums;
  for (HostTensor &result : results)
    sums.emplace_back(result.size(), 0.0);
  naive.forEachRow([&](int64_t b, int64_t h, int64_t i) {
    double logsumexp = operands[s.logsumexp].getDouble(naive.rowIndex(b, h, i));
    double delta = s.delta >= 0 ? operands[s.delta].getDouble(naive.rowIndex(b, h, i)) : 0;
    const double rest = s.logsumexpRest >= 0 ? operands[s.logsumexpRest].getDouble(naive.rowIndex(b, h, i)) : 0;
    if (logsumexp == -HUGE_VAL) // all weights of the row are 0
      logsumexp = HUGE_VAL;
    for (int64_t v = 0; s.output >= 0 && v < s.width; ++v) {
      int64_t at = naive.outputIndex(b, h, i, v);
      delta += operands[s.output].getDouble(at) * outputGrad.getDouble(at);
    }
    for (int64_t j = 0; j < s.keys; ++j) {
      if (naive.excluded(b, h, i, j))
        continue;
      double weight = std::exp(naive.score(b, h, i, j) - logsumexp - rest), kept = naive.kept(b, h, i, j),
             weightGrad = 0;
      for (int64_t v = 0; v < s.width; ++v) {
        double g = outputGrad.getDouble(naive.outputIndex(b, h, i, v));
        sums[2][naive.valueIndex(b, h, j, v)] += dropped(weight, kept) * g;
        weightGrad += g * naive.value(b, h, j, v);
      }
      double scoreGrad = dropped(weight, kept) * weightGrad - weight * delta, t = naive.capped(b, h, i, j);
      double rawGrad = naive.filled(b, h, i, j) ? 0 : scoreGrad * (1 - t * t) * s.scale;
      for (int64_t d = 0; d < s.depth; ++d) {
        sums[0][naive.queryIndex(b, h, i, d)] += rawGrad * naive.key(b, h, j, d);
        sums[1][naive.keyIndex(b, h, j, d)] += rawGrad * naive.query(b, h, i, d);
      }
      if (results.size() > 3) // for every score, or summed to the bias's shape
        sums[3][naive.broadcastIndex(results[3].shape(), b, h, i, j)] += scoreGrad;
    }
  });
  for (auto [result, values] : llvm::zip_equal(results, sums))
    for (auto [i, value] : llvm::enumerate(values))
      result.setDouble(int64_t(i), value);
}

void AttentionGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  evaluateAttentionGrad(attentionShapeOf(*this), operands, results);
}

namespace {
/// Removes an unread biasGrad: it is the only result whose size is not linear in the sequence.
struct DropUnreadBiasGrad : OpRewritePattern<AttentionGradOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionGradOp op, PatternRewriter &rewriter) const override {
    if (op.getBiasGrad().empty() || !op.getBiasGrad()[0].use_empty())
      return failure();
    llvm::SmallVector<Type> types(op->getResultTypes());
    types.pop_back();
    auto smaller = AttentionGradOp::create(rewriter, op.getLoc(), types, op->getOperands(), op->getAttrs());
    rewriter.replaceAllUsesWith(op->getResults().take_front(3), smaller->getResults());
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void AttentionGradOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropUnreadBiasGrad>(context);
}

} // namespace tcc::train
