//===- ScatterRows.cpp - rows scattered by a lane group -------------------===//
//
// Several updates may have the same row, so a row must belong to one group. With sorted indices a group would find its
// updates directly; here each group searches all indices instead, 32 by one load and one vote, 256 in a round. With
// blocks of rows as large as the device's parallelism allows, the search of 65536 indices costs less than reading their
// updates once, needs no memory, and keeps the order of additions of one thread.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ScatterRows.h"

using namespace mlir;

namespace tcc::train {

namespace {
constexpr int64_t kThreadColumns = 4; ///< sums that a thread keeps in registers
constexpr int64_t kTiles = 4096;      ///< wanted number: groups that keep a device busy
constexpr int64_t kMostRows = 256;
constexpr int64_t kVotes = 8; ///< votes of a round of the search, whose loads are in flight together

using Values = llvm::SmallVector<Value>;
} // namespace

int64_t ScatterRows::columnsPerThread() const {
  return std::clamp<int64_t>(llvm::divideCeil(columns, kGroupThreads), 1, kThreadColumns);
}

int64_t ScatterRows::columnBlocks() const {
  return std::max<int64_t>(1, llvm::divideCeil(columns, columnsPerThread() * kGroupThreads));
}

int64_t ScatterRows::rowsPerTile() const {
  return std::clamp<int64_t>(extent * lines * columnBlocks() / kTiles, 1,
                             std::min(kMostRows, std::max<int64_t>(extent, 1)));
}

void emitScatterRows(LoopBuilder &loops, const ScatterRows &rows, Value tile, Type element, Type indexElement,
                     bool overwrites, llvm::function_ref<ScatterLine(Value)> lineAt,
                     llvm::function_ref<Value(Value, Value)> combine) {
  OpBuilder &b = loops.builder;
  Location loc = loops.loc;
  const int64_t perThread = rows.columnsPerThread(), size = rows.rowsPerTile();
  const bool whole = rows.columns % (perThread * kGroupThreads) == 0;
  // Round a narrow element after each addition, as if it was stored in between.
  const bool keeps = element.getIntOrFloatBitWidth() >= 32;
  Type i32 = b.getI32Type(), valueType = laneTypeOf(element, 1);
  auto word = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(i32, APInt(32, uint64_t(value), true)));
  };
  auto compare = [&](arith::CmpIPredicate how, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, how, x, y);
  };
  auto both = [&](Value x, Value y) -> Value { return arith::AndIOp::create(b, loc, x, y); };

  Index number(loops, tile);
  ScatterLine line = lineAt(number / (rows.rowBlocks() * rows.columnBlocks()));
  Index firstRow = number / rows.columnBlocks() % rows.rowBlocks() * size;
  Index firstColumn = number % rows.columnBlocks() * (perThread * kGroupThreads) + loops.thread();
  auto columnAt = [&](int64_t j) { return firstColumn + j * kGroupThreads; };
  /// The result of `make` for this thread's column j if that is in the row, else `otherwise`.
  auto inRow = [&](int64_t j, Value otherwise, llvm::function_ref<Value(Value)> make) -> Value {
    Index column = columnAt(j);
    if (whole)
      return make(column);
    Value inside = column.isBelow(loops.index(rows.columns));
    return loops.when(inside, [&]() -> Values { return {make(column)}; }, otherwise).front();
  };
  auto resultAt = [&](Value row, Value column) -> Value {
    Index absolute = firstRow + arith::ExtSIOp::create(b, loc, b.getI64Type(), row).getResult();
    return line.result + absolute * rows.resultRow + Index(loops, column) * rows.resultColumn;
  };
  auto store = [&](Value row, ValueRange sums) {
    for (int64_t j = 0; j < perThread; ++j)
      inRow(j, sums[size_t(j)], [&](Value column) {
        loops.store(0, resultAt(row, column), sums[size_t(j)]);
        return sums[size_t(j)];
      });
  };
  auto storeIfAny = [&](Value row, ValueRange sums) {
    loops.when(compare(arith::CmpIPredicate::sge, row, word(0)), [&]() -> Values {
      store(row, sums);
      return {};
    }, {});
  };

  // Carried: the number in the tile of the row whose sums are in registers, or -1; the sums.
  Values carried(size_t(perThread) + 1, arith::ConstantOp::create(b, loc, b.getZeroAttr(valueType)));
  carried[0] = word(-1);
  /// Applies those of the 32 updates from `first` on whose bits are set in the vote `here`, each to its thread's `row`.
  auto apply = [&](Index first, Value here, Value row, ValueRange before) -> Values {
    Values search(before.begin(), before.end());
    search.insert(search.begin(), here);
    auto isLeft = [&](ValueRange now) { return compare(arith::CmpIPredicate::ne, now[0], word(0)); };
    Values after = loops.repeat(search, isLeft, [&](ValueRange now) -> Values {
      Value thread = math::CountTrailingZerosOp::create(b, loc, now[0]);
      Value rest = both(now[0], arith::SubIOp::create(b, loc, now[0], word(1)));
      Value found = loops.ofThread(row, thread);
      Index source = first + arith::ExtUIOp::create(b, loc, b.getI64Type(), thread).getResult();
      Value isOther = compare(arith::CmpIPredicate::ne, found, now[1]);
      ValueRange sums = now.drop_front(2);
      Values old = loops.when(isOther, [&]() -> Values {
        if (keeps)
          storeIfAny(now[1], sums);
        Values read(sums.begin(), sums.end());
        for (int64_t j = 0; !overwrites && j < perThread; ++j)
          read[size_t(j)] =
              inRow(j, sums[size_t(j)], [&](Value column) { return loops.loadResult(0, resultAt(found, column)); });
        return read;
      }, sums);
      Values next{rest, keeps ? found : word(-1)};
      for (int64_t j = 0; j < perThread; ++j)
        next.push_back(inRow(j, old[size_t(j)], [&](Value column) {
          Value update =
              loops.load(2, line.updates + source * rows.updateRow + Index(loops, column) * rows.updateColumn);
          return combine(old[size_t(j)], update);
        }));
      if (!keeps)
        store(found, ValueRange(next).drop_front(2));
      return next;
    });
    return Values(after.begin() + 1, after.end());
  };
  const int64_t votes = std::clamp<int64_t>(llvm::divideCeil(rows.count, kGroupThreads), 1, kVotes);
  carried = loops.loop(
      loops.index(0), loops.index(rows.count), votes * kGroupThreads, carried,
      [&](Value m, ValueRange before) -> Values {
        Values indices, isThere, here, found;
        for (int64_t vote = 0; vote < votes; ++vote) {
          Index position = Index(loops, m) + vote * kGroupThreads + loops.thread();
          isThere.push_back(position.isBelow(loops.index(rows.count)));
          indices.push_back(loops.load(1, line.indices + position.atMost(rows.count - 1) * rows.indexRow));
        }
        Value any = word(0);
        for (auto [index, there] : llvm::zip_equal(indices, isThere)) {
          Index row = Index(loops, emitResolve(b, loc, index, indexElement, rows.extent)) - firstRow;
          Value isHere = both(both(there, compare(arith::CmpIPredicate::sge, row, loops.index(0))),
                              row.isBelow(loops.index(size)));
          found.push_back(arith::TruncIOp::create(b, loc, i32, row.value));
          here.push_back(loops.ballot(isHere));
          any = arith::OrIOp::create(b, loc, any, here.back());
        }
        return loops.when(
            compare(arith::CmpIPredicate::ne, any, word(0)),
            [&]() -> Values {
              Values now(before.begin(), before.end());
              for (int64_t vote = 0; vote < votes; ++vote)
                now = apply(Index(loops, m) + vote * kGroupThreads, here[size_t(vote)], found[size_t(vote)], now);
              return now;
            },
            before);
      });
  if (keeps)
    storeIfAny(carried[0], ValueRange(carried).drop_front(1));
}

} // namespace tcc::train
