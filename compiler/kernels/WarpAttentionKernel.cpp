//===- WarpAttentionKernel.cpp - attention for warps ----------------------===//

#include "compiler/kernels/WarpAttention.h"

using namespace mlir;

namespace tcc::train {

namespace {

using Lanes = llvm::SmallVector<Lane>;

constexpr int64_t kHalves = 2; ///< rows g and g + 8 of a tile

/// A warp owns one or two tiles of 16 queries and loops over the keys with the online softmax, 64 or 32 at a time. Two
/// tiles halve a warp's reads, if their sums fit into registers.
class WarpForward : WarpAttention {
public:
  /// Queries of a block.
  static int64_t rowsOf(const AttentionShape &s, const TileForm &form) {
    return kGroup * ownTiles(s, form) * WarpStage::kWarps;
  }

  WarpForward(LoopBuilder &loops, const AttentionShape &s, TileNumbers numbers, bool keepsRest)
      : WarpAttention(loops, s, numbers), keepsRest(keepsRest), tiles(ownTiles(s, form)), features(allOf(s.width)),
        block(std::min<int64_t>(stage.rows(), s.keys > 32 && tiles == 2 ? 64 : 32)) {}

  void emit(Value tile) {
    const int64_t blockRows = rowsOf(s, form), blocks = llvm::divideCeil(s.queries, blockRows);
    Index number(loops, tile), row = number / blocks;
    setHead(row / s.heads, row % s.heads);
    shownKeys = findShown(batch, block);
    // The last queries see most keys, so their blocks start first.
    Index blockFirst = (index(blocks - 1) - number % blocks) * blockRows;
    Value first = blockFirst + warp * (kGroup * tiles);
    readQueries(first);

    auto end = [&](Index rowsEnd) { return keysSeenBefore(least(rowsEnd, index(s.queries))); };
    Value seen = end(index(first) + kGroup * tiles), blockSeen = end(blockFirst + blockRows);
    Value free = least(index(keysSeenBefore(index(first) + 1)) / block * block, seen);
    if (s.queries % blockRows) {
      seen = whereBelow(first, s.queries, seen, loops.index(0)); // nothing for a warp without queries
      free = least(free, seen);
    }
    Values carried(size_t(sums() + 2 * rows()), zeroSum());
    for (int64_t i = 0; i < rows(); ++i)
      carried[size_t(sums() + i)] = formula.number(-HUGE_VAL);
    std::array<Rows, 2> sides{operandRows(1, batch, keyHead, s.depth), operandRows(2, batch, keyHead, s.width)};
    carried = stage.walk(firstStage(blockFirst), blockSeen, s.keys, sides, carried,
                         [&](Value stageFirst, Value buffer, ValueRange now) {
                           auto add = [&](bool checked) {
                             return [&, checked](Value key, ValueRange before) {
                               return addKeys(key, buffer, index(key) - stageFirst, before, checked);
                             };
                           };
                           Value stageEnd = index(stageFirst) + stage.rows();
                           Values next = loops.loop(stageFirst, least(stageEnd, free), block, now, add(false));
                           if (s.causal || s.keys % block)
                             next = loops.loop(most(stageFirst, free), least(stageEnd, seen), block, next, add(true));
                           return next;
                         });
    finish(carried);
  }

private:
  int64_t groups() const { return block / kGroup; }

  int64_t rows() const { return tiles * kHalves; }      ///< of this thread
  int64_t sums() const { return tiles * tileSums(); }   ///< of this thread
  int64_t tileSums() const { return sumsOf(features); } ///< of one tile

  void readQueries(Value first) {
    Rows queryRows = operandRows(0, batch, head, s.depth);
    for (int64_t i = 0; i < rows(); ++i) {
      // A row beyond the last one computes the last one again, and is not stored.
      Row query = existing(index(first) + eighth + 8 * i, s.queries, rowsOf(s, form));
      isThere.push_back(query.inside);
      queries.push_back(query.row);
    }
    for (int64_t i = 0; i < tiles; ++i)
      left.push_back(
          {featuresOf(queryRows, queries[size_t(2 * i)]), featuresOf(queryRows, queries[size_t(2 * i + 1)])});
  }

  /// Adds keys [first, first + block), which start at row `inStage` of the stage.
  Values addKeys(Value first, Value buffer, Index inStage, ValueRange before, bool checked) {
    const bool bounded = checked && s.keys % block;
    auto placeOf = [&](Index key) -> Row { return bounded ? existing(key, s.keys, block) : Row{key, {}}; };
    // [tile][group][two tiles of scores], and their queries and keys.
    llvm::SmallVector<Lanes> scores(size_t(tiles * groups()));
    for (int64_t group = 0; group < groups(); ++group) {
      for (int64_t j = 0; j < 2; ++j) {
        Factors key = stageFeatures(0, buffer, inStage + group * kGroup, j);
        for (int64_t i = 0; i < tiles; ++i)
          for (Value product : multiplyFeatures(left[size_t(i)], key))
            scores[size_t(i * groups() + group)].push_back(lane(product));
      }
    }
    auto each = [&](int64_t tile, int64_t half, llvm::function_ref<void(Lane &, Value, Row)> body) {
      for (int64_t group = 0; group < groups(); ++group)
        for (int64_t i = 0; i < 4; ++i) {
          Row key = placeOf(ofThread(index(first) + group * kGroup, i));
          size_t place = size_t(i / 2 * kTileSums + half * 2 + i % 2);
          body(scores[size_t(tile * groups() + group)][place], queries[size_t(2 * tile + half)], key);
        }
    };
    Values largest(before.slice(size_t(sums()), size_t(rows())));
    Values totals(before.slice(size_t(sums() + rows()), size_t(rows())));
    Values shrunk;
    Lanes bases;
    Lane anyChanged = lane(arith::ConstantOp::create(b, loc, b.getBoolAttr(false)));
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t half = 0; half < kHalves; ++half) {
        Value &top = largest[size_t(2 * tile + half)];
        Lane old = lane(top), now = old;
        each(tile, half, [&](Lane &x, Value query, Row key) {
          x = score(x, query, key.row);
          if (checked && s.causal)
            x = sees(query, key.row).select(x, number(-HUGE_VAL));
          if (key.inside)
            x = lane(key.inside).select(x, number(-HUGE_VAL));
          now = larger(x, now);
        });
        for (int64_t distance : {1, 2}) {
          Lane other = ofPartner(now, distance);
          now = larger(other, now);
        }
        top = now;
        Lane base = formula.finiteBase(formula.scaled(now));
        Lane factor = formula.exp(formula.scaled(old) - base);
        anyChanged = anyChanged | isFalse(equal(factor, 1.0));
        shrunk.push_back(factor);
        bases.push_back(base);
        totals[size_t(2 * tile + half)] = lane(totals[size_t(2 * tile + half)]) * factor;
      }
    // The largest score of a row seldom changes after the first blocks: sums are rescaled only if some thread of the
    // warp has a change, by a vote. All threads of a row have the same maximum.
    Values outputs(before.take_front(size_t(sums())));
    outputs = loops.when(
        anyHas(anyChanged),
        [&]() -> Values {
          Values scaled;
          for (auto [i, sum] : llvm::enumerate(outputs)) {
            size_t tile = i / size_t(tileSums()), half = i % kTileSums / 2;
            scaled.push_back(lane(sum) * lane(shrunk[2 * tile + half]));
          }
          return scaled;
        },
        outputs);
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t half = 0; half < kHalves; ++half) {
        size_t row = size_t(2 * tile + half);
        Lane total = lane(totals[row]);
        each(tile, half, [&](Lane &x, Value query, Row key) {
          Lane weight = formula.expAbove(x, bases[row]);
          total = total + weight;
          x = s.dropout > 0 ? formula.left(weight, kept(query, key.row)) : weight;
          if (weightFactor() != 1)
            x = x * number(weightFactor());
        });
        totals[row] = total;
      }
    for (int64_t group = 0; group < groups(); ++group) {
      Factors value = stageRows(1, buffer, inStage + group * kGroup, features);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        auto begin = outputs.begin() + std::ptrdiff_t(tile * tileSums());
        Values own(begin, begin + tileSums());
        addRows(own, asLeft(scores[size_t(tile * groups() + group)]), value);
        llvm::copy(own, begin);
      }
    }
    llvm::append_range(outputs, largest);
    llvm::append_range(outputs, totals);
    return outputs;
  }

  void finish(ValueRange carried) {
    Rows outputRows = resultRows(0, batch, head, s.width);
    Value leads = compare(arith::CmpIPredicate::eq, fourth, loops.index(0));
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t half = 0; half < kHalves; ++half) {
        size_t row = size_t(2 * tile + half);
        Lane total = lane(carried[size_t(sums() + rows()) + row]);
        for (int64_t distance : {1, 2})
          total = total + ofPartner(total, distance);
        Lane inverse = equal(total, number(0)).select(number(0), 1.0 / total);
        if (weightFactor() != 1)
          inverse = inverse * number(1 / weightFactor());
        Lane base = formula.finiteBase(formula.scaled(lane(carried[size_t(sums()) + row])));
        auto store = [&]() -> Values {
          Values outputs;
          for (Value sum : carried.slice(size_t(tile * tileSums()), size_t(tileSums())))
            outputs.push_back(lane(sum) * inverse);
          storeFeatures(outputRows, queries[row], half, outputs, features);
          loops.when(leads,
                     [&]() -> Values {
                       ScoreFormula::Logsumexp log = formula.logsumexp(base, total);
                       loops.store(1, queryBase + queries[row], log.value);
                       if (keepsRest)
                         loops.store(2, queryBase + queries[row], log.rest);
                       return {};
                     },
                     {});
          return {};
        };
        if (isThere[row])
          loops.when(isThere[row], store, {});
        else
          store();
      }
  }

  const bool keepsRest; ///< false: the rounding error of logsumexp is not stored
  const int64_t tiles;
  const FeatureRange features; ///< of values
  const int64_t block;         ///< keys between two rescalings
  Values queries, isThere; ///< of this thread's rows
  llvm::SmallVector<Left> left;
};

} // namespace

int64_t warpTilesOf(AttentionOp op) {
  AttentionShape s = attentionShapeOf(op);
  const TileNumbers numbers = tileNumbersOf(op);
  if (numbers == TileNumbers::None)
    return 0;
  return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, WarpForward::rowsOf(s, {numbers})));
}

void emitWarpAttention(AttentionOp op, LoopBuilder &loops, Value tile) {
  const AttentionShape s = attentionShapeOf(op); // must outlive the kernel
  WarpForward(loops, s, tileNumbersOf(op), !op.getLogsumexpRest().use_empty()).emit(tile);
}

} // namespace tcc::train
