//===- AttentionGradKernel.cpp - the loops of attention's gradient -*- C++ -*-===//
//
// Weights are recomputed from the scores and logsumexp with its rest, one block of queries and keys after another, and
// each block adds to the gradients of its queries, keys and values: five products (Dao et al., "FlashAttention",
// arXiv:2205.14135, algorithm 4). Sums run over blocks in one order: through the queries, for each through the keys.
// With enough heads, a tile covers one head's keys and all heads of queries that read them. Else there is a tile for
// each block of queries, which makes their gradients, and one for each block of keys, which makes those of keys and
// values: seven products, but more tiles.
//
//===----------------------------------------------------------------------===//
#include "compiler/kernels/AttentionBlock.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/kernels/WarpAttention.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace tcc::train {

namespace {

constexpr int64_t kGradKeys = 64; ///< of a block
/// With fewer heads, each is split into several tiles. This depends on the shape alone, not on the machine.
constexpr int64_t kLeastWholeHeads = 4;

struct GradLayout : AttentionLayout {
  GradLayout(const AttentionShape &s, Type element, bool pairs, bool biasGrad)
      : AttentionLayout(s, element, kGradKeys, pairs), biasGrad(biasGrad),
        queryBlocks(llvm::divideCeil(s.queries, kBlockQueries)), keyBlocks(llvm::divideCeil(s.keys, blockKeys)),
        whole(s.batch * s.keyHeads >= kLeastWholeHeads || (queryBlocks == 1 && keyBlocks == 1)) {
    const int64_t words = pairs ? 2 : 1; // elements of a word
    const int64_t block = blockKeys * kBlockQueries;
    queries = take(s.depth * kBlockQueries / words);
    outputGrads = take(s.width * kBlockQueries / words);
    outputs = take(s.width * kBlockQueries / words);
    delta = take(kBlockQueries);
    logsumexp = take(kBlockQueries);
    logsumexpRest = take(kBlockQueries);
    const int64_t sums = pairs ? blockKeys * BlockEmitter::kMostLanes : block;
    weights = take(sums);
    scoreGrads = take(sums);
    if (s.dropout > 0)
      undropped = take(sums);
    if (s.hasSlopes())
      slopes = take(sums);
    if (biasGrad)
      biasGrads = take(block);
    queryGrads = take(s.depth * kBlockQueries);
    if (!isNarrow)
      return;
    queryCopy = take(s.depth * kBlockQueries / words);
    outputGradCopy = take(s.width * kBlockQueries / words);
    keyCopy = take(s.depth * blockKeys / words);
    if (pairs) {
      weightRows = take(block / 2);
      scoreGradRows = take(block / 2);
      scoreGradPairs = take(block / 2);
    } else {
      valueCopy = take(s.width * blockKeys);
    }
    int64_t rows = whole ? s.keys : blockKeys;
    keyGrads = take(rows * s.depth);
    valueGrads = take(rows * s.width);
  }

  bool biasGrad;
  int64_t queryBlocks, keyBlocks;
  bool whole;                            ///< a tile is a whole head
  int64_t queries, outputGrads, outputs; ///< panels of one vector of queries: [feature][lane]
  int64_t delta, logsumexp, logsumexpRest;
  /// Of the block, [key][query]: weights after dropout, gradients of the raw scores, weights before dropout,
  /// derivatives of capped or filled scores by the raw ones, and gradients of the scores with their bias.
  int64_t weights, scoreGrads, undropped = 0, slopes = 0, biasGrads = 0;
  int64_t queryGrads;                                                    ///< of the block, [query][feature]
  int64_t queryCopy = 0, outputGradCopy = 0, keyCopy = 0, valueCopy = 0; ///< widened, or pairs of rows
  /// With products of pairs: rounded weights and score gradients, [key][query], the latter also as pairs of keys. The
  /// unrounded values above then hold only one vector of queries, [key][lane].
  int64_t weightRows = 0, scoreGradRows = 0, scoreGradPairs = 0;
  int64_t keyGrads = 0, valueGrads = 0; ///< sums, if the results are narrower
};

class GradEmitter : AttentionCode {
public:
  GradEmitter(LoopBuilder &loops, const AttentionShape &s, const GradLayout &layout)
      : AttentionCode(loops, s, layout), at(layout), here(*this), scoring(*this, here), factors(*this, here),
        prefetch(*this, here) {}

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
    sumsFirst = e.index(0);
    here.setHead(newBatch, firstHead);
    here.endKeysAt(scoring.shownEnd());
    e.each(e.index(0), e.index(s.groupSize()), 1, [&](Value member) {
      here.setHead(newBatch, e.plus(firstHead, member));
      e.each(e.index(0), e.index(s.queries), kBlockQueries, [&](Value first) {
        startQueries(first, kQueries | kKeys);
        // Blocks of keys from here on have no sums yet.
        Value untouched = s.causal ? here.keysSeenBefore(first) : here.keysShown();
        untouched = e.choose(arith::CmpIPredicate::eq, first, e.index(0), e.index(0), untouched);
        untouched = e.choose(arith::CmpIPredicate::eq, member, e.index(0), untouched, e.index(s.keys));
        setNextQueries();
        Value end = here.keysSeenBefore(here.queryEnd);
        e.each(e.index(0), end, at.blockKeys, [&](Value key) {
          e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, key, untouched),
                 [&] { zeroKeys(key, e.least(e.minus(e.index(s.keys), key), e.index(at.blockKeys))); });
          setNextKeys(e.plus(key, at.blockKeys), end);
          addBlock(key, kQueries | kKeys);
        });
        finishQueries();
      });
    });
    here.setHead(newBatch, firstHead);
    if (here.endsAtPadding()) {
      Value touched = e.roundUp(here.keysSeenBefore(e.index(s.queries)), at.blockKeys);
      touched = e.least(touched, e.index(s.keys));
      zeroKeys(touched, e.minus(e.index(s.keys), touched));
    } else if (const int64_t touched = llvm::alignTo(s.seenBy(s.queries - 1), uint64_t(at.blockKeys));
               touched < s.keys) {
      zeroKeys(e.index(touched), e.index(s.keys - touched));
    }
    finishKeys(e.index(0), e.index(s.keys));
  }

  void queriesOnly(Value tile) {
    Value row = e.divide(tile, at.queryBlocks);
    here.setHead(e.divide(row, s.heads), e.remainder(row, s.heads));
    here.endKeysAt(scoring.shownEnd());
    startQueries(e.times(e.remainder(tile, at.queryBlocks), kBlockQueries), kQueries);
    e.each(e.index(0), here.keysSeenBefore(here.queryEnd), at.blockKeys, [&](Value key) { addBlock(key, kQueries); });
    finishQueries();
  }

  void keysOnly(Value tile) {
    Value row = e.divide(tile, at.keyBlocks), first = e.times(e.remainder(tile, at.keyBlocks), at.blockKeys);
    Value newBatch = e.divide(row, s.keyHeads), firstHead = e.times(e.remainder(row, s.keyHeads), s.groupSize());
    Value count = e.minus(e.least(e.plus(first, at.blockKeys), e.index(s.keys)), first);
    here.setHead(newBatch, firstHead);
    here.endKeysAt(scoring.shownEnd());
    startKeys(first, count);
    // The first block of queries that sees one of these keys.
    Value start = e.index(0);
    if (s.causal)
      start = e.times(e.divide(e.most(e.plus(first, -s.causalOffset), e.index(0)), kBlockQueries), kBlockQueries);
    // To keys that are only padding, nothing is added.
    if (here.endsAtPadding())
      start = e.choose(arith::CmpIPredicate::slt, first, here.keysShown(), start, e.index(s.queries));
    e.each(e.index(0), e.index(s.groupSize()), 1, [&](Value member) {
      here.setHead(newBatch, e.plus(firstHead, member));
      e.each(start, e.index(s.queries), kBlockQueries, [&](Value query) {
        startQueries(query, kKeys);
        addBlock(first, kKeys);
      });
    });
    here.setHead(newBatch, firstHead);
    finishKeys(first, count);
  }

  //===-- Queries -----------------------------------------------------------===//

  /// Sets the block of queries that follows this one, possibly of another head.
  void setNextQueries() {
    Value next = e.plus(here.queryFirst, kBlockQueries), all = e.index(s.queries);
    Value thisRow = e.plus(e.times(here.batch, s.heads), here.head);
    Value nextRow = e.least(e.plus(thisRow, 1), e.index(s.batch * s.heads - 1));
    Value row = e.choose(arith::CmpIPredicate::slt, next, all, thisRow, nextRow);
    nextQuery = e.choose(arith::CmpIPredicate::slt, next, all, next, e.index(0));
    nextBatch = e.divide(row, s.heads);
    nextHead = e.remainder(row, s.heads);
  }

  /// Sets the block of keys that follows this one: the one at `first` if that is before `end`, else the first one of
  /// the next block of queries.
  void setNextKeys(Value first, Value end) {
    nextKey = e.choose(arith::CmpIPredicate::slt, first, end, first, e.index(0));
    nextKeyBatch = e.choose(arith::CmpIPredicate::slt, first, end, here.batch, nextBatch);
    nextKeyHead = e.choose(arith::CmpIPredicate::slt, first, end, here.keyHead, here.keyHeadOf(nextHead));
  }

  /// During a product, prefetches a share of the rows that the next blocks read and add to. Rows of queries are
  /// prefetched once, during their first block of keys.
  void askForNext(const AttentionPrefetch::Share &share, int keyOperand, llvm::ArrayRef<int> queryOperands,
                  bool queryResult) {
    if (!at.whole)
      return;
    auto keysAhead = [&](MatrixView::Place place) {
      return prefetch.rows(place, keyOperand, nextKeyBatch, nextKeyHead, nextKey, at.blockKeys);
    };
    auto queriesAhead = [&](MatrixView::Place place, int number) {
      return prefetch.rows(place, number, nextBatch, nextHead, nextQuery, kBlockQueries);
    };
    if (keyOperand) {
      prefetch.ask(keysAhead(MatrixView::kOperand), share);
      if (!at.isNarrow)
        prefetch.ask(keysAhead(MatrixView::kResult), share);
    }
    e.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, here.keyFirst, e.index(0)), [&] {
      for (int number : queryOperands)
        prefetch.ask(queriesAhead(MatrixView::kOperand, number), share);
      if (queryResult)
        prefetch.ask(queriesAhead(MatrixView::kResult, 0), share);
    });
  }

  void startQueries(Value first, unsigned wanted) {
    here.setQueries(first);
    Value count = e.minus(here.queryEnd, here.queryFirst);
    MatrixView query = here.queryRows(0), outputGrad = here.queryRows(s.outputGrad);
    factors.transposeQueries(query, at.queries, s.depth);
    factors.transposeQueries(outputGrad, at.outputGrads, s.width);
    if (s.output >= 0)
      factors.transposeQueries(here.queryRows(s.output), at.outputs, s.width);
    if (wanted & kKeys) {
      queryOperand = factors.alongRows(query, at.queryCopy, count, s.queries % 2, s.depth);
      outputGradOperand = factors.alongRows(outputGrad, at.outputGradCopy, count, s.queries % 2, s.width);
    }
    here.eachVectorOfQueries([&](const QueryVector &v) {
      MatrixView outputs = factors.operandPanel(at.outputs, v, s.width),
                 grads = factors.operandPanel(at.outputGrads, v, s.width);
      Value end = e.index(steps(s.width));
      Value row = e.plus(here.queryBase(), v.first);
      auto deltaOf = [&] {
        return loops.loop(e.index(0), end, 1, {number(0).value}, [&](Value step, ValueRange sum) {
          Value output = e.load(outputs, e.indexOf(outputs, step, e.index(0)), e.lanes());
          Value grad = e.load(grads, e.indexOf(grads, step, e.index(0)), e.lanes());
          return llvm::SmallVector<Value>{at.pairs ? loops.addPairs(sum[0], output, grad)
                                                   : lane(output).fma(lane(grad), lane(sum[0])).value};
        })[0];
      };
      store(at.delta, v.offset,
            s.delta >= 0 ? e.load(operandAt(s.delta, row, 1), row, e.lanes(), v.active) : deltaOf());
      Lane logsumexp = lane(e.load(operandAt(s.logsumexp, row, 1), row, e.lanes(), v.active));
      logsumexp = scoring.formula.forWeights(logsumexp);
      // The lane that completes the last query's pair has no weights either.
      if (at.pairs && v.active)
        logsumexp = lanesFrom(v.active).select(number(HUGE_VAL), logsumexp);
      store(at.logsumexp, v.offset, logsumexp);
      store(at.logsumexpRest, v.offset,
            s.logsumexpRest >= 0 ? lane(e.load(operandAt(s.logsumexpRest, row, 1), row, e.lanes(), v.active))
                                 : number(0));
    });
    if (!(wanted & kQueries))
      return;
    e.zeroRows(scratch(at.queryGrads, s.depth), e.index(kBlockQueries), s.depth);
    if (at.biasGrad)
      e.zeroRows(resultAt(3, e.times(e.plus(here.queryBase(), here.queryFirst), s.keys), s.keys), count, s.keys);
  }

  void finishQueries() {
    MatrixView grad = here.rowsOf(MatrixView::kResult, 0, here.head, here.queryFirst);
    e.copyRows(scratch(at.queryGrads, s.depth), grad, e.minus(here.queryEnd, here.queryFirst), s.depth);
  }

  //===-- Keys and values ---------------------------------------------------===//

  MatrixView keyResult(unsigned result, Value first) {
    return here.rowsOf(MatrixView::kResult, int(result), here.keyHead, first);
  }
  /// The sums for the tile's rows, from its first one on.
  MatrixView sumsOf(unsigned result, int64_t features, Value first) {
    return at.isNarrow ? scratch(result == 1 ? at.keyGrads : at.valueGrads, features) : keyResult(result, first);
  }
  /// The same from a given key on.
  MatrixView blockSums(unsigned result, int64_t features, Value key) {
    MatrixView m = sumsOf(result, features, sumsFirst);
    m.base = e.plus(m.base, e.times(e.minus(key, sumsFirst), m.rowStride));
    return m;
  }

  void startKeys(Value first, Value count) {
    sumsFirst = first;
    zeroKeys(first, count);
  }
  /// Zeroes rows of the sums.
  void zeroKeys(Value first, Value count) {
    for (unsigned result : {1u, 2u}) {
      const int64_t features = result == 1 ? s.depth : s.width;
      e.zeroRows(blockSums(result, features, first), count, features);
    }
  }
  void finishKeys(Value first, Value count) {
    if (!at.isNarrow)
      return;
    e.copyRows(sumsOf(1, s.depth, first), keyResult(1, first), count, s.depth);
    e.copyRows(sumsOf(2, s.width, first), keyResult(2, first), count, s.width);
  }

  //===-- A block -----------------------------------------------------------===//

  /// Offset of a row of weights, and of their gradients and slopes.
  Value rowOf(Value row, const QueryVector &v) {
    return at.pairs ? e.times(row, e.lanes()) : e.plus(e.times(row, kBlockQueries), v.offset);
  }

  void addBlock(Value first, unsigned wanted) {
    here.setKeys(first);
    scoring.bringTerms();
    Value rowEnd = e.most(e.minus(here.keyEnd, here.keyFirst), e.index(0));
    rowEnd = e.least(e.roundUp(rowEnd, e.rows()), e.minus(e.index(s.keys), here.keyFirst));
    MatrixView key = here.keyRows(1), keyPairs = key;
    MatrixView value = factors.widened(here.keyRows(2), at.valueCopy, rowEnd, s.width);
    if (!at.pairs)
      key = keyPairs = factors.widened(key, at.keyCopy, rowEnd, s.depth);
    else if (wanted & kQueries)
      keyPairs = factors.alongRows(key, at.keyCopy, rowEnd, s.keys % 2, s.depth);
    here.eachVector([&](const QueryVector &v) { scoreGradsOf(v, key, value); });
    Value queries = e.minus(here.queryEnd, here.queryFirst);
    if (wanted & kKeys) {
      // The queries of a key: from the first one that sees a key of the same rows() on.
      auto seeing = [&](Value row) {
        Value from = e.index(0);
        if (s.causal)
          from = e.most(e.minus(e.plus(e.plus(here.keyFirst, row), -s.causalOffset), here.queryFirst), from);
        return std::pair(at.pairs ? e.divide(from, 2) : from, steps(queries));
      };
      auto rows = [&](int64_t single, int64_t rounded) {
        return at.pairs ? words(rounded, kBlockQueries / 2) : scratch(single, kBlockQueries);
      };
      auto besideValues = [&](Value row, Value column) {
        askForNext(prefetch.share(row, at.blockKeys, column, s.width), 2, {s.outputGrad}, false);
      };
      auto besideKeys = [&](Value row, Value column) {
        AttentionPrefetch::Share share = prefetch.share(row, at.blockKeys, column, s.depth);
        s.output >= 0 ? askForNext(share, 1, {s.output}, false) : askForNext(share, 1, {}, false);
      };
      e.multiply({rows(at.weights, at.weightRows),
                  outputGradOperand,
                  blockSums(2, s.width, here.keyFirst),
                  rowEnd,
                  s.keys % e.rows(),
                  s.width,
                  seeing,
                  true,
                  {},
                  besideValues});
      e.multiply({rows(at.scoreGrads, at.scoreGradRows),
                  queryOperand,
                  blockSums(1, s.depth, here.keyFirst),
                  rowEnd,
                  s.keys % e.rows(),
                  s.depth,
                  seeing,
                  true,
                  {},
                  besideKeys});
    }
    if (!(wanted & kQueries))
      return;
    auto seen = [&](Value row) {
      Value end = here.keysSeenBefore(e.least(e.plus(e.plus(here.queryFirst, row), e.rows()), here.queryEnd));
      return std::pair(e.index(0), steps(e.most(e.minus(e.least(end, here.keyEnd), here.keyFirst), e.index(0))));
    };
    MatrixView grads = at.pairs ? words(at.scoreGradPairs, 1, kBlockQueries) : scratch(at.scoreGrads, 1, kBlockQueries);
    auto besideQueries = [&](Value row, Value column) {
      askForNext(prefetch.share(row, kBlockQueries, column, s.depth), 0, {0}, true);
    };
    e.multiply({grads,
                keyPairs,
                scratch(at.queryGrads, s.depth),
                e.roundUp(queries, e.rows()),
                0,
                s.depth,
                seen,
                true,
                {},
                besideQueries});
    if (at.biasGrad)
      writeBiasGrad();
  }

  /// The weights, and the gradients of the raw scores, of one vector of queries.
  void scoreGradsOf(const QueryVector &v, const MatrixView &key, const MatrixView &value) {
    auto block = [&](int64_t offset) {
      MatrixView view = scratch(offset, at.pairs ? e.lanes() : kBlockQueries);
      view.base = e.plus(view.base, rowOf(e.index(0), v));
      return view;
    };
    // Rounded rows, as words of neighbouring queries.
    auto storeRow = [&](int64_t to, Value row, Value rounded) {
      Value asWords = vector::BitCastOp::create(b, loc, VectorType::get({e.lanes() / 2}, b.getI32Type()), rounded);
      Value index = e.plus(e.times(row, kBlockQueries / 2), e.divide(v.offset, 2));
      e.store(words(0, 1), e.plus(index, to), asWords);
    };
    Lane logsumexp = load(at.logsumexp, v.offset), rest = load(at.logsumexpRest, v.offset);
    Lane delta = load(at.delta, v.offset);
    auto weightOf = [&](Value row, bool diagonal, Lane product) {
      Value index = rowOf(row, v);
      std::optional<Lane> slope;
      Lane x = scoring.score(product, v, row, diagonal, &slope), weight = scoring.formula.expAbove(x, logsumexp, rest);
      if (s.hasSlopes())
        store(at.slopes, index, *slope * number(s.scale));
      if (s.dropout > 0) {
        store(at.undropped, index, weight);
        weight = scoring.formula.left(weight, scoring.kept(v, row));
      }
      return weight;
    };
    // Computed while sums are in registers, by units that are idle during products.
    auto weighSum = [&](Value row, Value sum) { return weightOf(row, false, lane(sum)).value; };
    MatrixView queries = factors.operandPanel(at.queries, v, s.depth),
               outputGrads = factors.operandPanel(at.outputGrads, v, s.width);
    if (at.pairs) {
      factors.multiplyRows(key, queries, block(at.weights), v, s.depth);
      here.eachRow(v, {}, [&](Value row, bool diagonal, ValueRange) {
        Value index = rowOf(row, v);
        Lane weight = weightOf(row, diagonal, load(at.weights, index));
        store(at.weights, index, weight);
        storeRow(at.weightRows, row, loops.roundToPairs(weight));
        return llvm::SmallVector<Value>();
      });
    } else {
      Value diagonal;
      if (s.causal)
        diagonal = e.least(e.minus(v.freeEnd, e.remainder(v.freeEnd, e.rows())), v.halfEnd);
      factors.multiplyRows(key, queries, block(at.weights), v, s.depth, nullptr, diagonal, weighSum);
      if (s.causal)
        e.each(diagonal, v.rowEnd, 1, [&](Value row) {
          Value index = rowOf(row, v);
          store(at.weights, index, weightOf(row, true, load(at.weights, index)));
        });
    }
    // The raw score's gradient.
    auto gradOf = [&](Value row, Lane weightGrad) {
      Value index = rowOf(row, v);
      Lane weight = load(at.weights, index);
      Lane whole = s.dropout > 0 ? load(at.undropped, index) : weight;
      Lane grad = scoring.formula.scoreGrad(whole, weight, weightGrad, delta);
      if (at.biasGrad)
        store(at.biasGrads, e.plus(e.times(row, kBlockQueries), v.offset), grad);
      return grad * (s.hasSlopes() ? load(at.slopes, index) : number(s.scale));
    };
    auto gradOfSum = [&](Value row, Value sum) { return gradOf(row, lane(sum)).value; };
    if (at.pairs)
      factors.multiplyRows(value, outputGrads, block(at.scoreGrads), v, s.width);
    else
      factors.multiplyRows(value, outputGrads, block(at.scoreGrads), v, s.width, nullptr, nullptr, gradOfSum);
    // Lanes without a product have weight 0, but their gradient must not be NaN.
    if (v.halfEnd)
      e.each(v.halfEnd, v.rowEnd, 1,
             [&](Value row) { e.store(scratch(0, 1), e.plus(rowOf(row, v), at.scoreGrads), e.zeros(e.lanes() / 2)); });
    auto gradAt = [&](Value row) { return gradOf(row, load(at.scoreGrads, rowOf(row, v))); };
    if (!at.pairs) {
      if (v.halfEnd)
        e.each(v.halfEnd, v.rowEnd, 1, [&](Value row) { store(at.scoreGrads, rowOf(row, v), gradAt(row)); });
      return;
    }
    e.eachPair(v.rowEnd, s.keys % 2, {}, [&](Value row, bool alone, ValueRange) {
      Value low = loops.roundToPairs(gradAt(row));
      Value high = loops.roundToPairs(alone ? number(0) : gradAt(e.plus(row, 1)));
      storeRow(at.scoreGradRows, row, low);
      if (!alone)
        storeRow(at.scoreGradRows, e.plus(row, 1), high);
      Value index = e.plus(e.times(e.divide(row, 2), kBlockQueries), v.offset);
      e.store(words(0, 1), e.plus(index, at.scoreGradPairs), e.paired(low, high));
      return llvm::SmallVector<Value>();
    });
  }

  void writeBiasGrad() {
    here.eachVector([&](const QueryVector &v) {
      MatrixView from = scratch(at.biasGrads, kBlockQueries);
      from.base = e.plus(from.base, v.offset);
      Value row = e.plus(here.queryBase(), v.first);
      MatrixView to = resultAt(3, e.plus(e.times(row, s.keys), here.keyFirst), s.keys);
      Value queries = v.active ? e.least(v.active, e.index(e.lanes())) : Value();
      e.transposeOut(from, to, at.blockKeys, v.rowEnd, queries);
    });
  }

  const GradLayout &at;
  AttentionBlock here;
  AttentionScores scoring;
  AttentionFactors factors;
  AttentionPrefetch prefetch;
  MatrixView queryOperand, outputGradOperand;
  Value sumsFirst;
  Value nextBatch, nextHead, nextQuery;     ///< the next block of queries
  Value nextKeyBatch, nextKeyHead, nextKey; ///< the next block of keys
};

struct AttentionGradLoops : LoopKernel::ExternalModel<AttentionGradLoops, AttentionGradOp> {
  int64_t getTileCount(Operation *op) const {
    AttentionShape s = shapeOf(op);
    GradLayout layout(s, elementOf(op), false, false); // blocks are the same at all machine levels
    return layout.whole ? s.batch * s.keyHeads
                        : s.batch * (s.heads * layout.queryBlocks + s.keyHeads * layout.keyBlocks);
  }
  int64_t getScratchBytes(Operation *op) const {
    return mostBytes<GradLayout>(shapeOf(op), elementOf(op), hasBiasGrad(op));
  }
  bool acceptsLayout(Operation *op, bool isResult, unsigned number, const StridedLayout &layout) const {
    AttentionShape s = shapeOf(op);
    bool ofHeads = number < 3 || (!isResult && (int(number) == s.output || int(number) == s.outputGrad));
    if (!ofHeads)
      return false;
    int64_t features = train::shapeOf(isResult ? Value(op->getResult(number)) : op->getOperand(number)).back();
    return isRowWise(s, elementOf(op), layout, features, op->hasAttr(names::kWordRows));
  }
  Type getProductType(Operation *op, bool multipliesPairs) const {
    return productTypeOf(cast<AttentionGradOp>(op), multipliesPairs);
  }
  int64_t getGroupTileCount(Operation *op) const { return warpTilesOf(cast<AttentionGradOp>(op)); }
  int64_t getTileGroups(Operation *) const { return kAttentionWarps; }
  void emitGroupTile(Operation *op, LoopBuilder &loops, Value tile) const {
    emitWarpAttentionGrad(cast<AttentionGradOp>(op), loops, tile);
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const {
    AttentionShape s = shapeOf(op);
    GradLayout layout(s, elementOf(op), loops.multipliesPairs() && suitsPairs(s, elementOf(op)), hasBiasGrad(op));
    GradEmitter(loops, s, layout).emit(tile);
  }

private:
  static AttentionShape shapeOf(Operation *op) { return attentionShapeOf(cast<AttentionGradOp>(op)); }
  static Type elementOf(Operation *op) { return elementTypeOf(op->getOperand(0)); }
  static bool hasBiasGrad(Operation *op) { return !cast<AttentionGradOp>(op).getBiasGrad().empty(); }
};

} // namespace

void attachAttentionGrad(MLIRContext &context) { AttentionGradOp::attachInterface<AttentionGradLoops>(context); }

} // namespace tcc::train
