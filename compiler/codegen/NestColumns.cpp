//===- NestColumns.cpp - sums of parallel lanes in registers --------------===//
#include "compiler/codegen/Nest.h"
#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// Rows of a thread's columns in flight in one iteration of its loop.
constexpr int64_t kRowsInFlight = 8;

} // namespace

void Nest::emitLaneParallel(Value start) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  int64_t extent = space.dims[space.laneDim];
  bool partial = space.lanes > 1 && extent % space.lanes;
  if (thread && partial) {
    when(isBelow(arith::SubIOp::create(b, loc, emitter.i64(extent), start)), {}, [&] {
      emitLaneColumns(start);
      return SmallVector<Value>();
    });
    return;
  }
  emitter.withLanes(valueLanes(), nullptr, [&] {
    Value mask;
    if (!thread && partial)
      mask = emitter.laneMask(arith::SubIOp::create(b, loc, emitter.i64(extent), start));
    emitter.withLanes(valueLanes(), mask, [&] { emitLaneColumns(start); });
  });
}

void Nest::emitLaneColumns(Value start) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  columns.assign(1, Column{lanesAt(start)});
  if (space.columns > 1) {
    columns.clear();
    Value own = arith::MulIOp::create(b, loc, thread, emitter.i64(space.columns));
    own = arith::AddIOp::create(b, loc, start, own);
    for (int64_t i = 0; i < space.columns; ++i)
      columns.push_back(Column{Coord{arith::AddIOp::create(b, loc, own, emitter.i64(i)), 0, nullptr}});
  }
  enterColumn(0);
  for (unsigned level = 0; level <= space.levels.size(); ++level) {
    bool last = level == space.levels.size();
    ArrayRef<Operation *> reductions = last ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
    const bool stores = storesInLevel(level);
    if (last && !stores)
      break;
    current = reductions;
    auto stored = [&](unsigned output) { return outputInLevel(output, level); };
    auto add = [&](ValueRange now, Value) {
      SmallVector<Value> next(now);
      SmallVector<Value> own =
          accumulate(reductions, now.slice(column * reductions.size(), reductions.size()), nullptr);
      llvm::copy(own, next.begin() + std::ptrdiff_t(column * reductions.size()));
      return next;
    };
    // One iteration of a thread's loop has several rows in flight.
    rowsOfLoop = thread ? kRowsInFlight : 1;
    SmallVector<Value> carried = overReduced(identities(reductions, columns.size()),
                                             [&](SmallVector<Value> values) { return visitRows(values, add, stored); });
    rowsOfLoop = 1;
    if (rowWarp && !last)
      carried = combineRowWarps(reductions, carried);
    for (size_t i = 0; i < columns.size(); ++i) {
      enterColumn(i);
      for (auto [op, value] : llvm::zip(reductions, ArrayRef(carried).slice(i * reductions.size(), reductions.size())))
        setRow(op, value);
      columns[i].rows = emitter.rowValues;
    }
  }
  auto storeRows = [&]() -> SmallVector<Value> {
    SmallVector<Value> none;
    auto rowsOnly = [&](unsigned output) { return isRow(output); };
    if (columns.size() == 1)
      storeOutputs(rowsOnly);
    else
      visitEach(
          columns.size(), [&](size_t i) { enterColumn(i); }, none,
          [](ValueRange, Value) { return SmallVector<Value>(); }, rowsOnly);
    return {};
  };
  if (rowWarp)
    when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rowWarp, emitter.i64(0)), {}, storeRows);
  else
    storeRows();
}

SmallVector<Value> Nest::combineRowWarps(ArrayRef<Operation *> reductions, ValueRange sums) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  Value memory = sharedMemory(b, loc, space.threads() * kScalarBytes);
  SmallVector<Value> all;
  for (auto [i, own] : llvm::enumerate(sums)) {
    const Type type = own.getType();
    auto at = [&](Value warp) -> Value {
      Value place = arith::AddIOp::create(b, loc, times(warp, space.lanes), thread);
      return LLVM::GEPOp::create(b, loc, memory.getType(), type, memory, ValueRange{place});
    };
    LLVM::StoreOp::create(b, loc, own, at(rowWarp));
    all.push_back(combineShared(reductions[i % reductions.size()], type, space.rowWarps, at));
  }
  return all;
}

void Nest::enterColumn(size_t number) {
  column = number;
  coords[space.laneDim] = columns[number].at;
  emitter.rowCoords.assign(coords.begin(), coords.end());
  emitter.rowValues = columns[number].rows;
}

SmallVector<Value> Nest::overRows(unsigned dim, Value first, Value last, SmallVector<Value> carried,
                                  function_ref<SmallVector<Value>(SmallVector<Value>)> body) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  Value many = emitter.i64(rowsOfLoop);
  Value turns = arith::DivSIOp::create(b, loc, arith::SubIOp::create(b, loc, last, first), many);
  Value middle = arith::AddIOp::create(b, loc, first, arith::MulIOp::create(b, loc, turns, many));
  auto rows = [&](Value from, Value to, int64_t count, SmallVector<Value> values) {
    return emitter.loop(from, to, count, values, [&](Value i, ValueRange now) {
      for (int64_t row = 0; row < count; ++row)
        rowsAt.push_back(arith::AddIOp::create(b, loc, i, emitter.i64(row)));
      rowsDim = dim;
      SmallVector<Value> next = body(SmallVector<Value>(now));
      rowsAt.clear();
      coords[dim] = emitter.uniform(int64_t(0));
      return next;
    });
  };
  return rows(middle, last, 1, rows(first, middle, rowsOfLoop, carried));
}

SmallVector<Value> Nest::visitRows(SmallVector<Value> carried, Add add, Wanted stored) {
  if (rowsAt.empty() && columns.size() == 1) {
    carried = add(carried, nullptr);
    storeOutputs(stored);
    return carried;
  }
  if (rowsAt.empty()) {
    visitEach(
        columns.size(), [&](size_t i) { enterColumn(i); }, carried, add, stored);
    return carried;
  }
  const size_t all = columns.size();
  auto place = [&](size_t i) {
    coords[rowsDim] = emitter.uniform(rowsAt[i / all]);
    enterColumn(i % all);
  };
  visitEach(rowsAt.size() * all, place, carried, add, stored);
  return carried;
}

} // namespace tcc::codegen
