//===- ScatterRows.cpp - rows scattered by a lane group -------------------===//
//
// Several updates may have the same row, so a row must belong to one group. With sorted indices a group would find its
// updates directly; here each group searches all indices instead, 32 by one load and one vote, 256 in a round. With
// blocks of rows as large as the device's parallelism allows, the search of 65536 indices costs less than reading their
// updates once, needs no memory, and keeps the order of additions of one thread.
//
// One row may get most of the updates, as that of padding in an embedding. Its additions follow one another, but not
// their loads: the updates that a round found are counted off to the threads, 32 at a time, and read together before
// the first is added. A group has one column for each thread, so that many groups share such a row.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ScatterRows.h"

using namespace mlir;

namespace tcc::train {

namespace {
constexpr int64_t kTiles = 2560; ///< wanted number: as many groups as a device's registers hold
constexpr int64_t kMostRows = 512;
constexpr int64_t kVotes = 8; ///< votes of a round of the search, whose loads are in flight together
constexpr int64_t kFew = 4;   ///< updates that are read together with the rows of the result that they change

using Values = llvm::SmallVector<Value>;
} // namespace

int64_t ScatterRows::columnBlocks() const { return std::max<int64_t>(1, llvm::divideCeil(columns, kGroupThreads)); }

int64_t ScatterRows::rowsPerTile() const {
  return std::clamp<int64_t>(extent * lines * columnBlocks() / kTiles, 1,
                             std::min(kMostRows, std::max<int64_t>(extent, 1)));
}

namespace {

/// The code of one tile. Numbers of rows are words, counted from the tile's first row.
class TileScatter {
public:
  TileScatter(LoopBuilder &loops, const ScatterRows &rows, Value tile, Type element, Type indexElement, bool overwrites,
              llvm::function_ref<ScatterLine(Value)> lineAt, llvm::function_ref<Value(Value, Value)> combine)
      : loops(loops), b(loops.builder), loc(loops.loc), rows(rows), element(element), indexElement(indexElement),
        overwrites(overwrites), combine(combine), number(loops, tile),
        line(lineAt(number / (rows.rowBlocks() * rows.columnBlocks()))),
        firstRow(number / rows.columnBlocks() % rows.rowBlocks() * rows.rowsPerTile()),
        column(number % rows.columnBlocks() * kGroupThreads + loops.thread()) {
    if (rows.columns % kGroupThreads != 0)
      hasColumn = column.isBelow(loops.index(rows.columns));
  }

  void emit() {
    const int64_t votes = std::clamp<int64_t>(llvm::divideCeil(rows.count, kGroupThreads), 1, kVotes);
    Values carried{word(-1), arith::ConstantOp::create(b, loc, b.getZeroAttr(laneTypeOf(element, 1)))};
    carried = loops.loop(loops.index(0), loops.index(rows.count), votes * kGroupThreads, carried,
                         [&](Value m, ValueRange before) { return round(Index(loops, m), votes, before); });
    if (keeps())
      storeIfAny(carried[0], carried[1]);
  }

private:
  Value word(int64_t value) {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(b.getI32Type(), APInt(32, uint64_t(value), true)));
  }
  Value compare(arith::CmpIPredicate how, Value x, Value y) { return arith::CmpIOp::create(b, loc, how, x, y); }
  Value isSame(Value x, Value y) { return compare(arith::CmpIPredicate::eq, x, y); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subtract(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value least(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
  Value bitsOf(Value x) { return math::CtPopOp::create(b, loc, x); }
  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }
  Value narrowed(Value x) { return arith::TruncIOp::create(b, loc, b.getI32Type(), x); }
  Index widened(Value x) { return {loops, arith::ExtSIOp::create(b, loc, b.getI64Type(), x).getResult()}; }

  /// The sum of a row stays in a register while the row stays the same. Narrow elements are stored after each addition,
  /// which rounds them; then no row is carried (−1).
  bool keeps() const { return element.getIntOrFloatBitWidth() >= 32; }

  /// The result of `make` if this thread has a column, else `otherwise`.
  Value inRow(Value otherwise, llvm::function_ref<Value()> make) {
    if (!hasColumn)
      return make();
    auto there = [&]() -> Values { return {make()}; };
    return loops.when(hasColumn, there, otherwise).front();
  }
  Value resultAt(Value row) {
    return line.result + (firstRow + widened(row)) * rows.resultRow + column * rows.resultColumn;
  }
  void store(Value row, Value sum) {
    inRow(sum, [&] {
      loops.store(0, resultAt(row), sum);
      return sum;
    });
  }
  void storeIfAny(Value row, Value sum) {
    auto change = [&]() -> Values {
      store(row, sum);
      return {};
    };
    loops.when(compare(arith::CmpIPredicate::sge, row, word(0)), change, {});
  }
  /// The old element of a row, which nothing reads if updates overwrite it.
  Value loadOld(Value row, Value otherwise) {
    return overwrites ? otherwise : inRow(otherwise, [&] { return loops.loadResult(0, resultAt(row)); });
  }
  Index rowOfIndex(Value position) {
    Value index = loops.load(1, line.indices + Index(loops, position) * rows.indexRow);
    return Index(loops, emitResolve(b, loc, index, indexElement, rows.extent)) - firstRow;
  }

  /// Applies the updates of the tile's rows among the `votes`·32 from `m` on. Carried: the number of the row whose sum
  /// is in a register, or −1; the sum.
  Values round(Index m, int64_t votes, ValueRange before) {
    Values isThere, found, here, until;
    for (int64_t vote = 0; vote < votes; ++vote) {
      Index position = m + vote * kGroupThreads + loops.thread();
      isThere.push_back(position.isBelow(loops.index(rows.count)));
      found.push_back(rowOfIndex(position.atMost(rows.count - 1)));
    }
    for (auto [there, row] : llvm::zip_equal(isThere, found)) {
      Value isHere = both(both(there, compare(arith::CmpIPredicate::sge, row, loops.index(0))),
                          Index(loops, row).isBelow(loops.index(rows.rowsPerTile())));
      here.push_back(loops.ballot(isHere));
      Value count = bitsOf(here.back());
      until.push_back(until.empty() ? count : add(until.back(), count));
    }
    Value total = until.back();
    return loops.loop(loops.index(0), widened(total), kGroupThreads, before, [&](Value first, ValueRange now) {
      Value start = narrowed(first), left = least(subtract(total, start), word(kGroupThreads)),
            mine = narrowed(loops.thread());
      // Behind the last update is the last one again, which is not added.
      Value place = placeOf(least(add(start, mine), subtract(total, word(1))), here, until);
      return apply({m, place, narrowed(rowOfIndex(m + widened(place))), left}, mine, now);
    });
  }

  /// The place of the update of number `n` among those of the votes `here`, of which `until` counts the bits up to each
  /// vote.
  Value placeOf(Value n, ValueRange here, ValueRange until) {
    Value bits = here[0], place = word(0), before = word(0);
    for (size_t vote = 1; vote < here.size(); ++vote) {
      Value isLater = compare(arith::CmpIPredicate::sge, n, until[vote - 1]);
      bits = select(isLater, here[vote], bits);
      place = select(isLater, word(int64_t(vote) * kGroupThreads), place);
      before = select(isLater, until[vote - 1], before);
    }
    // The bit that has n − before others below it, by bisection.
    Value rank = subtract(n, before);
    for (int64_t half = kGroupThreads / 2; half; half /= 2) {
      Value below = bitsOf(both(bits, word((int64_t(1) << half) - 1)));
      Value isAbove = compare(arith::CmpIPredicate::sge, rank, below);
      bits = select(isAbove, arith::ShRUIOp::create(b, loc, bits, word(half)), bits);
      rank = select(isAbove, subtract(rank, below), rank);
      place = select(isAbove, add(place, word(half)), place);
    }
    return place;
  }

  /// Up to 32 updates: of the one of number t, thread t holds the place in the round that begins at `m`, and the row.
  struct Updates {
    Index m;
    Value place, row, count;
  };

  /// Reads the update that thread `holder` holds. A thread without a column reads another's.
  Value load(const Updates &updates, Value holder) {
    Index source = updates.m + widened(loops.ofThread(updates.place, holder));
    Index readColumn = hasColumn ? column.atMost(rows.columns - 1) : column;
    return loops.load(2, line.updates + source * rows.updateRow + readColumn * rows.updateColumn);
  }

  Values apply(const Updates &updates, Value mine, ValueRange before) {
    Values now(before.begin(), before.end());
    Value end = updates.count;
    if (keeps()) {
      // Bit t: the row is another than that of the update before.
      Value isFirst = isSame(mine, word(0));
      Value earlier = loops.ofThread(updates.row, select(isFirst, mine, subtract(mine, word(1))));
      Value known = select(isFirst, now[0], earlier);
      Value changes = loops.ballot(compare(arith::CmpIPredicate::ne, updates.row, known));
      // Each change waits for memory once, and so do kFew updates with their rows.
      Value waits = arith::MaxSIOp::create(b, loc, bitsOf(changes), word(1));
      Value isRun = compare(arith::CmpIPredicate::sgt, updates.count, arith::MulIOp::create(b, loc, waits, word(kFew)));
      auto run = [&] { return applyRun(updates, changes, now); };
      now = loops.when(isRun, run, now);
      end = select(isRun, word(0), end);
    }
    return loops.loop(loops.index(0), widened(end), kFew, now,
                      [&](Value first, ValueRange carried) { return applyFew(updates, narrowed(first), carried); });
  }

  /// Loads all updates before the first is added, for few `changes` of rows.
  Values applyRun(const Updates &updates, Value changes, ValueRange before) {
    Values loaded, now(before.begin(), before.end());
    for (int64_t j = 0; j < kGroupThreads; ++j)
      loaded.push_back(load(updates, word(j)));
    for (int64_t j = 0; j < kGroupThreads; ++j) {
      Value isChange = compare(arith::CmpIPredicate::ne, both(changes, word(int32_t(uint32_t(1) << j))), word(0));
      auto change = [&]() -> Values {
        storeIfAny(now[0], now[1]);
        Value row = loops.ofThread(updates.row, word(j));
        return {row, loadOld(row, now[1])};
      };
      now = loops.when(isChange, change, now);
      Value isThere = compare(arith::CmpIPredicate::slt, word(j), updates.count);
      now[1] = select(isThere, combine(now[1], loaded[size_t(j)]), now[1]);
    }
    return now;
  }

  /// Loads kFew updates from that of number `first` on, and the rows that they change, before the first is added.
  Values applyFew(const Updates &updates, Value first, ValueRange before) {
    Values loaded, found, old, now(before.begin(), before.end());
    for (int64_t j = 0; j < kFew; ++j) {
      Value holder = add(first, word(j));
      loaded.push_back(load(updates, holder));
      found.push_back(loops.ofThread(updates.row, holder));
      if (keeps())
        old.push_back(loadOld(found.back(), before[1]));
    }
    for (size_t j = 0; j < loaded.size(); ++j) {
      Value isThere = compare(arith::CmpIPredicate::slt, add(first, word(int64_t(j))), updates.count);
      if (!keeps()) {
        auto change = [&]() -> Values {
          store(found[j], combine(loadOld(found[j], now[1]), loaded[j]));
          return {};
        };
        loops.when(isThere, change, {});
        continue;
      }
      auto change = [&]() -> Values {
        storeIfAny(now[0], now[1]);
        // The old element was read too early if these updates have changed it.
        Value isLate = isSame(found[j], before[0]);
        for (size_t i = 0; i + 1 < j; ++i)
          isLate = either(isLate, isSame(found[j], found[i]));
        auto again = [&]() -> Values { return {loadOld(found[j], now[1])}; };
        return loops.when(isLate, again, old[j]);
      };
      Value sum = loops.when(compare(arith::CmpIPredicate::ne, found[j], now[0]), change, now[1]).front();
      now = {found[j], select(isThere, combine(sum, loaded[j]), sum)};
    }
    return now;
  }

  LoopBuilder &loops;
  OpBuilder &b;
  Location loc;
  const ScatterRows &rows;
  Type element, indexElement;
  bool overwrites;
  llvm::function_ref<Value(Value, Value)> combine;
  Index number;
  ScatterLine line;
  Index firstRow, column;
  Value hasColumn; ///< i1; null: all threads have one
};

} // namespace

void emitScatterRows(LoopBuilder &loops, const ScatterRows &rows, Value tile, Type element, Type indexElement,
                     bool overwrites, llvm::function_ref<ScatterLine(Value)> lineAt,
                     llvm::function_ref<Value(Value, Value)> combine) {
  TileScatter(loops, rows, tile, element, indexElement, overwrites, lineAt, combine).emit();
}

} // namespace tcc::train
