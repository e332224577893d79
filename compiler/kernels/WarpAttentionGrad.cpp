//===- WarpAttentionGrad.cpp - the gradient of attention for warps --------===//
#include "compiler/kernels/WarpAttention.h"
#include "compiler/kernels/WarpAttentionKernel.h"

using namespace mlir;

namespace tcc::train {

namespace {

using Lanes = llvm::SmallVector<Lane>;

/// Some blocks own queries and make their gradients, the others own keys and make those of keys and values: each
/// element has one owner, so nothing is added by two warps. Weights are computed twice for that, seven products in all.
/// A warp owns 16 keys, and one or two tiles of 16 queries: two halve what a warp reads, as long as their sums fit into
/// registers.
class WarpGradient : WarpAttention {
public:
  static int64_t queryTiles(const AttentionShape &s) {
    return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, blockQueries(s)));
  }
  static int64_t keyTiles(const AttentionShape &s) {
    return s.batch * s.keyHeads * int64_t(llvm::divideCeil(s.keys, kBlockKeys));
  }

  WarpGradient(LoopBuilder &loops, const AttentionShape &s, bool biasGrad)
      : WarpAttention(loops, s), hasBiasGrad(biasGrad), tiles(queryTilesOfWarp(s)) {}

  void emit(Value tile) {
    keepResident(2); // with so many registers a thread that nothing is spilled
    // Tiles of keys take more products, so they begin.
    Value keysEnd = loops.index(keyTiles(s));
    loops.when(compare(arith::CmpIPredicate::slt, tile, keysEnd), [&]() -> Values { return keys(tile), Values(); }, {});
    loops.when(compare(arith::CmpIPredicate::sge, tile, keysEnd),
               [&]() -> Values { return queries(index(tile) - keysEnd), Values(); }, {});
  }

private:
  static constexpr int64_t kHalves = 2; ///< rows g and g + 8 of a tile
  static constexpr int64_t kBlockKeys = kGroup * WarpStage::kWarps;
  static int64_t queryTilesOfWarp(const AttentionShape &s) { return std::max(s.depth, s.width) <= 64 ? 2 : 1; }
  static int64_t blockQueries(const AttentionShape &s) { return kGroup * queryTilesOfWarp(s) * WarpStage::kWarps; }

  /// What a query's row needs beside its features.
  struct RowNumbers {
    Lane logsumexp, rest, delta;
  };
  RowNumbers numbersOf(Value query) {
    Value row = queryBase + query;
    return {formula.forWeights(rowNumber(s.logsumexp, row)),
            s.logsumexpRest >= 0 ? rowNumber(s.logsumexpRest, row) : number(0), rowNumber(s.delta, row)};
  }
  /// Those of a thread's four queries of a group.
  llvm::SmallVector<RowNumbers> numbersOf(llvm::ArrayRef<Row> group, bool checked) {
    llvm::SmallVector<RowNumbers> numbers;
    if (s.queries % kThreadRows) {
      for (const Row &query : group)
        numbers.push_back(numbersOf(query.row));
      return numbers;
    }
    // All four are there, or none is; then the last four are read.
    Value first = group.front().row;
    if (checked)
      first = least(first, loops.index(s.queries - kThreadRows));
    first = queryBase + first;
    auto four = [&](int operand) {
      return loops.loadRow(unsigned(operand), first, kThreadRows, kThreadRows * int64_t(sizeof(float)));
    };
    Values logsumexp = four(s.logsumexp), rest = s.logsumexpRest >= 0 ? four(s.logsumexpRest) : Values(),
           delta = four(s.delta);
    auto asFloat = [&](Value word) { return lane(arith::BitcastOp::create(b, loc, b.getF32Type(), word)); };
    for (size_t i = 0; i < size_t(kThreadRows); ++i)
      numbers.push_back(
          {formula.forWeights(asFloat(logsumexp[i])), rest.empty() ? number(0) : asFloat(rest[i]), asFloat(delta[i])});
    return numbers;
  }

  /// What a query and a key make of their products.
  struct Parts {
    Lane left;      ///< the weight after dropout
    Lane scoreGrad; ///< of the score with its bias
    Lane rawGrad;   ///< of the product, before it was scaled
  };
  Parts partsOf(Lane product, Lane weightGrad, Value query, Value key, const RowNumbers &row, Value inside,
                bool checked) {
    std::optional<Lane> slope;
    Lane x = score(product, query, key, &slope);
    if (checked && s.causal)
      x = sees(query, key).select(x, number(-HUGE_VAL));
    if (inside)
      x = lane(inside).select(x, number(-HUGE_VAL));
    Lane weight = formula.expAbove(x, row.logsumexp, row.rest);
    Lane left = s.dropout > 0 ? formula.left(weight, kept(query, key)) : weight;
    Lane grad = formula.scoreGrad(weight, left, weightGrad, row.delta);
    return {left, grad, slope ? grad * *slope : grad};
  }

  /// This thread's four rows of the group from `first` on, of `count` in all.
  llvm::SmallVector<Row> rowsOfThread(Value first, int64_t count, bool checked) {
    llvm::SmallVector<Row> rows;
    for (int64_t i = 0; i < kThreadRows; ++i)
      rows.push_back(checked ? existing(ofThread(first, i), count, kGroup) : Row{ofThread(first, i), {}});
    return rows;
  }
  static int64_t sumsOf(int64_t features) { return features / 8 * kTileSums; }

  /// Stores `factor`·sums.
  void storeRows(const Rows &rows, llvm::ArrayRef<Row> own, ValueRange sums, double factor = 1) {
    Values results(sums);
    if (factor != 1)
      for (Value &sum : results)
        sum = lane(sum) * number(factor);
    for (int64_t half = 0; half < kHalves; ++half) {
      const Row &row = own[size_t(half)];
      auto store = [&]() -> Values { return storeFeatures(rows, row.row, half, results), Values(); };
      if (row.inside)
        loops.when(row.inside, store, {});
      else
        store();
    }
  }

  /// Groups of a stage: those whose scores are `checked`, [first, plain) and [plainEnd, end), and the others between.
  struct Groups {
    Value first, plain, plainEnd, end;
  };
  Values addGroups(const Groups &groups, bool hasFirst, bool hasLast, ValueRange before,
                   llvm::function_ref<Values(Value group, ValueRange before, bool checked)> add) {
    Values sums(before);
    auto each = [&](Value from, Value to, bool checked) {
      sums = loops.loop(from, to, kGroup, sums, [&](Value group, ValueRange now) { return add(group, now, checked); });
    };
    if (hasFirst)
      each(groups.first, groups.plain, true);
    each(groups.plain, groups.plainEnd, false);
    if (hasLast)
      each(groups.plainEnd, groups.end, true);
    return sums;
  }

  /// A tile of queries that a warp owns.
  struct QueryTile {
    Row rows[kHalves];
    Left query, grad;
    RowNumbers numbers[kHalves];
  };

  void queries(Index tile) {
    const int64_t blockRows = blockQueries(s), blocks = llvm::divideCeil(s.queries, blockRows);
    Index line = tile / blocks;
    setHead(line / s.heads, line % s.heads);
    Index blockFirst = (index(blocks - 1) - tile % blocks) * blockRows, first = blockFirst + warp * (kGroup * tiles);
    Rows queryRows = operandRows(0, batch, head, s.depth), gradRows = operandRows(s.outputGrad, batch, head, s.width);
    std::vector<QueryTile> own;
    for (int64_t i = 0; i < tiles; ++i) {
      Index row = first + i * kGroup + eighth;
      Row lower = existing(row, s.queries, blockRows), upper = existing(row + 8, s.queries, blockRows);
      own.push_back({{lower, upper},
                     {featuresOf(queryRows, lower.row), featuresOf(queryRows, upper.row)},
                     {featuresOf(gradRows, lower.row), featuresOf(gradRows, upper.row)},
                     {numbersOf(lower.row), numbersOf(upper.row)}});
    }
    // Every score's gradient is written where the bias has one; without, keys that no query sees add nothing.
    auto end = [&](Index rowsEnd) {
      return hasBiasGrad ? loops.index(s.keys) : keysSeenBefore(least(rowsEnd, index(s.queries)));
    };
    Value seen = end(first + kGroup * tiles);
    if (s.queries % blockRows)
      seen = whereBelow(first, s.queries, seen, loops.index(0)); // nothing for a warp without queries
    Value plain = least(index(keysSeenBefore(first + 1)) / kGroup * kGroup, seen);
    std::array<Rows, 2> sides{operandRows(1, batch, keyHead, s.depth), operandRows(2, batch, keyHead, s.width)};
    Values sums(size_t(tiles * sumsOf(s.depth)), zeroSum());
    sums = stage.walk(loops.index(0), end(blockFirst + blockRows), s.keys, sides, sums,
                      [&](Value stageFirst, Value buffer, ValueRange before) {
                        Value stageEnd = index(stageFirst) + stage.rows();
                        Groups groups{{}, stageFirst, most(least(stageEnd, plain), stageFirst), least(stageEnd, seen)};
                        return addGroups(groups, false, s.causal || s.keys % kGroup, before,
                                         [&](Value keyFirst, ValueRange now, bool checked) {
                                           return addKeys(keyFirst, buffer, index(keyFirst) - stageFirst, own, now,
                                                          checked);
                                         });
                      });
    for (auto [i, tile] : llvm::enumerate(own))
      storeRows(resultRows(0, batch, head, s.depth), tile.rows,
                ValueRange(sums).slice(i * size_t(sumsOf(s.depth)), size_t(sumsOf(s.depth))), s.scale);
  }

  /// The keys of a group, which is row `inStage` of the stage and those behind it.
  Values addKeys(Value first, Value buffer, Value inStage, llvm::ArrayRef<QueryTile> own, ValueRange before,
                 bool checked) {
    llvm::SmallVector<Row> keys = rowsOfThread(first, s.keys, checked);
    llvm::SmallVector<Lanes> grads(own.size());
    for (int64_t j = 0; j < 2; ++j) {
      Values keyWords = stage.featuresOf(0, buffer, inStage, j), valueWords = stage.featuresOf(1, buffer, inStage, j);
      for (auto [tile, tileGrads] : llvm::zip_equal(own, grads)) {
        Values products = multiplyFeatures(tile.query, keyWords);
        Values weightGrads = multiplyFeatures(tile.grad, valueWords);
        for (size_t i = 0; i < size_t(kTileSums); ++i) {
          const Row &key = keys[size_t(2 * j) + i % 2], &row = tile.rows[i / 2];
          Parts parts = partsOf(lane(products[i]), lane(weightGrads[i]), row.row, key.row, tile.numbers[i / 2],
                                key.inside, checked);
          tileGrads.push_back(parts.rawGrad);
          if (hasBiasGrad)
            storeBiasGrad(row, key, parts.scoreGrad);
        }
      }
    }
    Values keyWords = stage.acrossRows(0, buffer, inStage), after;
    for (auto [i, tileGrads] : llvm::enumerate(grads)) {
      Values sums(before.slice(i * size_t(sumsOf(s.depth)), size_t(sumsOf(s.depth))));
      addRows(sums, asLeft(tileGrads), keyWords);
      llvm::append_range(after, sums);
    }
    return after;
  }

  void storeBiasGrad(const Row &query, const Row &key, Value grad) {
    auto store = [&]() -> Values { return loops.store(3, (queryBase + query.row) * s.keys + key.row, grad), Values(); };
    Value inside = query.inside && key.inside ? arith::AndIOp::create(b, loc, query.inside, key.inside).getResult()
                   : query.inside             ? query.inside
                                              : key.inside;
    if (inside)
      loops.when(inside, store, {});
    else
      store();
  }

  void keys(Value tile) {
    const int64_t blocks = llvm::divideCeil(s.keys, kBlockKeys);
    Index line = index(tile) / blocks, blockFirst = index(tile) % blocks * kBlockKeys,
          first = blockFirst + warp * kGroup;
    Value ownBatch = line / s.keyHeads, ownHead = line % s.keyHeads;
    Rows keyRows = operandRows(1, ownBatch, ownHead, s.depth), valueRows = operandRows(2, ownBatch, ownHead, s.width);
    Row own[kHalves] = {existing(first + eighth, s.keys, kBlockKeys), existing(first + eighth + 8, s.keys, kBlockKeys)};
    Left key{featuresOf(keyRows, own[0].row), featuresOf(keyRows, own[1].row)};
    Left value{featuresOf(valueRows, own[0].row), featuresOf(valueRows, own[1].row)};
    // The first query that sees one of these keys, and the first one that sees all.
    auto firstSeeing = [&](Index row) -> Value {
      return s.causal ? least(most(row - s.causalOffset, loops.index(0)), loops.index(s.queries)) : loops.index(0);
    };
    Value visible = index(firstSeeing(first)) / kGroup * kGroup;
    if (s.keys % kBlockKeys)
      visible = whereBelow(first, s.keys, visible, loops.index(s.queries)); // nothing for a warp without keys
    Value plain = roundUp(index(firstSeeing(first + (kGroup - 1))), kGroup);
    Value begin = index(firstSeeing(blockFirst)) / stage.rows() * stage.rows();

    Values sums(size_t(sumsOf(s.depth) + sumsOf(s.width)), zeroSum());
    sums = loops.loop(loops.index(0), loops.index(s.groupSize()), 1, sums, [&](Value member, ValueRange before) {
      setHead(ownBatch, Index(loops, ownHead) * s.groupSize() + member);
      std::array<Rows, 2> sides{operandRows(0, batch, head, s.depth), operandRows(s.outputGrad, batch, head, s.width)};
      return stage.walk(
          begin, loops.index(s.queries), s.queries, sides, before, [&](Value stageFirst, Value buffer, ValueRange now) {
            Value end = least(index(stageFirst) + stage.rows(), loops.index(s.queries));
            Value from = least(most(stageFirst, visible), end), whole = loops.index(s.queries / kGroup * kGroup);
            Value checkedEnd = s.causal ? least(most(plain, from), end) : from;
            Groups groups{from, checkedEnd, most(least(end, whole), checkedEnd), end};
            return addGroups(
                groups, s.causal, s.queries % kGroup, now, [&](Value queryFirst, ValueRange sums, bool checked) {
                  return addQueries(queryFirst, buffer, index(queryFirst) - stageFirst, key, value, own, sums, checked);
                });
          });
    });
    storeRows(resultRows(1, ownBatch, ownHead, s.depth), own, ValueRange(sums).take_front(size_t(sumsOf(s.depth))),
              s.scale);
    storeRows(resultRows(2, ownBatch, ownHead, s.width), own, ValueRange(sums).drop_front(size_t(sumsOf(s.depth))));
  }

  /// The queries of a group, with scores transposed: keys in rows.
  Values addQueries(Value first, Value buffer, Value inStage, const Left &key, const Left &value,
                    llvm::ArrayRef<Row> own, ValueRange before, bool checked) {
    llvm::SmallVector<Row> queries = rowsOfThread(first, s.queries, checked);
    llvm::SmallVector<RowNumbers> numbers = numbersOf(queries, checked);
    Lanes weights, grads;
    for (int64_t j = 0; j < 2; ++j) {
      Values products = multiplyFeatures(key, stage.featuresOf(0, buffer, inStage, j));
      Values weightGrads = multiplyFeatures(value, stage.featuresOf(1, buffer, inStage, j));
      for (size_t half = 0; half < size_t(kHalves); ++half)
        for (size_t i = 0; i < 2; ++i) {
          const size_t place = half * 2 + i, number = size_t(2 * j) + i;
          Parts parts = partsOf(lane(products[place]), lane(weightGrads[place]), queries[number].row, own[half].row,
                                numbers[number], queries[number].inside, checked);
          weights.push_back(parts.left);
          grads.push_back(parts.rawGrad);
        }
    }
    Values keySums(before.take_front(size_t(sumsOf(s.depth)))), valueSums(before.drop_front(size_t(sumsOf(s.depth))));
    addRows(valueSums, asLeft(weights), stage.acrossRows(1, buffer, inStage));
    addRows(keySums, asLeft(grads), stage.acrossRows(0, buffer, inStage));
    llvm::append_range(keySums, valueSums);
    return keySums;
  }

  const bool hasBiasGrad;
  const int64_t tiles; ///< of queries, of a warp
};

} // namespace

int64_t warpTilesOf(AttentionGradOp op) {
  AttentionShape s = attentionShapeOf(op);
  if (s.delta < 0 || !suitsWarps(s, elementTypeOf(op.getQuery())))
    return 0;
  return WarpGradient::keyTiles(s) + WarpGradient::queryTiles(s);
}

void emitWarpAttentionGrad(AttentionGradOp op, LoopBuilder &loops, Value tile) {
  WarpGradient(loops, attentionShapeOf(op), !op.getBiasGrad().empty()).emit(tile);
}

} // namespace tcc::train
