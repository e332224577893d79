//===- AttentionKernel.cpp - the loops of attention and its gradient -*- C++ -*-===//
//
// Forward, a tile is a block of one head's queries. It runs through the keys, block by block, as far as the causal mask
// lets it: scores, their largest so far, weights relative to that, the sums of values so far (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", arXiv:1805.02867; Dao et al., "FlashAttention", arXiv:2205.14135).
//
// Backward, weights are computed again from the scores and logsumexp, one block of queries and keys after another, and
// each block adds to the gradients of its queries, keys and values: five products (Dao et al., algorithm 4). Sums run
// over blocks in one order: through the queries, for each through the keys. Where there are enough heads, a tile is all
// that reads one head's keys. Else there is a tile for each block of queries, which makes their gradients, and one for
// each block of keys, which makes those of keys and values: seven products, on as many threads as there are.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/AttentionEmitter.h"
#include "compiler/dialect/ScalarFunctions.h"

using namespace mlir;

namespace tcc::train {

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kForwardKeys = 128; ///< of a block

struct ForwardLayout : AttentionLayout {
  ForwardLayout(const AttentionShape &s, Type element) : AttentionLayout(s, element, kForwardKeys) {
    queries = take(s.depth * kBlockQueries);
    sums = take(s.width * kBlockQueries);
    largest = take(kBlockQueries);
    total = take(kBlockQueries);
    scores = take(blockKeys * BlockEmitter::kMostLanes);
    if (isNarrow) {
      keyCopy = take(blockKeys * s.depth);
      valueCopy = take(blockKeys * s.width);
    }
  }
  int64_t queries, sums; ///< panels of one vector of queries: [feature][lane]
  int64_t largest, total;
  int64_t scores; ///< of one vector of queries: [key][lane]
  int64_t keyCopy = 0, valueCopy = 0;
};

class ForwardEmitter : AttentionEmitter {
public:
  ForwardEmitter(LoopBuilder &loops, const AttentionShape &s, const ForwardLayout &layout)
      : AttentionEmitter(loops, s, layout), at(layout) {}

  void emit(Value tile) {
    int64_t blocks = llvm::divideCeil(s.queries, kBlockQueries);
    Value row = e.divide(tile, blocks);
    setHead(e.divide(row, s.heads), e.remainder(row, s.heads));
    setQueries(e.times(e.remainder(tile, blocks), kBlockQueries));
    transposeQueries(operandAt(0, e.plus(queryBase(s.depth), e.times(queryFirst, s.depth)), s.depth), at.queries,
                     s.depth);
    e.each(e.index(0), e.index(kBlockQueries), e.lanes(), [&](Value i) {
      store(at.largest, i, number(-HUGE_VAL));
      store(at.total, i, number(0));
    });
    e.zeroRows(scratch(at.sums, kBlockQueries), e.index(s.width), kBlockQueries);
    e.each(e.index(0), keysSeenBefore(queryEnd), at.blockKeys, [&](Value first) {
      setKeys(first);
      Value count = e.minus(keyEnd, keyFirst);
      // Scores are computed for whole registers' rows.
      Value read = e.least(e.roundUp(count, e.rows()), e.minus(e.index(s.keys), keyFirst));
      keyRows = widened(operandAt(1, e.plus(keyBase(s.depth), e.times(keyFirst, s.depth)), s.depth), at.keyCopy, read,
                        s.depth);
      valueRows = widened(operandAt(2, e.plus(keyBase(s.width), e.times(keyFirst, s.width)), s.width), at.valueCopy,
                          read, s.width);
      eachVector([&](const Vector &v) { addKeys(v); });
    });
    finish();
  }

private:
  Value rowOf(Value row) { return e.times(row, e.lanes()); }

  void addKeys(const Vector &v) {
    MatrixView scores = scratch(at.scores, e.lanes());
    auto wholeDepth = [&](Value) { return std::pair(e.index(0), e.index(s.depth)); };
    e.multiply(
        {keyRows, panel(at.queries, v, s.depth), scores, v.rowEnd, s.keys % e.rows(), e.lanes(), wholeDepth, false});
    Lane before = load(at.largest, v.offset);
    Lane largest = lane(eachRow(v, {before.value}, [&](Value row, bool diagonal, ValueRange carried) {
      Lane x = score(load(at.scores, rowOf(row)), v, row, diagonal);
      store(at.scores, rowOf(row), x);
      return llvm::SmallVector<Value>{greater(x, lane(carried[0])).select(x, lane(carried[0]))};
    })[0]);
    store(at.largest, v.offset, largest);
    Lane base = finiteBase(largest), shrunk = exp(before - base);
    Lane total = load(at.total, v.offset) * shrunk;
    total = lane(loops.loop(e.index(0), v.rowEnd, 1, {total.value}, [&](Value row, ValueRange carried) {
      Lane weight = exp(load(at.scores, rowOf(row)) - base);
      Lane sum = lane(carried[0]) + weight;
      if (s.dropout > 0)
        weight = kept(v, row).select(weight * number(s.keptScale()), number(0));
      store(at.scores, rowOf(row), weight);
      return llvm::SmallVector<Value>{sum.value};
    })[0]);
    store(at.total, v.offset, total);
    // Values in rows of features: sums[feature][lane] += value[key][feature]·weight[key][lane].
    MatrixView features = valueRows;
    std::swap(features.rowStride, features.columnStride);
    auto wholeBlock = [&](Value) { return std::pair(e.index(0), v.rowEnd); };
    e.multiply({features, scores, panel(at.sums, v, s.width), e.index(s.width), s.width % e.rows(), e.lanes(),
                wholeBlock, true, shrunk});
  }

  /// What scores are taken relative to: 0 where all are −∞ so far.
  Lane finiteBase(Lane largest) { return equal(largest, number(-HUGE_VAL)).select(number(0), largest); }

  void finish() {
    eachVectorOfQueries([&](const Vector &v) {
      Lane total = load(at.total, v.offset), none = equal(total, number(0));
      Lane inverse = none.select(number(0), 1.0 / total);
      MatrixView sums = panel(at.sums, v, s.width);
      e.each(e.index(0), e.index(s.width), 1, [&](Value feature) {
        Value index = e.indexOf(sums, feature, e.index(0));
        e.store(sums, index, lane(e.load(sums, index, e.lanes())) * inverse);
      });
      Lane logsumexp = finiteBase(load(at.largest, v.offset)) + scalar::log(total);
      Value row = e.plus(queryBase(1), v.first);
      e.store(resultAt(1, row, 1), row, logsumexp, v.active);
      MatrixView output = resultAt(0, e.plus(queryBase(s.width), e.times(v.first, s.width)), s.width);
      e.transposeOut(sums, output, s.width, Value(), v.active ? e.least(v.active, e.index(e.lanes())) : Value());
    });
  }

  const ForwardLayout &at;
  MatrixView keyRows, valueRows;
};

} // namespace

int64_t AttentionOp::getTileCount() {
  AttentionShape s = attentionShapeOf(*this);
  return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, AttentionLayout::kBlockQueries));
}

int64_t AttentionOp::getScratchBytes() {
  return ForwardLayout(attentionShapeOf(*this), elementTypeOf(getQuery())).bytes();
}

void AttentionOp::emitTile(LoopBuilder &loops, Value tile) {
  AttentionShape s = attentionShapeOf(*this);
  ForwardLayout layout(s, elementTypeOf(getQuery()));
  ForwardEmitter(loops, s, layout).emit(tile);
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kGradKeys = 64; ///< of a block
/// Fewer heads than this are split. The shape decides, not the machine.
constexpr int64_t kLeastWholeHeads = 4;

struct GradLayout : AttentionLayout {
  GradLayout(const AttentionShape &s, Type element, bool biasGrad)
      : AttentionLayout(s, element, kGradKeys), biasGrad(biasGrad),
        queryBlocks(llvm::divideCeil(s.queries, kBlockQueries)), keyBlocks(llvm::divideCeil(s.keys, blockKeys)),
        whole(s.batch * s.keyHeads >= kLeastWholeHeads || (queryBlocks == 1 && keyBlocks == 1)) {
    const int64_t block = blockKeys * kBlockQueries;
    queries = take(s.depth * kBlockQueries);
    outputGrads = take(s.width * kBlockQueries);
    outputs = take(s.width * kBlockQueries);
    delta = take(kBlockQueries);
    logsumexp = take(kBlockQueries);
    weights = take(block);
    scoreGrads = take(block);
    if (s.dropout > 0)
      undropped = take(block);
    if (s.softcap > 0)
      slopes = take(block);
    if (biasGrad)
      biasGrads = take(block);
    queryGrads = take(s.depth * kBlockQueries);
    if (!isNarrow)
      return;
    queryCopy = take(s.depth * kBlockQueries);
    outputGradCopy = take(s.width * kBlockQueries);
    keyCopy = take(s.depth * blockKeys);
    valueCopy = take(s.width * blockKeys);
    int64_t rows = whole ? s.keys : blockKeys;
    keyGrads = take(rows * s.depth);
    valueGrads = take(rows * s.width);
  }

  bool biasGrad;
  int64_t queryBlocks, keyBlocks;
  bool whole;                            ///< a tile is a whole head
  int64_t queries, outputGrads, outputs; ///< panels of one vector of queries: [feature][lane]
  int64_t delta, logsumexp;
  /// Of the block, [key][query]: what dropout leaves, the raw scores' gradients, weights before dropout, what the
  /// scores' gradients are multiplied with where they are capped, and the gradients of the scores with their bias.
  int64_t weights, scoreGrads, undropped = 0, slopes = 0, biasGrads = 0;
  int64_t queryGrads;                                                    ///< of the block, [query][feature]
  int64_t queryCopy = 0, outputGradCopy = 0, keyCopy = 0, valueCopy = 0; ///< widened
  int64_t keyGrads = 0, valueGrads = 0;                                  ///< sums, where the results are narrower
};

class GradEmitter : AttentionEmitter {
public:
  GradEmitter(LoopBuilder &loops, const AttentionShape &s, const GradLayout &layout)
      : AttentionEmitter(loops, s, layout), at(layout) {}

  void emit(Value tile) {
    if (at.whole) {
      wholeHead(tile);
      return;
    }
    Value queryTiles = e.index(s.batch * s.heads * at.queryBlocks);
    e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, tile, queryTiles), [&] { queriesOnly(tile); });
    e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, tile, queryTiles),
           [&] { keysOnly(e.minus(tile, queryTiles)); });
  }

private:
  enum Wanted { kQueries = 1, kKeys = 2 };

  void wholeHead(Value tile) {
    Value newBatch = e.divide(tile, s.keyHeads), firstHead = e.times(e.remainder(tile, s.keyHeads), s.groupSize());
    setHead(newBatch, firstHead);
    startKeys(e.index(0), e.index(s.keys));
    e.each(e.index(0), e.index(s.groupSize()), 1, [&](Value member) {
      setHead(newBatch, e.plus(firstHead, member));
      e.each(e.index(0), e.index(s.queries), kBlockQueries, [&](Value first) {
        startQueries(first, kQueries | kKeys);
        e.each(e.index(0), keysSeenBefore(queryEnd), at.blockKeys, [&](Value key) { addBlock(key, kQueries | kKeys); });
        finishQueries();
      });
    });
    setHead(newBatch, firstHead);
    finishKeys(e.index(0), e.index(s.keys));
  }

  void queriesOnly(Value tile) {
    Value row = e.divide(tile, at.queryBlocks);
    setHead(e.divide(row, s.heads), e.remainder(row, s.heads));
    startQueries(e.times(e.remainder(tile, at.queryBlocks), kBlockQueries), kQueries);
    e.each(e.index(0), keysSeenBefore(queryEnd), at.blockKeys, [&](Value key) { addBlock(key, kQueries); });
    finishQueries();
  }

  void keysOnly(Value tile) {
    Value row = e.divide(tile, at.keyBlocks), first = e.times(e.remainder(tile, at.keyBlocks), at.blockKeys);
    Value newBatch = e.divide(row, s.keyHeads), firstHead = e.times(e.remainder(row, s.keyHeads), s.groupSize());
    Value count = e.minus(e.least(e.plus(first, at.blockKeys), e.index(s.keys)), first);
    setHead(newBatch, firstHead);
    startKeys(first, count);
    // The first block of queries that sees one of these keys.
    Value start = e.index(0);
    if (s.causal)
      start = e.times(e.divide(e.most(e.plus(first, -s.causalOffset), e.index(0)), kBlockQueries), kBlockQueries);
    e.each(e.index(0), e.index(s.groupSize()), 1, [&](Value member) {
      setHead(newBatch, e.plus(firstHead, member));
      e.each(start, e.index(s.queries), kBlockQueries, [&](Value query) {
        startQueries(query, kKeys);
        addBlock(first, kKeys);
      });
    });
    setHead(newBatch, firstHead);
    finishKeys(first, count);
  }

  //===-- Queries -----------------------------------------------------------===//

  MatrixView queryRows(int operand, int64_t features) {
    return operandAt(operand, e.plus(queryBase(features), e.times(queryFirst, features)), features);
  }

  void startQueries(Value first, unsigned wanted) {
    setQueries(first);
    Value count = e.minus(queryEnd, queryFirst);
    MatrixView query = queryRows(0, s.depth), outputGrad = queryRows(s.outputGrad, s.width);
    transposeQueries(query, at.queries, s.depth);
    transposeQueries(outputGrad, at.outputGrads, s.width);
    transposeQueries(queryRows(s.output, s.width), at.outputs, s.width);
    if (wanted & kKeys) {
      queryOperand = widened(query, at.queryCopy, count, s.depth);
      outputGradOperand = widened(outputGrad, at.outputGradCopy, count, s.width);
    }
    eachVectorOfQueries([&](const Vector &v) {
      MatrixView outputs = panel(at.outputs, v, s.width), grads = panel(at.outputGrads, v, s.width);
      Value delta = loops.loop(e.index(0), e.index(s.width), 1, {number(0).value}, [&](Value feature, ValueRange sum) {
        Lane output = lane(e.load(outputs, e.indexOf(outputs, feature, e.index(0)), e.lanes()));
        Lane grad = lane(e.load(grads, e.indexOf(grads, feature, e.index(0)), e.lanes()));
        return llvm::SmallVector<Value>{output.fma(grad, lane(sum[0]))};
      })[0];
      store(at.delta, v.offset, delta);
      Value row = e.plus(queryBase(1), v.first);
      Lane logsumexp = lane(e.load(operandAt(s.logsumexp, row, 1), row, e.lanes(), v.active));
      // A row without weights: e^(score − ∞) is 0 whatever the score.
      store(at.logsumexp, v.offset, equal(logsumexp, number(-HUGE_VAL)).select(number(HUGE_VAL), logsumexp));
    });
    if (!(wanted & kQueries))
      return;
    e.zeroRows(scratch(at.queryGrads, s.depth), e.index(kBlockQueries), s.depth);
    if (at.biasGrad)
      e.zeroRows(resultAt(3, e.times(e.plus(queryBase(1), queryFirst), s.keys), s.keys), count, s.keys);
  }

  void finishQueries() {
    MatrixView grad = resultAt(0, e.plus(queryBase(s.depth), e.times(queryFirst, s.depth)), s.depth);
    e.copyRows(scratch(at.queryGrads, s.depth), grad, e.minus(queryEnd, queryFirst), s.depth);
  }

  //===-- Keys and values ---------------------------------------------------===//

  MatrixView keyResult(unsigned result, int64_t features, Value first) {
    return resultAt(int(result), e.plus(keyBase(features), e.times(first, features)), features);
  }
  /// The sums of the rows that the tile makes, from its first one on.
  MatrixView sumsOf(unsigned result, int64_t features, Value first) {
    return at.isNarrow ? scratch(result == 1 ? at.keyGrads : at.valueGrads, features)
                       : keyResult(result, features, first);
  }

  void startKeys(Value first, Value count) {
    sumsFirst = first;
    e.zeroRows(sumsOf(1, s.depth, first), count, s.depth);
    e.zeroRows(sumsOf(2, s.width, first), count, s.width);
  }
  void finishKeys(Value first, Value count) {
    if (!at.isNarrow)
      return;
    e.copyRows(sumsOf(1, s.depth, first), keyResult(1, s.depth, first), count, s.depth);
    e.copyRows(sumsOf(2, s.width, first), keyResult(2, s.width, first), count, s.width);
  }

  //===-- A block -----------------------------------------------------------===//

  Value rowOf(Value row, const Vector &v) { return e.plus(e.times(row, kBlockQueries), v.offset); }

  void addBlock(Value first, unsigned wanted) {
    setKeys(first);
    Value rowEnd = e.most(e.minus(keyEnd, keyFirst), e.index(0));
    rowEnd = e.least(e.roundUp(rowEnd, e.rows()), e.minus(e.index(s.keys), keyFirst));
    MatrixView key = operandAt(1, e.plus(keyBase(s.depth), e.times(keyFirst, s.depth)), s.depth);
    MatrixView value = operandAt(2, e.plus(keyBase(s.width), e.times(keyFirst, s.width)), s.width);
    key = widened(key, at.keyCopy, rowEnd, s.depth);
    value = widened(value, at.valueCopy, rowEnd, s.width);
    eachVector([&](const Vector &v) { scoreGradsOf(v, key, value); });
    Value queries = e.minus(queryEnd, queryFirst);
    if (wanted & kKeys) {
      // A key's queries: from the first that sees a key of its registers' rows on.
      auto seeing = [&](Value row) {
        Value from = e.index(0);
        if (s.causal)
          from = e.most(e.minus(e.plus(e.plus(keyFirst, row), -s.causalOffset), queryFirst), from);
        return std::pair(from, queries);
      };
      Value sumRow = e.minus(keyFirst, sumsFirst);
      auto sums = [&](unsigned result, int64_t features) {
        MatrixView m = sumsOf(result, features, sumsFirst);
        m.base = e.plus(m.base, e.times(sumRow, features));
        return m;
      };
      e.multiply({scratch(at.weights, kBlockQueries), outputGradOperand, sums(2, s.width), rowEnd, s.keys % e.rows(),
                  s.width, seeing});
      e.multiply({scratch(at.scoreGrads, kBlockQueries), queryOperand, sums(1, s.depth), rowEnd, s.keys % e.rows(),
                  s.depth, seeing});
    }
    if (!(wanted & kQueries))
      return;
    auto seen = [&](Value row) {
      Value end = keysSeenBefore(e.least(e.plus(e.plus(queryFirst, row), e.rows()), queryEnd));
      return std::pair(e.index(0), e.most(e.minus(e.least(end, keyEnd), keyFirst), e.index(0)));
    };
    e.multiply({scratch(at.scoreGrads, 1, kBlockQueries), key, scratch(at.queryGrads, s.depth),
                e.roundUp(queries, e.rows()), 0, s.depth, seen});
    if (at.biasGrad)
      writeBiasGrad();
  }

  /// The weights, and the gradients of the raw scores, of one vector of queries.
  void scoreGradsOf(const Vector &v, const MatrixView &key, const MatrixView &value) {
    auto block = [&](int64_t offset) {
      MatrixView view = scratch(offset, kBlockQueries);
      view.base = e.plus(view.base, v.offset);
      return view;
    };
    auto multiply = [&](const MatrixView &rows, int64_t panels, int64_t features, int64_t to) {
      auto all = [&](Value) { return std::pair(e.index(0), e.index(features)); };
      e.multiply({rows, panel(panels, v, features), block(to), v.rowEnd, s.keys % e.rows(), e.lanes(), all, false});
    };
    multiply(key, at.queries, s.depth, at.weights);
    Lane logsumexp = load(at.logsumexp, v.offset), delta = load(at.delta, v.offset);
    eachRow(v, {}, [&](Value row, bool diagonal, ValueRange) {
      Value index = rowOf(row, v);
      std::optional<Lane> capped;
      Lane x = score(load(at.weights, index), v, row, diagonal, &capped), weight = exp(x - logsumexp);
      if (s.softcap > 0)
        store(at.slopes, index, (1.0 - *capped * *capped) * number(s.scale));
      if (s.dropout > 0) {
        store(at.undropped, index, weight);
        weight = kept(v, row).select(weight * number(s.keptScale()), number(0));
      }
      store(at.weights, index, weight);
      return llvm::SmallVector<Value>();
    });
    multiply(value, at.outputGrads, s.width, at.scoreGrads);
    e.each(e.index(0), v.rowEnd, 1, [&](Value row) {
      Value index = rowOf(row, v);
      Lane weight = load(at.weights, index), weightGrad = load(at.scoreGrads, index);
      Lane grad =
          s.dropout > 0 ? weight * weightGrad - load(at.undropped, index) * delta : weight * (weightGrad - delta);
      if (at.biasGrad)
        store(at.biasGrads, index, grad);
      store(at.scoreGrads, index, grad * (s.softcap > 0 ? load(at.slopes, index) : number(s.scale)));
    });
  }

  void writeBiasGrad() {
    eachVector([&](const Vector &v) {
      MatrixView from = scratch(at.biasGrads, kBlockQueries);
      from.base = e.plus(from.base, v.offset);
      Value row = e.plus(queryBase(1), v.first);
      MatrixView to = resultAt(3, e.plus(e.times(row, s.keys), keyFirst), s.keys);
      Value queries = v.active ? e.least(v.active, e.index(e.lanes())) : Value();
      e.transposeOut(from, to, at.blockKeys, v.rowEnd, queries);
    });
  }

  const GradLayout &at;
  MatrixView queryOperand, outputGradOperand;
  Value sumsFirst;
};

GradLayout gradLayoutOf(AttentionGradOp op, const AttentionShape &s) {
  return GradLayout(s, elementTypeOf(op.getQuery()), !op.getBiasGrad().empty());
}

} // namespace

int64_t AttentionGradOp::getTileCount() {
  AttentionShape s = attentionShapeOf(*this);
  GradLayout layout = gradLayoutOf(*this, s);
  return layout.whole ? s.batch * s.keyHeads : s.batch * (s.heads * layout.queryBlocks + s.keyHeads * layout.keyBlocks);
}

int64_t AttentionGradOp::getScratchBytes() { return gradLayoutOf(*this, attentionShapeOf(*this)).bytes(); }

void AttentionGradOp::emitTile(LoopBuilder &loops, Value tile) {
  AttentionShape s = attentionShapeOf(*this);
  GradLayout layout = gradLayoutOf(*this, s);
  GradEmitter(loops, s, layout).emit(tile);
}

} // namespace tcc::train
