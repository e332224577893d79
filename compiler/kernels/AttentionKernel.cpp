//===- AttentionKernel.cpp - the loops of attention -------------*- C++ -*-===//
//
// A tile is a block of one head's queries. It loops over the blocks of keys that the causal mask shows, with the online
// softmax: scores, their running maximum, weights relative to it, and running sums of values (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", arXiv:1805.02867; Dao et al., "FlashAttention", arXiv:2205.14135).
//
//===----------------------------------------------------------------------===//
#include "compiler/kernels/AttentionBlock.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/WarpAttention.h"

using namespace mlir;

namespace tcc::train {

namespace {

constexpr int64_t kForwardKeys = 128; ///< of a block

struct ForwardLayout : AttentionLayout {
  ForwardLayout(const AttentionShape &s, Type element, bool pairs) : AttentionLayout(s, element, kForwardKeys, pairs) {
    queries = take((pairs ? s.depth / 2 : s.depth) * kBlockQueries);
    sums = take(s.width * kBlockQueries);
    largest = take(kBlockQueries);
    total = take(kBlockQueries);
    scores = take(blockKeys * BlockEmitter::kMostLanes);
    if (isNarrow) {
      keyCopy = pairs ? 0 : take(blockKeys * s.depth);
      valueCopy = take((pairs ? blockKeys / 2 : blockKeys) * s.width);
    }
  }
  int64_t queries, sums; ///< panels of one vector of queries: [feature][lane]
  int64_t largest, total;
  int64_t scores; ///< of one vector of queries: [key][lane]; overwritten by the weights, as pairs [key / 2][lane]
  int64_t keyCopy = 0, valueCopy = 0;
};

class ForwardEmitter : AttentionCode {
public:
  ForwardEmitter(LoopBuilder &loops, const AttentionShape &s, const ForwardLayout &layout)
      : AttentionCode(loops, s, layout), at(layout), here(*this), scoring(*this, here), factors(*this, here),
        prefetch(*this, here) {}

  void emit(Value tile) {
    const int64_t blocks = llvm::divideCeil(s.queries, kBlockQueries);
    auto start = [&](Value number) {
      Value row = e.divide(number, blocks);
      here.setHead(e.divide(row, s.heads), e.remainder(row, s.heads));
      here.setQueries(e.times(e.remainder(number, blocks), kBlockQueries));
    };
    start(e.least(e.plus(tile, 1), e.index(s.batch * s.heads * blocks - 1)));
    setNextTile();
    start(tile);
    here.endKeysAt(scoring.shownEnd());
    end = here.keysSeenBefore(here.queryEnd);
    factors.transposeQueries(here.queryRows(0), at.queries, s.depth);
    e.each(e.index(0), e.index(kBlockQueries), e.lanes(), [&](Value i) {
      store(at.largest, i, number(-HUGE_VAL));
      store(at.total, i, number(0));
    });
    e.zeroRows(scratch(at.sums, kBlockQueries), e.index(s.width), kBlockQueries);
    e.each(e.index(0), end, at.blockKeys, [&](Value first) {
      here.setKeys(first);
      scoring.bringTerms();
      Value count = e.minus(here.keyEnd, here.keyFirst);
      // Scores are computed for a multiple of rows() keys.
      Value read = e.least(e.roundUp(count, e.rows()), e.minus(e.index(s.keys), here.keyFirst));
      key = factors.widened(here.keyRows(1), at.keyCopy, read, s.depth);
      value = factors.alongRows(here.keyRows(2), at.valueCopy, read, s.keys % 2, s.width);
      here.eachVector([&](const QueryVector &v) { addKeys(v); });
    });
    finish();
  }

private:
  Value rowOf(Value row) { return e.times(row, e.lanes()); }

  /// Prefetch rows for the batch, head and queries that `here` has now.
  void setNextTile() {
    // If a head's keys are one block, earlier tiles have already read the keys that they see.
    Value firstKey = e.index(0);
    if (s.causal && s.keys <= at.blockKeys)
      firstKey = e.choose(arith::CmpIPredicate::eq, here.queryFirst, e.index(0), e.index(0),
                          here.keysSeenBefore(here.queryFirst));
    const int64_t keys = s.causal ? kBlockQueries : at.blockKeys;
    nextTile = {prefetch.rows(MatrixView::kOperand, 0, here.batch, here.head, here.queryFirst, kBlockQueries),
                prefetch.rows(MatrixView::kResult, 0, here.batch, here.head, here.queryFirst, kBlockQueries),
                prefetch.rows(MatrixView::kOperand, 1, here.batch, here.keyHead, firstKey, keys),
                prefetch.rows(MatrixView::kOperand, 2, here.batch, here.keyHead, firstKey, keys)};
  }

  void addKeys(const QueryVector &v) {
    MatrixView scores = scratch(at.scores, e.lanes());
    Value nextFirst = e.plus(here.keyFirst, at.blockKeys);
    auto askForKeys = [&](Value row, Value) {
      AttentionPrefetch::Share share = prefetch.share(row, at.blockKeys, v.offset, kBlockQueries);
      for (int operand : {1, 2})
        prefetch.ask(prefetch.rows(MatrixView::kOperand, operand, here.batch, here.keyHead, nextFirst, at.blockKeys),
                     share);
    };
    auto askForTile = [&](Value row, int half) {
      AttentionPrefetch::Share share = prefetch.share(row, s.width, v.offset, kBlockQueries);
      if (v.halfEnd)
        share = {e.plus(e.times(share.part, 2), half), share.parts * 2};
      e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, nextFirst, end), [&] {
        for (const AttentionPrefetch::Rows &rows : nextTile)
          prefetch.ask(rows, share);
      });
    };
    llvm::function_ref<void(Value, Value)> besideScores = nullptr;
    if (s.keys > at.blockKeys)
      besideScores = askForKeys;
    factors.multiplyRows(key, factors.operandPanel(at.queries, v, s.depth), scores, v, s.depth, besideScores);
    Lane before = load(at.largest, v.offset);
    Lane largest = lane(here.eachRow(v, {before.value}, [&](Value row, bool diagonal, ValueRange carried) {
      Lane product = load(at.scores, rowOf(row)), x = scoring.score(product, v, row, diagonal);
      if (x.value != product.value)
        store(at.scores, rowOf(row), x);
      return llvm::SmallVector<Value>{greater(x, lane(carried[0])).select(x, lane(carried[0]))};
    })[0]);
    store(at.largest, v.offset, largest);
    Lane base = scoring.formula.finiteBase(scoring.formula.scaled(largest)),
         shrunk = scoring.formula.exp(scoring.formula.scaled(before) - base);
    Lane total = load(at.total, v.offset) * shrunk;
    // Adds the weight to `sum`, and returns the weight after dropout, which multiplies the value.
    auto weigh = [&](Value row, Lane &sum) {
      Lane weight = scoring.formula.expAbove(load(at.scores, rowOf(row)), base);
      sum = sum + weight;
      return s.dropout > 0 ? scoring.formula.left(weight, scoring.kept(v, row)) : weight;
    };
    if (at.pairs) {
      total = lane(e.eachPair(v.rowEnd, s.keys % 2, {total.value}, [&](Value row, bool alone, ValueRange carried) {
        Lane sum = lane(carried[0]);
        Value low = loops.roundToPairs(weigh(row, sum));
        Value high = loops.roundToPairs(alone ? number(0) : weigh(e.plus(row, 1), sum));
        e.store(words(0, 1), e.plus(rowOf(e.divide(row, 2)), at.scores), e.paired(low, high));
        return llvm::SmallVector<Value>{sum.value};
      })[0]);
    } else {
      total = lane(loops.loop(e.index(0), v.rowEnd, 1, {total.value}, [&](Value row, ValueRange carried) {
        Lane sum = lane(carried[0]), weight = weigh(row, sum);
        store(at.scores, rowOf(row), weight);
        return llvm::SmallVector<Value>{sum.value};
      })[0]);
    }
    store(at.total, v.offset, total);
    // Values in rows of features: sums[feature][lane] += value[key][feature]·weight[key][lane].
    MatrixView features = value, weights = at.pairs ? words(at.scores, e.lanes()) : scores;
    std::swap(features.rowStride, features.columnStride);
    MatrixView sums = factors.panel(at.sums, v, s.width);
    Value halfEnd = v.halfEnd ? steps(v.halfEnd) : Value(), end = steps(v.rowEnd);
    auto seenByAll = [&](Value) { return std::pair(e.index(0), halfEnd ? halfEnd : end); };
    e.multiply({features, weights, sums, e.index(s.width), s.width % e.rows(), e.lanes(), seenByAll, true, shrunk,
                [&](Value row, Value) { askForTile(row, 0); }});
    if (!halfEnd)
      return;
    auto seenByHalf = [&](Value) { return std::pair(halfEnd, end); };
    Value none = e.index(0);
    e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, halfEnd, end), [&] {
      e.multiply({features,
                  factors.secondHalf(weights, none),
                  factors.secondHalf(sums, none),
                  e.index(s.width),
                  s.width % e.rows(),
                  e.lanes() / 2,
                  seenByHalf,
                  true,
                  {},
                  [&](Value row, Value) { askForTile(row, 1); }});
    });
  }

  void finish() {
    here.eachVectorOfQueries([&](const QueryVector &v) {
      Lane total = load(at.total, v.offset), none = equal(total, number(0));
      Lane inverse = none.select(number(0), 1.0 / total);
      MatrixView sums = factors.panel(at.sums, v, s.width);
      e.each(e.index(0), e.index(s.width), 1, [&](Value feature) {
        Value index = e.indexOf(sums, feature, e.index(0));
        e.store(sums, index, lane(e.load(sums, index, e.lanes())) * inverse);
      });
      ScoreFormula::Logsumexp log = scoring.formula.logsumexp(
          scoring.formula.finiteBase(scoring.formula.scaled(load(at.largest, v.offset))), total);
      Value row = e.plus(here.queryBase(), v.first);
      e.store(resultAt(1, row, 1), row, log.value, v.active);
      e.store(resultAt(2, row, 1), row, log.rest, v.active);
      MatrixView output = here.rowsOf(MatrixView::kResult, 0, here.head, v.first);
      e.transposeOut(sums, output, s.width, Value(), v.active ? e.least(v.active, e.index(e.lanes())) : Value());
    });
  }

  const ForwardLayout &at;
  AttentionBlock here;
  AttentionScores scoring;
  AttentionFactors factors;
  AttentionPrefetch prefetch;
  MatrixView key, value; ///< of the block
  Value end;             ///< end of the keys that the tile sees
  llvm::SmallVector<AttentionPrefetch::Rows> nextTile;
};

struct AttentionLoops : LoopKernel::ExternalModel<AttentionLoops, AttentionOp> {
  int64_t getTileCount(Operation *op) const {
    AttentionShape s = attentionShapeOf(cast<AttentionOp>(op));
    return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, AttentionLayout::kBlockQueries));
  }
  int64_t getScratchBytes(Operation *op) const {
    return mostBytes<ForwardLayout>(attentionShapeOf(cast<AttentionOp>(op)), elementTypeOf(op->getOperand(0)));
  }
  bool acceptsLayout(Operation *op, bool isResult, unsigned number, const StridedLayout &layout) const {
    AttentionShape s = attentionShapeOf(cast<AttentionOp>(op));
    if (number >= (isResult ? 1 : 3))
      return false;
    int64_t features = shapeOf(isResult ? Value(op->getResult(number)) : op->getOperand(number)).back();
    return isRowWise(s, elementTypeOf(op->getOperand(0)), layout, features, op->hasAttr(names::kWordRows));
  }
  Type getProductType(Operation *op, bool multipliesPairs) const {
    return productTypeOf(cast<AttentionOp>(op), multipliesPairs);
  }
  int64_t getGroupTileCount(Operation *op) const { return warpTilesOf(cast<AttentionOp>(op)); }
  int64_t getTileGroups(Operation *) const { return kAttentionWarps; }
  void emitGroupTile(Operation *op, LoopBuilder &loops, Value tile) const {
    emitWarpAttention(cast<AttentionOp>(op), loops, tile);
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    AttentionShape s = attentionShapeOf(cast<AttentionOp>(op));
    Type element = elementTypeOf(op->getOperand(0));
    ForwardLayout layout(s, element, loops.multipliesPairs() && suitsPairs(s, element));
    ForwardEmitter(loops, s, layout).emit(tile);
  }
};

} // namespace

void attachAttention(MLIRContext &context) { AttentionOp::attachInterface<AttentionLoops>(context); }

} // namespace tcc::train
