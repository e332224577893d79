//===- WarpAttentionGrad.cpp - the gradient of attention for warps --------===//
#include "compiler/kernels/WarpAttention.h"

using namespace mlir;

namespace tcc::train {

namespace {

using Lanes = llvm::SmallVector<Lane>;

/// The gradients that one kind of blocks computes.
struct GradientWork {
  bool ofQueries = false, ofKeys = false, ofValues = false; ///< ofQueries: without the others
  FeatureRange features = {};                               ///< of each gradient, clamped to its own
  int64_t tiles = 0;
};

/// Some blocks own queries and make their gradients, the others own keys and make those of keys and values: each
/// element has one owner, so no two warps add to it. The cost is that weights are computed twice: seven products in
/// all. A warp owns 16 keys, or one or two tiles of 16 queries: two halve its reads, if their sums fit into registers.
/// If the sums of keys and values together do not fit, each gets blocks of its own, which compute the weights again.
class WarpGradient : WarpAttention {
public:
  static llvm::SmallVector<GradientWork> worksOf(const AttentionShape &s, const TileForm &form) {
    // Registers for the own rows and their sums.
    constexpr int64_t kMostRegisters = 192;
    // Rests of f32 and scales of f16 need more registers; blocks of keys and values together would spill.
    const int64_t mostTogether = form.numbers == TileNumbers::BF16 ? kMostRegisters : kMostRegisters - 16;
    const int64_t depth = form.padded(s.depth), width = form.padded(s.width), both = depth + width;
    auto ownOf = [&](int64_t features) { return features / (2 * form.wordElements()) * form.planes(); };
    auto sumsFor = [](int64_t features) { return features / 2; };
    const int64_t keyTiles = s.batch * s.keyHeads * int64_t(llvm::divideCeil(s.keys, kBlockKeys));
    const int64_t queryTiles =
        s.batch * s.heads * int64_t(llvm::divideCeil(s.queries, kBlockTileQueries * ownTiles(s, form)));
    llvm::SmallVector<GradientWork> works; // the kinds with the most products first
    // Split features by the registers for their sums, in whole parts of products over rows.
    auto addInParts = [&](int64_t features, int64_t own, GradientWork work) {
      const int64_t unit = 16 * kColumnThreads / form.elementBytes();
      const int64_t atOnce = std::max(unit, (kMostRegisters - own) * 2 / unit * unit);
      for (int64_t first = 0; first < features; first += atOnce) {
        work.features = {first, std::min(first + atOnce, features)};
        works.push_back(work);
      }
    };
    if (ownOf(both) + sumsFor(both) <= mostTogether) {
      works.push_back({.ofKeys = true, .ofValues = true, .features = {0, std::max(depth, width)}, .tiles = keyTiles});
    } else {
      addInParts(depth, ownOf(both), {.ofKeys = true, .tiles = keyTiles});
      addInParts(width, ownOf(depth), {.ofValues = true, .tiles = keyTiles});
    }
    addInParts(depth, ownOf(both) * ownTiles(s, form), {.ofQueries = true, .tiles = queryTiles});
    return works;
  }

  WarpGradient(LoopBuilder &loops, const AttentionShape &s, TileNumbers numbers, bool biasGrad)
      : WarpAttention(loops, s, numbers), hasBiasGrad(biasGrad), tiles(ownTiles(s, form)) {}

  void emit(Value tile) {
    keepResident(2); // leaves each thread enough registers not to spill
    const llvm::SmallVector<GradientWork> works = worksOf(s, form);
    int64_t first = 0;
    for (const GradientWork &work : works) {
      Value mine;
      if (&work != works.begin())
        mine = compare(arith::CmpIPredicate::sge, tile, loops.index(first));
      Index number = first ? index(tile) - first : index(tile);
      first += work.tiles;
      if (&work != works.end() - 1) {
        Value before = compare(arith::CmpIPredicate::slt, tile, loops.index(first));
        mine = mine ? arith::AndIOp::create(b, loc, mine, before).getResult() : before;
      }
      loops.when(mine,
                 [&]() -> Values { return work.ofQueries ? queries(number, work) : keys(number, work), Values(); }, {});
    }
  }

private:
  static constexpr int64_t kHalves = 2; ///< rows g and g + 8 of a tile
  static constexpr int64_t kBlockKeys = kGroup * WarpStage::kWarps, kBlockTileQueries = kGroup * WarpStage::kWarps;

  /// The numbers of a query's row besides its features.
  struct RowNumbers {
    Lane logsumexp, rest, delta;
  };
  RowNumbers numbersOf(Value query) {
    Value row = queryBase + query;
    return {formula.forWeights(rowNumber(s.logsumexp, row)),
            s.logsumexpRest >= 0 ? rowNumber(s.logsumexpRest, row) : number(0), rowNumber(s.delta, row)};
  }
  /// The numbers of a thread's four queries of a group.
  llvm::SmallVector<RowNumbers> numbersOf(llvm::ArrayRef<Row> group, bool checked) {
    llvm::SmallVector<RowNumbers> numbers;
    if (s.queries % kThreadRows) {
      for (const Row &query : group)
        numbers.push_back(numbersOf(query.row));
      return numbers;
    }
    // Either all four exist or none; if none, read the last four.
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

  /// The values of one query and key.
  struct Parts {
    Lane left;      ///< the weight after dropout
    Lane scoreGrad; ///< of the score with its bias
    Lane rawGrad;   ///< of the scaled product
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

  /// Scaling of a row's score gradients before rounding to f16: by the power of two that brings the largest one so far,
  /// a carried float, between 2^14 and 2^15.
  struct RowScale {
    static constexpr int kMost = 14, kMantissaBits = 23, kBias = 127;
    static constexpr double kLeast = 0x1p-100; ///< initial value of the largest
  };
  Lane powerBelow(Lane largest) { return largest.bits() & largest.bits().likeInt(0x7f800000); } ///< its bits
  Lane scaleOf(Lane largest) {
    Lane power = powerBelow(largest);
    constexpr auto kSum = int32_t(uint32_t(2 * RowScale::kBias + RowScale::kMost) << RowScale::kMantissaBits);
    return (power.likeInt(kSum) - power).asFloat();
  }
  Lane inverseScaleOf(Lane largest) {
    Lane power = powerBelow(largest);
    return (power - power.likeInt(int64_t(RowScale::kMost) << RowScale::kMantissaBits)).asFloat();
  }
  /// Scales a group's gradients of two rows, and rescales `sums` of earlier, scaled gradients if the largest one of a
  /// row grows. `largest`: kHalves carried values.
  void scaleRows(Lanes &grads, Values &sums, llvm::MutableArrayRef<Value> largest) {
    Lanes shrunk;
    Lane anyGrew = lane(arith::ConstantOp::create(b, loc, b.getBoolAttr(false)));
    for (size_t half = 0; half < size_t(kHalves); ++half) {
      Lane old = lane(largest[half]), now = old;
      auto ofRow = [&](llvm::function_ref<void(Lane &)> body) {
        for (size_t i = 0; i < grads.size(); ++i)
          if (i % kTileSums / 2 == half)
            body(grads[i]);
      };
      ofRow([&](Lane &grad) { now = larger(grad.abs(), now); });
      for (int64_t distance : {1, 2}) {
        Lane other = ofPartner(now, distance);
        now = larger(other, now);
      }
      Lane change = powerBelow(old) - powerBelow(now); // 0, or below: 2^-127 and less is 0
      Lane factor =
          lane(most(change + change.likeInt(int64_t(RowScale::kBias) << RowScale::kMantissaBits), change.likeInt(0)))
              .asFloat();
      anyGrew = anyGrew | isFalse(equal(factor, 1.0));
      shrunk.push_back(factor);
      Lane scale = scaleOf(now);
      ofRow([&](Lane &grad) { grad = grad * scale; });
      largest[half] = now;
    }
    sums = loops.when(
        anyHas(anyGrew),
        [&]() -> Values {
          Values scaled;
          for (auto [i, sum] : llvm::enumerate(sums))
            scaled.push_back(lane(sum) * shrunk[i % kTileSums / 2]);
          return scaled;
        },
        sums);
  }

  /// Stores factor·sums, each row divided by its scale if `largest` is given.
  void storeRows(const Rows &rows, llvm::ArrayRef<Row> own, ValueRange sums, const FeatureRange &features,
                 double factor, ValueRange largest = {}) {
    Values results(sums);
    if (factor != 1)
      for (Value &sum : results)
        sum = lane(sum) * number(factor);
    if (!largest.empty())
      for (auto [i, sum] : llvm::enumerate(results))
        sum = lane(sum) * inverseScaleOf(lane(largest[i % kTileSums / 2]));
    for (int64_t half = 0; half < kHalves; ++half) {
      const Row &row = own[size_t(half)];
      auto store = [&]() -> Values { return storeFeatures(rows, row.row, half, results, features), Values(); };
      if (row.inside)
        loops.when(row.inside, store, {});
      else
        store();
    }
  }

  /// Ranges of a stage's groups: `checked` ones in [first, plain) and [plainEnd, end), unchecked ones in between.
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

  FeatureRange rangeOf(const GradientWork &work, int64_t features) const {
    return {work.features.first, std::min(work.features.end, form.padded(features))};
  }

  void queries(Index tile, const GradientWork &work) {
    const int64_t blockRows = kBlockTileQueries * tiles, blocks = llvm::divideCeil(s.queries, blockRows);
    Index line = tile / blocks;
    setHead(line / s.heads, line % s.heads);
    // A bias gradient needs the gradient of every score.
    shownKeys = hasBiasGrad ? ShownKeys() : findShown(batch, kGroup);
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
    // Without a bias gradient, skip keys that no query sees.
    auto end = [&](Index rowsEnd) {
      return hasBiasGrad ? loops.index(s.keys) : keysSeenBefore(least(rowsEnd, index(s.queries)));
    };
    Value seen = end(first + kGroup * tiles);
    if (s.queries % blockRows)
      seen = whereBelow(first, s.queries, seen, loops.index(0)); // nothing for a warp without queries
    Value plain = least(index(keysSeenBefore(first + 1)) / kGroup * kGroup, seen);
    std::array<Rows, 2> sides{operandRows(1, batch, keyHead, s.depth), operandRows(2, batch, keyHead, s.width)};
    // Carried for each tile: its sums, then the largest gradients of its rows.
    const FeatureRange features = rangeOf(work, s.depth);
    const size_t tileSums = size_t(sumsOf(features)), carried = tileSums + size_t(scales());
    Values sums;
    for (int64_t i = 0; i < tiles; ++i)
      appendZeros(sums, tileSums);
    sums = stage.walk(firstStage(blockFirst), end(blockFirst + blockRows), s.keys, sides, sums,
                      [&](Value stageFirst, Value buffer, ValueRange before) {
                        Value stageEnd = index(stageFirst) + stage.rows();
                        Groups groups{{}, stageFirst, most(least(stageEnd, plain), stageFirst), least(stageEnd, seen)};
                        return addGroups(groups, false, s.causal || s.keys % kGroup, before,
                                         [&](Value keyFirst, ValueRange now, bool checked) {
                                           return addKeys(keyFirst, buffer, index(keyFirst) - stageFirst, own, features,
                                                          now, checked);
                                         });
                      });
    for (auto [i, tile] : llvm::enumerate(own)) {
      ValueRange ofTile = ValueRange(sums).slice(i * carried, carried);
      storeRows(resultRows(0, batch, head, s.depth), tile.rows, ofTile.take_front(tileSums), features, s.scale,
                ofTile.drop_front(tileSums));
    }
  }

  /// Values that a tile of rows carries for scaleRows.
  int64_t scales() const { return isShort() ? kHalves : 0; }
  void appendZeros(Values &carried, size_t sums) {
    carried.append(sums, zeroSum());
    carried.append(size_t(scales()), number(RowScale::kLeast));
  }

  /// Adds the keys of a group, which starts at row `inStage` of the stage.
  Values addKeys(Value first, Value buffer, Value inStage, llvm::ArrayRef<QueryTile> own, const FeatureRange &features,
                 ValueRange before, bool checked) {
    llvm::SmallVector<Row> keys = rowsOfThread(first, s.keys, checked);
    llvm::SmallVector<Lanes> grads(own.size());
    for (int64_t j = 0; j < 2; ++j) {
      Factors keyWords = stageFeatures(0, buffer, inStage, j), valueWords = stageFeatures(1, buffer, inStage, j);
      for (auto [tile, tileGrads] : llvm::zip_equal(own, grads)) {
        Values products = multiplyFeatures(tile.query, keyWords);
        Values weightGrads = multiplyFeatures(tile.grad, valueWords);
        for (size_t i = 0; i < size_t(kTileSums); ++i) {
          const Row &key = keys[size_t(2 * j) + i % 2], &row = tile.rows[i / 2];
          Parts parts = partsOf(lane(products[i]), lane(weightGrads[i]), row.row, key.row, tile.numbers[i / 2],
                                key.inside, checked);
          tileGrads.push_back(parts.rawGrad);
          if (hasBiasGrad && features.first == 0)
            storeBiasGrad(row, key, parts.scoreGrad);
        }
      }
    }
    Factors keyWords = stageRows(0, buffer, inStage, features);
    const size_t carried = before.size() / own.size();
    Values after;
    for (auto [i, tileGrads] : llvm::enumerate(grads))
      llvm::append_range(after, addGrads(before.slice(i * carried, carried), tileGrads, keyWords));
    return after;
  }

  /// Adds the products of a tile's score gradients to its carried sums.
  Values addGrads(ValueRange before, Lanes &grads, const Factors &right) {
    Values sums(before.drop_back(size_t(scales()))), largest(before.take_back(size_t(scales())));
    if (isShort())
      scaleRows(grads, sums, largest);
    addRows(sums, asLeft(grads), right);
    llvm::append_range(sums, largest);
    return sums;
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

  void keys(Value tile, const GradientWork &work) {
    const int64_t blocks = llvm::divideCeil(s.keys, kBlockKeys);
    Index line = index(tile) / blocks, blockFirst = index(tile) % blocks * kBlockKeys,
          first = blockFirst + warp * kGroup;
    Value ownBatch = line / s.keyHeads, ownHead = line % s.keyHeads;
    Rows keyRows = operandRows(1, ownBatch, ownHead, s.depth), valueRows = operandRows(2, ownBatch, ownHead, s.width);
    Row own[kHalves] = {existing(first + eighth, s.keys, kBlockKeys), existing(first + eighth + 8, s.keys, kBlockKeys)};
    Left key{featuresOf(keyRows, own[0].row), featuresOf(keyRows, own[1].row)};
    Left value; // not needed for the gradient of values
    if (work.ofKeys)
      value = {featuresOf(valueRows, own[0].row), featuresOf(valueRows, own[1].row)};
    // The first query that sees one of these keys, and the first one that sees all.
    auto firstSeeing = [&](Index row) -> Value {
      return s.causal ? least(most(row - s.causalOffset, loops.index(0)), loops.index(s.queries)) : loops.index(0);
    };
    Value visible = index(firstSeeing(first)) / kGroup * kGroup;
    if (s.keys % kBlockKeys)
      visible = whereBelow(first, s.keys, visible, loops.index(s.queries)); // nothing for a warp without keys
    Value plain = roundUp(index(firstSeeing(first + (kGroup - 1))), kGroup);
    Value begin = index(firstSeeing(blockFirst)) / stage.rows() * stage.rows();
    Value queriesEnd = loops.index(s.queries), warpEnd = queriesEnd;
    shownKeys = findShown(ownBatch, kGroup);
    if (shownKeys.end) {
      // Nothing for keys behind the shown ones. Those before are for queries that see no shown one.
      auto beforeEnd = [&](Value keysFirst, Value start) -> Value {
        Value some = compare(arith::CmpIPredicate::slt, keysFirst, shownKeys.end);
        return arith::SelectOp::create(b, loc, some, start, loops.index(s.queries));
      };
      Value without = loops.index(0);
      if (s.causal)
        without = least(roundUp(index(most(index(shownKeys.first) + (kGroup - 1) - s.causalOffset, without)), kGroup),
                        loops.index(s.queries));
      auto endOf = [&](Value keysEnd) -> Value {
        Value only = compare(arith::CmpIPredicate::sle, keysEnd, shownKeys.first);
        return arith::SelectOp::create(b, loc, only, without, loops.index(s.queries));
      };
      visible = beforeEnd(first, visible);
      begin = beforeEnd(blockFirst, begin);
      warpEnd = endOf(first + kGroup);
      queriesEnd = endOf(blockFirst + kBlockKeys);
    }

    // Carried: values of keys, then those of values.
    const FeatureRange depth = rangeOf(work, s.depth), width = rangeOf(work, s.width);
    const size_t keySums = work.ofKeys ? size_t(sumsOf(depth)) : 0, keyCarried = keySums + (keySums ? scales() : 0);
    Values sums;
    if (work.ofKeys)
      appendZeros(sums, keySums);
    if (work.ofValues)
      sums.append(size_t(sumsOf(width)), zeroSum());
    sums = loops.loop(loops.index(0), loops.index(s.groupSize()), 1, sums, [&](Value member, ValueRange before) {
      setHead(ownBatch, Index(loops, ownHead) * s.groupSize() + member);
      std::array<Rows, 2> sides{operandRows(0, batch, head, s.depth), operandRows(s.outputGrad, batch, head, s.width)};
      return stage.walk(
          begin, queriesEnd, s.queries, sides, before, [&](Value stageFirst, Value buffer, ValueRange now) {
            Value end = least(index(stageFirst) + stage.rows(), warpEnd);
            Value from = least(most(stageFirst, visible), end), whole = loops.index(s.queries / kGroup * kGroup);
            Value checkedEnd = s.causal ? least(most(plain, from), end) : from;
            Groups groups{from, checkedEnd, most(least(end, whole), checkedEnd), end};
            return addGroups(
                groups, s.causal, s.queries % kGroup, now, [&](Value queryFirst, ValueRange sums, bool checked) {
                  return addQueries(queryFirst, buffer, index(queryFirst) - stageFirst, key, value, own, work,
                                    {sums.take_front(keyCarried), sums.drop_front(keyCarried)}, checked);
                });
          });
    });
    ValueRange ofKeys = ValueRange(sums).take_front(keyCarried);
    if (work.ofKeys)
      storeRows(resultRows(1, ownBatch, ownHead, s.depth), own, ofKeys.take_front(keySums), depth, s.scale,
                ofKeys.drop_front(keySums));
    if (work.ofValues)
      storeRows(resultRows(2, ownBatch, ownHead, s.width), own, ValueRange(sums).drop_front(keyCarried), width,
                1 / weightFactor());
  }

  /// Carried values before the queries of a group are added. Scores are transposed: keys in rows.
  struct Before {
    ValueRange keys, values;
  };
  Values addQueries(Value first, Value buffer, Value inStage, const Left &key, const Left &value,
                    llvm::ArrayRef<Row> own, const GradientWork &work, const Before &before, bool checked) {
    llvm::SmallVector<Row> queries = rowsOfThread(first, s.queries, checked);
    llvm::SmallVector<RowNumbers> numbers = numbersOf(queries, checked);
    Lanes weights, grads;
    for (int64_t j = 0; j < 2; ++j) {
      Values products = multiplyFeatures(key, stageFeatures(0, buffer, inStage, j));
      Values weightGrads(size_t(kTileSums), zeroSum());
      if (work.ofKeys)
        weightGrads = multiplyFeatures(value, stageFeatures(1, buffer, inStage, j));
      for (size_t half = 0; half < size_t(kHalves); ++half)
        for (size_t i = 0; i < 2; ++i) {
          const size_t place = half * 2 + i, query = size_t(2 * j) + i;
          Parts parts = partsOf(lane(products[place]), lane(weightGrads[place]), queries[query].row, own[half].row,
                                numbers[query], queries[query].inside, checked);
          weights.push_back(weightFactor() != 1 ? parts.left * number(weightFactor()) : parts.left);
          grads.push_back(parts.rawGrad);
        }
    }
    Values keySums(before.keys), valueSums(before.values);
    if (work.ofValues)
      addRows(valueSums, asLeft(weights), stageRows(1, buffer, inStage, rangeOf(work, s.width)));
    if (work.ofKeys)
      keySums = addGrads(keySums, grads, stageRows(0, buffer, inStage, rangeOf(work, s.depth)));
    llvm::append_range(keySums, valueSums);
    return keySums;
  }

  const bool hasBiasGrad;
  const int64_t tiles; ///< tiles of queries that a warp owns
};

} // namespace

int64_t warpTilesOf(AttentionGradOp op) {
  AttentionShape s = attentionShapeOf(op);
  const TileNumbers numbers = tileNumbersOf(op);
  int64_t tiles = 0;
  if (s.delta >= 0 && numbers != TileNumbers::None)
    for (const GradientWork &work : WarpGradient::worksOf(s, {numbers}))
      tiles += work.tiles;
  return tiles;
}

void emitWarpAttentionGrad(AttentionGradOp op, LoopBuilder &loops, Value tile) {
  const AttentionShape s = attentionShapeOf(op); // must outlive the kernel
  WarpGradient(loops, s, tileNumbersOf(op), !op.getBiasGrad().empty()).emit(tile);
}

} // namespace tcc::train
