//===- WarpAttentionKernel.cpp - attention and its gradient for warps -----===//
#include "compiler/kernels/WarpAttentionKernel.h"

#include "compiler/kernels/WarpAttention.h"

using namespace mlir;

namespace tcc::train {

namespace {

using Lanes = llvm::SmallVector<Lane>;

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

constexpr int64_t kHalves = 2; ///< rows g and g + 8 of a tile

/// A warp owns one or two tiles of 16 queries and runs through the keys by the online softmax, 32 at a time. Two tiles
/// halve what is read, as long as their sums fit into registers.
class WarpForward : WarpAttention {
public:
  static int64_t tilesOf(const AttentionShape &s) { return std::max(s.depth, s.width) <= 64 ? 2 : 1; }
  static int64_t rowsOf(const AttentionShape &s) { return kGroup * tilesOf(s); }

  WarpForward(LoopBuilder &loops, const AttentionShape &s) : WarpAttention(loops, s), tiles(tilesOf(s)) {}

  void emit(Value tile) {
    const int64_t blocks = llvm::divideCeil(s.queries, rowsOf(s));
    Index number(loops, tile), row = number / blocks;
    setHead(row / s.heads, row % s.heads);
    // The last queries see most keys: their warps begin first.
    Value first = (index(blocks - 1) - number % blocks) * rowsOf(s);
    keyRows = operandRows(1, batch, keyHead, s.depth);
    valueRows = operandRows(2, batch, keyHead, s.width);
    readQueries(first);

    Value seen = keysSeenBefore(least(index(first) + rowsOf(s), index(s.queries)));
    Value free = least(keysSeenBefore(index(first) + 1), seen);
    free = index(free) / kBlock * kBlock;
    Values carried(size_t(sums() + 2 * rows()), zeroSum());
    for (int64_t i = 0; i < rows(); ++i)
      carried[size_t(sums() + i)] = formula.number(-HUGE_VAL);
    auto add = [&](bool checked) {
      return [&, checked](Value key, ValueRange before) { return addKeys(key, before, checked); };
    };
    carried = loops.loop(loops.index(0), free, kBlock, carried, add(false));
    if (s.causal || s.keys % kBlock)
      carried = loops.loop(free, seen, kBlock, carried, add(true));
    finish(carried);
  }

private:
  static constexpr int64_t kBlock = 32; ///< keys between two rescalings
  static constexpr int64_t kGroups = kBlock / kGroup;

  int64_t rows() const { return tiles * kHalves; }             ///< of this thread
  int64_t sums() const { return tiles * tileSums(); }          ///< of this thread
  int64_t tileSums() const { return s.width / 8 * kTileSums; } ///< of one tile

  void readQueries(Value first) {
    Rows queryRows = operandRows(0, batch, head, s.depth);
    for (int64_t i = 0; i < rows(); ++i) {
      Index query = index(first) + eighth + 8 * i;
      isThere.push_back(s.queries % rowsOf(s) ? query.isBelow(loops.index(s.queries)) : Value());
      // A row behind the last is computed as the last one, and not stored.
      queries.push_back(isThere.back() ? query.atMost(s.queries - 1).value : query.value);
    }
    for (int64_t i = 0; i < tiles; ++i)
      left.push_back(
          {featuresOf(queryRows, queries[size_t(2 * i)]), featuresOf(queryRows, queries[size_t(2 * i + 1)])});
  }

  Values addKeys(Value first, ValueRange before, bool checked) {
    const bool bounded = checked && s.keys % kBlock;
    auto existing = [&](Index key) -> Row {
      if (!bounded)
        return {key, {}};
      return {key.atMost(s.keys - 1), key.isBelow(loops.index(s.keys))};
    };
    // [tile][group][two tiles of scores], and the queries and keys that they are of.
    llvm::SmallVector<Lanes> scores(size_t(tiles * kGroups));
    for (int64_t group = 0; group < kGroups; ++group) {
      Index groupFirst = index(first) + group * kGroup;
      for (int64_t j = 0; j < 2; ++j) {
        Values key = featuresOf(keyRows, existing(ofColumn(groupFirst, j)).row);
        for (int64_t i = 0; i < tiles; ++i)
          for (Value product : multiplyFeatures(left[size_t(i)], key))
            scores[size_t(i * kGroups + group)].push_back(lane(product));
      }
    }
    auto each = [&](int64_t tile, int64_t half, llvm::function_ref<void(Lane &, Value, Row)> body) {
      for (int64_t group = 0; group < kGroups; ++group)
        for (int64_t i = 0; i < 4; ++i) {
          Row key = existing(ofThread(index(first) + group * kGroup, i));
          size_t place = size_t(i / 2 * kTileSums + half * 2 + i % 2);
          body(scores[size_t(tile * kGroups + group)][place], queries[size_t(2 * tile + half)], key);
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
    // The largest score of a row seldom changes after the first blocks. All threads of a row agree, those of the warp
    // vote.
    Values outputs(before.take_front(size_t(sums())));
    Value none = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    outputs = loops.when(
        compare(arith::CmpIPredicate::ne, loops.ballot(anyChanged), none),
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
        });
        totals[row] = total;
      }
    for (int64_t group = 0; group < kGroups; ++group) {
      Values value =
          acrossRows(valueRows, [&](int64_t i) { return existing(ofThread(index(first) + group * kGroup, i)); });
      for (int64_t tile = 0; tile < tiles; ++tile) {
        auto begin = outputs.begin() + std::ptrdiff_t(tile * tileSums());
        Values own(begin, begin + tileSums());
        addRows(own, asLeft(scores[size_t(tile * kGroups + group)]), value);
        llvm::copy(own, begin);
      }
    }
    llvm::append_range(outputs, largest);
    llvm::append_range(outputs, totals);
    return outputs;
  }

  /// The value of the thread of the same row that is so far away.
  Lane ofPartner(Lane value, int64_t distance) {
    Value mine = arith::TruncIOp::create(b, loc, b.getI32Type(), loops.thread());
    Value bits = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(int32_t(distance)));
    return lane(loops.ofThread(value, arith::XOrIOp::create(b, loc, mine, bits)));
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
        Lane base = formula.finiteBase(formula.scaled(lane(carried[size_t(sums()) + row])));
        auto store = [&]() -> Values {
          Values outputs;
          for (Value sum : carried.slice(size_t(tile * tileSums()), size_t(tileSums())))
            outputs.push_back(lane(sum) * inverse);
          storeFeatures(outputRows, queries[row], half, outputs);
          loops.when(leads,
                     [&]() -> Values {
                       ScoreFormula::Logsumexp log = formula.logsumexp(base, total);
                       loops.store(1, queryBase + queries[row], log.value);
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

  const int64_t tiles;
  Rows keyRows{}, valueRows{};
  Values queries, isThere; ///< of this thread's rows
  llvm::SmallVector<Left> left;
};

//===----------------------------------------------------------------------===//
// Gradient
//===----------------------------------------------------------------------===//

/// Some warps own 16 queries and make their gradients, the others own 16 keys and make those of keys and values: each
/// element has one owner, so nothing is added by two warps. Weights are computed twice for that, seven products in all.
class WarpGradient : WarpAttention {
public:
  static int64_t queryTiles(const AttentionShape &s) {
    return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, kGroup));
  }
  static int64_t keyTiles(const AttentionShape &s) {
    return s.batch * s.keyHeads * int64_t(llvm::divideCeil(s.keys, kGroup));
  }

  WarpGradient(LoopBuilder &loops, const AttentionShape &s, bool biasGrad)
      : WarpAttention(loops, s), hasBiasGrad(biasGrad) {}

  void emit(Value tile) {
    // Three blocks fit into a multiprocessor's registers; with more registers a thread, two would.
    if (std::max(s.depth, s.width) <= 64)
      keepResident(3);
    // Tiles of keys take more products, so they begin.
    Value keysEnd = loops.index(keyTiles(s));
    loops.when(compare(arith::CmpIPredicate::slt, tile, keysEnd), [&]() -> Values { return keys(tile), Values(); }, {});
    loops.when(compare(arith::CmpIPredicate::sge, tile, keysEnd),
               [&]() -> Values { return queries(index(tile) - keysEnd), Values(); }, {});
  }

private:
  /// What a query's row needs beside its features.
  struct RowNumbers {
    Lane logsumexp, rest, delta;
  };
  RowNumbers numbersOf(Value query) {
    Value row = queryBase + query;
    return {formula.forWeights(rowNumber(s.logsumexp, row)), rowNumber(s.logsumexpRest, row), rowNumber(s.delta, row)};
  }

  /// What a query and a key make of their products.
  struct Parts {
    Lane left, scoreGrad,
        rawGrad; ///< the weight after dropout, and the gradients of the score with and without its bias
  };
  Parts partsOf(Lane product, Lane weightGrad, Value query, Value key, const RowNumbers &row, Value inside) {
    std::optional<Lane> slope;
    Lane x = score(product, query, key, &slope);
    if (s.causal)
      x = sees(query, key).select(x, number(-HUGE_VAL));
    if (inside)
      x = lane(inside).select(x, number(-HUGE_VAL));
    Lane weight = formula.expAbove(x, row.logsumexp, row.rest);
    Lane left = s.dropout > 0 ? formula.left(weight, kept(query, key)) : weight;
    Lane grad = formula.scoreGrad(weight, left, weightGrad, row.delta);
    return {left, grad, grad * (slope ? *slope * number(s.scale) : number(s.scale))};
  }

  /// A row that may lie behind the last one of `count`: there it is the last one, and its numbers count as nothing.
  Row existing(Index row, int64_t count) {
    if (count % kGroup == 0)
      return {row, {}};
    return {row.atMost(count - 1), row.isBelow(loops.index(count))};
  }
  static int64_t sumsOf(int64_t features) { return features / 8 * kTileSums; }

  void storeRows(const Rows &rows, Value first, int64_t count, ValueRange sums) {
    for (int64_t half = 0; half < kHalves; ++half) {
      Row row = existing(index(first) + eighth + 8 * half, count);
      auto store = [&]() -> Values { return storeFeatures(rows, row.row, half, sums), Values(); };
      if (row.inside)
        loops.when(row.inside, store, {});
      else
        store();
    }
  }

  void queries(Index tile) {
    const int64_t blocks = llvm::divideCeil(s.queries, kGroup);
    Index line = tile / blocks;
    setHead(line / s.heads, line % s.heads);
    Value first = (index(blocks - 1) - tile % blocks) * kGroup;
    Rows queryRows = operandRows(0, batch, head, s.depth), gradRows = operandRows(s.outputGrad, batch, head, s.width);
    Rows keyRows = operandRows(1, batch, keyHead, s.depth), valueRows = operandRows(2, batch, keyHead, s.width);
    Row own[kHalves] = {existing(index(first) + eighth, s.queries), existing(index(first) + eighth + 8, s.queries)};
    Left query{featuresOf(queryRows, own[0].row), featuresOf(queryRows, own[1].row)};
    Left grad{featuresOf(gradRows, own[0].row), featuresOf(gradRows, own[1].row)};
    RowNumbers rows[kHalves] = {numbersOf(own[0].row), numbersOf(own[1].row)};

    // Every score's gradient is written where the bias has one; without, keys that no query sees add nothing.
    Value seen = hasBiasGrad ? loops.index(s.keys) : keysSeenBefore(least(index(first) + kGroup, index(s.queries)));
    Values sums(size_t(sumsOf(s.depth)), zeroSum());
    sums = loops.loop(loops.index(0), seen, kGroup, sums, [&](Value keyFirst, ValueRange before) -> Values {
      Lanes grads;
      for (int64_t j = 0; j < 2; ++j) {
        Row column = existing(ofColumn(keyFirst, j), s.keys);
        Values products = multiplyFeatures(query, featuresOf(keyRows, column.row, column.inside));
        Values weightGrads = multiplyFeatures(grad, featuresOf(valueRows, column.row, column.inside));
        for (int64_t i = 0; i < kTileSums; ++i) {
          Row key = existing(ofThread(keyFirst, 2 * j + i % 2), s.keys);
          const Row &row = own[i / 2];
          Parts parts = partsOf(lane(products[size_t(i)]), lane(weightGrads[size_t(i)]), row.row, key.row, rows[i / 2],
                                key.inside);
          grads.push_back(parts.rawGrad);
          if (hasBiasGrad)
            storeBiasGrad(row, key, parts.scoreGrad);
        }
      }
      Values key = acrossRows(keyRows, [&](int64_t i) { return existing(ofThread(keyFirst, i), s.keys); });
      Values after(before);
      addRows(after, asLeft(grads), key);
      return after;
    });
    storeRows(resultRows(0, batch, head, s.depth), first, s.queries, sums);
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
    const int64_t blocks = llvm::divideCeil(s.keys, kGroup);
    Index line = index(tile) / blocks, first = index(tile) % blocks * kGroup;
    Value ownBatch = line / s.keyHeads, ownHead = line % s.keyHeads;
    Rows keyRows = operandRows(1, ownBatch, ownHead, s.depth), valueRows = operandRows(2, ownBatch, ownHead, s.width);
    Row own[kHalves] = {existing(first + eighth, s.keys), existing(first + eighth + 8, s.keys)};
    Left key{featuresOf(keyRows, own[0].row), featuresOf(keyRows, own[1].row)};
    Left value{featuresOf(valueRows, own[0].row), featuresOf(valueRows, own[1].row)};
    // The first group of queries with one that sees one of these keys.
    Value start = loops.index(0);
    if (s.causal)
      start = index(least(most(first - s.causalOffset, loops.index(0)), loops.index(s.queries))) / kGroup * kGroup;

    Values sums(size_t(sumsOf(s.depth) + sumsOf(s.width)), zeroSum());
    sums = loops.loop(loops.index(0), loops.index(s.groupSize()), 1, sums, [&](Value member, ValueRange before) {
      setHead(ownBatch, Index(loops, ownHead) * s.groupSize() + member);
      Rows queryRows = operandRows(0, batch, head, s.depth), gradRows = operandRows(s.outputGrad, batch, head, s.width);
      return loops.loop(start, loops.index(s.queries), kGroup, before, [&](Value queryFirst, ValueRange now) {
        return addQueries(queryFirst, key, value, own, queryRows, gradRows, now);
      });
    });
    storeRows(resultRows(1, ownBatch, ownHead, s.depth), first, s.keys,
              ValueRange(sums).take_front(size_t(sumsOf(s.depth))));
    storeRows(resultRows(2, ownBatch, ownHead, s.width), first, s.keys,
              ValueRange(sums).drop_front(size_t(sumsOf(s.depth))));
  }

  /// Scores transposed: keys in rows.
  Values addQueries(Value queryFirst, const Left &key, const Left &value, llvm::ArrayRef<Row> own,
                    const Rows &queryRows, const Rows &gradRows, ValueRange before) {
    Lanes weights, grads;
    for (int64_t j = 0; j < 2; ++j) {
      Row column = existing(ofColumn(queryFirst, j), s.queries);
      Values products = multiplyFeatures(key, featuresOf(queryRows, column.row, column.inside));
      Values weightGrads = multiplyFeatures(value, featuresOf(gradRows, column.row, column.inside));
      for (int64_t half = 0; half < kHalves; ++half)
        for (int64_t i = 0; i < 2; ++i) {
          size_t place = size_t(half * 2 + i);
          Row query = existing(ofThread(queryFirst, 2 * j + i), s.queries);
          Parts parts = partsOf(lane(products[place]), lane(weightGrads[place]), query.row, own[size_t(half)].row,
                                numbersOf(query.row), query.inside);
          weights.push_back(parts.left);
          grads.push_back(parts.rawGrad);
        }
    }
    auto queryAt = [&](int64_t i) { return existing(ofThread(queryFirst, i), s.queries); };
    Values keySums(before.take_front(size_t(sumsOf(s.depth)))), valueSums(before.drop_front(size_t(sumsOf(s.depth))));
    addRows(valueSums, asLeft(weights), acrossRows(gradRows, queryAt));
    addRows(keySums, asLeft(grads), acrossRows(queryRows, queryAt));
    llvm::append_range(keySums, valueSums);
    return keySums;
  }

  const bool hasBiasGrad;
};

} // namespace

int64_t warpTilesOf(AttentionOp op) {
  AttentionShape s = attentionShapeOf(op);
  if (!suitsWarps(s, elementTypeOf(op.getQuery())))
    return 0;
  return s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, WarpForward::rowsOf(s)));
}

void emitWarpAttention(AttentionOp op, LoopBuilder &loops, Value tile) {
  WarpForward(loops, attentionShapeOf(op)).emit(tile);
}

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
