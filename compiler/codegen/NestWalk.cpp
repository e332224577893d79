//===- NestWalk.cpp - rows in order, with the sums of their columns -------===//
//
// A warp, or a block of several, owns a part of the rows. It emits them as any other rows, and after the reductions of
// a row are known, adds its elements to the sums of their columns. A thread has the same columns of each row, so the
// sums stay in its registers, and are stored once at the end.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

void Nest::emitWalk() {
  OpBuilder &b = emitter.builder;
  const int64_t extent = space.dims[space.laneDim], rounds = extent / space.lanes, tail = extent % space.lanes;
  SmallVector<Value> positions = positionsOf(emitter.i64(0), rounds); // as overThreadRow visits them
  if (tail)
    positions.push_back(arith::AddIOp::create(b, emitter.loc, emitter.i64(rounds * space.lanes), thread));
  columns = llvm::map_to_vector(positions, [](Value position) { return Column{Coord{position, 0, nullptr}}; });
  current = space.columnSums;
  rowsOfLoop = rowsOfWalk();
  SmallVector<Value> sums = overDims(0, space.walked, identities(current, columns.size()), [&](SmallVector<Value> now) {
    SmallVector<SmallVector<Coord>> rows;
    for (Value row : rowsAt) {
      rows.push_back(coords);
      rows.back()[rowsDim] = emitter.uniform(row);
    }
    if (rows.empty())
      rows.push_back(coords);
    now = emitRows(rows, std::move(now));
    current = space.columnSums;
    return now;
  });
  rowsOfLoop = 1;
  storeColumns(sums);
  columns.clear();
}

int64_t Nest::rowsOfWalk() {
  constexpr int64_t kLoads = 16; // in flight for all rows together
  int64_t rows = 1;              // of the innermost loop
  for (auto [walked, extent] : llvm::zip_equal(space.walked, space.dims))
    if (walked && extent > 1)
      rows = extent;
  if (space.lanes != space.groupLanes)
    return 1;
  const int64_t loads = llvm::divideCeil(space.dims[space.laneDim], space.lanes) * std::max<int64_t>(1, fullOperands());
  return std::clamp<int64_t>(kLoads / loads, 1, rows);
}

SmallVector<Value> Nest::sumColumns(unsigned level, SmallVector<Value> sums) {
  const size_t count = space.columnSums.size();
  size_t element = 0;
  auto add = [&](ValueRange now, Value) {
    SmallVector<Value> next(now);
    const size_t first = element++ * count;
    llvm::copy(accumulate(space.columnSums, now.slice(first, count), nullptr), next.begin() + std::ptrdiff_t(first));
    return next;
  };
  overThreadRow(sums, add, [&](unsigned output) { return outputInLevel(output, level); });
  coords[space.laneDim] = emitter.uniform(int64_t(0));
  return sums;
}

void Nest::storeColumns(ValueRange sums) {
  const size_t count = space.columnSums.size(), whole = size_t(space.dims[space.laneDim] / space.lanes);
  for (size_t i = 0; i < columns.size(); ++i) {
    enterColumn(i);
    for (auto [op, sum] : llvm::zip_equal(space.columnSums, sums.slice(i * count, count)))
      setRow(op, sum);
    columns[i].rows = emitter.rowValues;
  }
  const SmallVector<bool> reducedDims = std::exchange(emitter.reducedDims, space.walked);
  auto store = [&](size_t first, size_t number) {
    SmallVector<Value> none;
    visitEach(
        number, [&](size_t i) { enterColumn(first + i); }, none, [](ValueRange, Value) { return SmallVector<Value>(); },
        [&](unsigned output) { return isColumn(output); });
    return none;
  };
  store(0, whole);
  if (columns.size() > whole)
    when(isBelow(emitter.i64(space.dims[space.laneDim] % space.lanes)), {}, [&] { return store(whole, 1); });
  emitter.reducedDims = reducedDims;
  emitter.rowValues.clear();
}

} // namespace tcc::codegen
