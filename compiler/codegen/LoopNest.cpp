//===- LoopNest.cpp - the loops of a fused region -------------------------===//
//
// Units and levels, the loops over lanes and reduced dimensions, and how a reduction ends.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"
#include "compiler/codegen/RowGuard.h"
#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

Nest::Nest(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter, ArrayRef<Memory> outputs,
           Value thread)
    : fused(fused), space(space), emitter(emitter), outputs(outputs), thread(thread), guard(rowGuardOf(fused, space)) {
  if (space.rowWarps == 1)
    return;
  this->thread = arith::RemUIOp::create(emitter.builder, emitter.loc, thread, emitter.i64(space.lanes));
  rowWarp = arith::DivUIOp::create(emitter.builder, emitter.loc, thread, emitter.i64(space.lanes));
}

void Nest::emitTile(Value tile) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  if (space.unitsPerTile == 1)
    return emitUnit(tile);
  Value first = arith::MulIOp::create(b, loc, tile, emitter.i64(space.unitsPerTile));
  Value last = arith::AddIOp::create(b, loc, first, emitter.i64(space.unitsPerTile));
  const bool whole = space.units % space.unitsPerTile == 0;
  if (!whole)
    last = arith::MinSIOp::create(b, loc, last, emitter.i64(space.units));
  const int64_t together = rowsTogether();
  if (together > 1) {
    Value count = arith::SubIOp::create(b, loc, last, first);
    Value odd = arith::RemUIOp::create(b, loc, count, emitter.i64(together));
    Value end = arith::SubIOp::create(b, loc, last, odd);
    emitter.loop(first, end, together, {}, [&](Value unit, ValueRange) {
      emitUnits(unit, together);
      return SmallVector<Value>();
    });
    if (whole && space.unitsPerTile % together == 0)
      return;
    first = end;
  }
  emitter.loop(first, last, 1, {}, [&](Value unit, ValueRange) {
    emitUnit(unit);
    return SmallVector<Value>();
  });
}

int64_t Nest::rowsTogether() {
  constexpr int64_t kLoads = 16; // in flight for all rows together
  if (!space.lanesReduced() || space.lanes != space.groupLanes || !isStraight())
    return 1;
  const int64_t loads = llvm::divideCeil(space.dims[space.laneDim], space.lanes) * std::max<int64_t>(1, fullOperands());
  return std::clamp<int64_t>(kLoads / loads, 1, space.unitsPerTile);
}

void Nest::emitUnits(Value first, int64_t count) {
  SmallVector<SmallVector<Coord>> rows;
  for (int64_t i = 0; i < count; ++i) {
    placeUnit(arith::AddIOp::create(emitter.builder, emitter.loc, first, emitter.i64(i)));
    rows.push_back(coords);
  }
  emitRows(rows);
}

void Nest::emitUnit(Value unit) {
  Value start = placeUnit(unit);
  emitter.rowValues.clear();
  if (thread && space.lanes == 1)
    ifOnFirstThread([&] { emitLevels(start); }); // one element in all
  else
    emitLevels(start);
}

Value Nest::placeUnit(Value unit) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  unsigned rank = space.dims.size();
  coords.assign(rank, emitter.uniform(int64_t(0)));
  Value rest = unit, block;
  if (int64_t blocks = space.laneBlocks(); blocks > 1) {
    block = arith::RemUIOp::create(b, loc, rest, emitter.i64(blocks));
    rest = arith::DivUIOp::create(b, loc, rest, emitter.i64(blocks));
  }
  int first = -1;
  for (unsigned dim = 0; dim < rank; ++dim)
    if (space.isParallel(dim) && space.dims[dim] != 1) {
      first = dim;
      break;
    }
  for (int dim = int(rank) - 1; dim >= 0; --dim) {
    if (!space.isParallel(unsigned(dim)) || space.dims[dim] == 1)
      continue;
    if (dim == first) {
      coords[dim] = emitter.uniform(rest);
      break;
    }
    coords[dim] = emitter.uniform(arith::RemUIOp::create(b, loc, rest, emitter.i64(space.dims[dim])).getResult());
    rest = arith::DivUIOp::create(b, loc, rest, emitter.i64(space.dims[dim]));
  }
  return block ? arith::MulIOp::create(b, loc, block, emitter.i64(space.laneBlock)).getResult() : emitter.i64(0);
}

void Nest::emitLevels(Value start) {
  if (space.levels.empty())
    emitElementwise(start);
  else if (space.walks())
    emitWalk();
  else if (space.lanesReduced())
    guard ? emitGuardedRow() : (void)emitRows({coords});
  else if (space.sumsInMemory())
    emitLaneBlock(start);
  else
    emitLaneParallel(start);
}

Coord Nest::lanesAt(Value position) {
  if (thread && space.lanes > 1)
    return Coord{arith::AddIOp::create(emitter.builder, emitter.loc, position, thread), 0, nullptr};
  return Coord{position, space.lanes == 1 ? 0 : 1, nullptr};
}

SmallVector<Value> Nest::when(Value condition, ValueRange values, function_ref<SmallVector<Value>()> body) {
  OpBuilder &b = emitter.builder;
  auto branch = scf::IfOp::create(b, emitter.loc, values.getTypes(), condition, /*addThenBlock=*/true,
                                  /*addElseBlock=*/!values.empty());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> next;
  emitter.withLanes(1, nullptr, [&] { next = body(); });
  scf::YieldOp::create(b, emitter.loc, next);
  if (!values.empty()) {
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, emitter.loc, values);
  }
  return SmallVector<Value>(branch.getResults());
}

void Nest::ifOnFirstThread(function_ref<void()> body) {
  Value first = arith::CmpIOp::create(emitter.builder, emitter.loc, arith::CmpIPredicate::eq, thread, emitter.i64(0));
  when(first, {}, [&] {
    body();
    return SmallVector<Value>();
  });
}

Value Nest::isBelow(Value count) {
  return arith::CmpIOp::create(emitter.builder, emitter.loc, arith::CmpIPredicate::slt, thread, count);
}

void Nest::overLanes(Value start, SmallVector<Value> &carried,
                     function_ref<SmallVector<Value>(ValueRange carried, Value mask)> body) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  int64_t extent = space.dims[space.laneDim], lanes = space.lanes;
  auto at = [&](Value position, ValueRange values, Value mask) {
    SmallVector<Value> next;
    emitter.withLanes(valueLanes(), mask, [&] {
      coords[space.laneDim] = lanesAt(position);
      next = body(values, mask);
    });
    return next;
  };
  if (lanes == 1) {
    carried = at(start, carried, nullptr);
    return;
  }
  int64_t block = space.laneBlock, tail = extent % lanes;
  bool single = space.laneBlocks() == 1;
  Value end, mainEnd;
  if (single) {
    end = emitter.i64(extent);
    mainEnd = emitter.i64(extent - tail);
  } else {
    end = arith::MinSIOp::create(b, loc, arith::AddIOp::create(b, loc, start, emitter.i64(block)), emitter.i64(extent));
    Value length = arith::SubIOp::create(b, loc, end, start);
    Value odd = arith::RemUIOp::create(b, loc, length, emitter.i64(lanes));
    mainEnd = arith::SubIOp::create(b, loc, end, odd);
  }
  auto from = [&](Value first, Value last, SmallVector<Value> values) {
    return emitter.loop(first, last, lanes, values,
                        [&](Value position, ValueRange now) { return at(position, now, nullptr); });
  };
  if (!single)
    carried = from(start, mainEnd, carried);
  else if (extent >= lanes)
    carried = inRuns(extent / lanes, kLongestRun, carried, [&](Value first, Value last, SmallVector<Value> values) {
      return from(times(first, lanes), times(last, lanes), values);
    });
  if (!tail)
    return;
  auto emitTail = [&](ValueRange values) {
    SmallVector<Value> next;
    if (thread) {
      Value count = single ? emitter.i64(tail) : arith::SubIOp::create(b, loc, end, mainEnd).getResult();
      return when(isBelow(count), values, [&] { return at(mainEnd, values, nullptr); });
    }
    emitter.withLanes(lanes, nullptr, [&] {
      Value mask =
          emitter.laneMask(single ? emitter.i64(tail) : arith::SubIOp::create(b, loc, end, mainEnd).getResult());
      next = at(mainEnd, values, mask);
    });
    return next;
  };
  if (single) {
    carried = emitTail(carried);
    return;
  }
  // Only the last block has a tail; no reduction runs over blocks.
  if (thread) {
    emitTail({});
    return;
  }
  Value hasTail = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, mainEnd, end);
  auto branch = scf::IfOp::create(b, loc, hasTail, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emitTail({});
}

Nest::Elements Nest::computeOutputs(function_ref<bool(unsigned)> wanted) {
  Elements elements;
  for (auto [index, value] : llvm::enumerate(yielded()))
    if (wanted(index)) {
      Type element = cast<RankedTensorType>(value.getType()).getElementType();
      elements.push_back(
          {unsigned(index), isEmptyRow ? emitter.constant(element, 0) : emitter.get(value, coordsFor(value))});
    }
  return elements;
}

void Nest::storeOutputs(function_ref<bool(unsigned)> wanted) {
  for (auto [index, element] : computeOutputs(wanted))
    emitter.store(outputs[index], coordsFor(yielded()[index]), element);
}

SmallVector<Coord> Nest::coordsFor(Value value) {
  size_t rank = cast<RankedTensorType>(value.getType()).getRank();
  return rank == coords.size() ? coords : SmallVector<Coord>();
}

OperandRange Nest::yielded() { return cast<train::YieldOp>(fused.getBody().front().getTerminator()).getValues(); }

bool Nest::isRow(unsigned output) {
  return space.isRowShape(cast<RankedTensorType>(yielded()[output].getType()).getShape()) && !isFull(output);
}

bool Nest::isFull(unsigned output) {
  return cast<RankedTensorType>(yielded()[output].getType()).getShape() == ArrayRef<int64_t>(space.dims) &&
         !isColumn(output);
}

bool Nest::isColumn(unsigned output) { return space.isOfColumns(yielded()[output]); }

void Nest::emitElementwiseLoop(Value start) {
  SmallVector<Value> none;
  overLanes(start, none, [&](ValueRange, Value) {
    storeOutputs([](unsigned) { return true; });
    return SmallVector<Value>();
  });
}

Value Nest::times(Value x, int64_t y) { return arith::MulIOp::create(emitter.builder, emitter.loc, x, emitter.i64(y)); }

SmallVector<Value> Nest::inRuns(int64_t count, int64_t run, SmallVector<Value> carried, Range range) {
  if (count <= run || current.empty())
    return range(emitter.i64(0), emitter.i64(count), carried);
  auto runs = [&](Value firstRun, Value lastRun, SmallVector<Value> values) {
    return emitter.loop(firstRun, lastRun, 1, values, [&](Value number, ValueRange now) {
      OpBuilder &b = emitter.builder;
      Value first = times(number, run), last = arith::AddIOp::create(b, emitter.loc, first, emitter.i64(run));
      if (count % run)
        last = arith::MinSIOp::create(b, emitter.loc, last, emitter.i64(count));
      if (!blockSums)
        return combined(now, range(first, last, identities(current, now.size() / current.size())));
      blockSums->begin();
      range(first, last, {});
      blockSums->end();
      return SmallVector<Value>();
    });
  };
  return inRuns((count + run - 1) / run, kLongestRun, carried, runs);
}

SmallVector<Value> Nest::overDims(unsigned dim, ArrayRef<bool> looped, SmallVector<Value> carried,
                                  function_ref<SmallVector<Value>(SmallVector<Value>)> body) {
  auto isLooped = [&](unsigned d) { return looped[d] && d != space.laneDim && space.dims[d] != 1; };
  while (dim < space.dims.size() && !isLooped(dim))
    ++dim;
  if (dim == space.dims.size())
    return body(carried);
  // Number of vectors that one iteration adds.
  int64_t inside = looped[space.laneDim] ? (space.dims[space.laneDim] + space.lanes - 1) / space.lanes : 1;
  for (unsigned inner = dim + 1; inner < space.dims.size(); ++inner)
    if (isLooped(inner))
      inside *= space.dims[inner];
  int64_t run = std::max<int64_t>(1, kLongestRun / inside);
  bool jumps = inside == 1 && !space.lanesReduced() && !blockSums && space.laneBlocks() > 1;
  if (inside == 1 && rowsOfLoop > 1) {
    const int64_t rows = space.dims[dim] / space.rowWarps;
    Value before = rowWarp ? times(rowWarp, rows) : Value();
    auto from = [&](Value row) -> Value {
      return before ? arith::AddIOp::create(emitter.builder, emitter.loc, before, row) : row;
    };
    return inRuns(rows, run, carried, [&](Value first, Value last, SmallVector<Value> values) {
      return overRows(dim, from(first), from(last), values, body);
    });
  }
  return inRuns(space.dims[dim], run, carried, [&](Value first, Value last, SmallVector<Value> values) {
    return emitter.loop(first, last, 1, values, [&](Value i, ValueRange now) {
      coords[dim] = emitter.uniform(i);
      emitter.jumpingCounter = jumps ? i : Value();
      SmallVector<Value> next = overDims(dim + 1, looped, SmallVector<Value>(now), body);
      emitter.jumpingCounter = Value();
      coords[dim] = emitter.uniform(int64_t(0));
      return next;
    });
  });
}

SmallVector<Value> Nest::identities(ArrayRef<Operation *> reductions, size_t count) {
  SmallVector<Value> values;
  emitter.withLanes(valueLanes(), nullptr, [&] {
    for (size_t i = 0; i < count; ++i)
      for (Operation *op : reductions)
        values.push_back(emitter.splat(cast<train::Reducible>(op).emitIdentity(emitter)));
  });
  return values;
}

SmallVector<Value> Nest::accumulate(ArrayRef<Operation *> reductions, ValueRange carried, Value mask) {
  SmallVector<Value> next;
  for (auto [op, sum] : llvm::zip(reductions, carried)) {
    auto reducible = cast<train::Reducible>(op);
    Value element = emitter.get(op->getOperand(0), coordsFor(op->getOperand(0)));
    if (mask)
      element = arith::SelectOp::create(emitter.builder, emitter.loc, mask, element,
                                        emitter.splat(reducible.emitIdentity(emitter)));
    next.push_back(reducible.emitCombine(emitter, sum, element));
  }
  return next;
}

SmallVector<Value> Nest::combined(ValueRange sums, ArrayRef<Value> more) {
  SmallVector<Value> next;
  emitter.withLanes(valueLanes(), nullptr, [&] {
    for (auto [i, left, right] : llvm::enumerate(sums, more))
      next.push_back(cast<train::Reducible>(current[i % current.size()]).emitCombine(emitter, left, right));
  });
  return next;
}

void Nest::combineThreads(Operation *op, MutableArrayRef<Value> values) {
  OpBuilder &b = emitter.builder;
  for (int64_t half = std::min(space.lanes, space.groupLanes) / 2; half >= 1; half /= 2)
    for (Value &value : values)
      value = cast<train::Reducible>(op).emitCombine(emitter, value, shuffleDown(b, emitter.loc, value, half));
  for (Value &value : values)
    value = space.lanes > space.groupLanes ? combineWarps(op, value) : shuffleFromFirst(b, emitter.loc, value);
}

Value Nest::combineLanes(Operation *op, Value vector) {
  OpBuilder &b = emitter.builder;
  for (int64_t half = space.lanes / 2; half >= 1; half /= 2) {
    SmallVector<int32_t> low(half), high(half);
    for (int32_t lane = 0; lane < half; ++lane) {
      low[lane] = lane;
      high[lane] = lane + half;
    }
    Value left = LLVM::ShuffleVectorOp::create(b, emitter.loc, vector, vector, low);
    Value right = LLVM::ShuffleVectorOp::create(b, emitter.loc, vector, vector, high);
    emitter.withLanes(half, nullptr, [&] {
      if (half == 1) {
        left = LLVM::ExtractElementOp::create(b, emitter.loc, left, emitter.i64(0));
        right = LLVM::ExtractElementOp::create(b, emitter.loc, right, emitter.i64(0));
      }
      vector = cast<train::Reducible>(op).emitCombine(emitter, left, right);
    });
  }
  return vector;
}

Value Nest::combineWarps(Operation *op, Value value) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  Type type = value.getType();
  Value memory = sharedMemory(b, loc, space.lanes / space.groupLanes * kScalarBytes);
  auto at = [&](Value number) -> Value {
    return LLVM::GEPOp::create(b, loc, memory.getType(), type, memory, ValueRange{number});
  };
  Value lane = arith::RemUIOp::create(b, loc, thread, emitter.i64(space.groupLanes));
  when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, emitter.i64(0)), {}, [&] {
    LLVM::StoreOp::create(b, loc, value, at(arith::DivUIOp::create(b, loc, thread, emitter.i64(space.groupLanes))));
    return SmallVector<Value>();
  });
  return combineShared(op, type, space.lanes / space.groupLanes, at);
}

Value Nest::combineShared(Operation *op, Type type, int64_t warps, function_ref<Value(Value)> at) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  meetBlock(b, loc);
  Value sum;
  for (int64_t warp = 0; warp < warps; ++warp) {
    Value next = LLVM::LoadOp::create(b, loc, type, at(emitter.i64(warp)));
    sum = sum ? cast<train::Reducible>(op).emitCombine(emitter, sum, next) : next;
  }
  meetBlock(b, loc); // before the next value is written there
  return sum;
}

void Nest::setRow(Operation *op, Value value) {
  Type element = cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
  emitter.rowValues[op] = emitter.rounded(value, element);
}

bool Nest::outputInLevel(unsigned output, unsigned level) {
  if (!isFull(output))
    return false;
  unsigned needed = space.levelOf(yielded()[output]);
  return needed == level;
}

bool Nest::storesInLevel(unsigned level) {
  return llvm::any_of(llvm::seq<unsigned>(yielded().size()),
                      [&](unsigned output) { return outputInLevel(output, level); });
}

SmallVector<Value> Nest::walkRow(unsigned level, ArrayRef<Operation *> reductions) {
  current = reductions;
  SmallVector<Value> sums = overReduced(identities(reductions), [&](SmallVector<Value> values) {
    auto add = [&](ValueRange now, Value mask) { return accumulate(reductions, now, mask); };
    auto stored = [&](unsigned output) { return outputInLevel(output, level); };
    if (thread && space.lanes > 1)
      overThreadRow(values, add, stored);
    else
      overLanes(emitter.i64(0), values, [&](ValueRange now, Value mask) {
        SmallVector<Value> next = add(now, mask);
        storeOutputs(stored);
        return next;
      });
    return values;
  });
  coords[space.laneDim] = emitter.uniform(int64_t(0));
  return sums;
}

SmallVector<Value> Nest::emitRows(ArrayRef<SmallVector<Coord>> places, SmallVector<Value> columnSums) {
  struct Row {
    SmallVector<Coord> coords;
    llvm::DenseMap<Operation *, Value> values{};
    SmallVector<Value> sums{};
  };
  SmallVector<Row> rows;
  for (const SmallVector<Coord> &place : places)
    rows.push_back(Row{place});
  auto forEach = [&](function_ref<void(Row &)> body) {
    for (Row &row : rows) {
      coords = row.coords;
      emitter.rowCoords.assign(coords.begin(), coords.end());
      emitter.rowValues = row.values;
      body(row);
      row.values = emitter.rowValues;
    }
  };
  for (unsigned level = 0; level <= space.levels.size(); ++level) {
    bool last = level == space.levels.size();
    ArrayRef<Operation *> reductions = last ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
    if (last && space.walks())
      forEach([&](Row &) { columnSums = sumColumns(level, std::move(columnSums)); });
    if (last && (space.walks() || !storesInLevel(level)))
      continue;
    forEach([&](Row &row) { row.sums = walkRow(level, reductions); });
    for (auto [number, op] : llvm::enumerate(reductions)) {
      SmallVector<Value> sums;
      for (Row &row : rows)
        sums.push_back(row.sums[number]);
      if (thread && space.lanes > 1)
        combineThreads(op, sums);
      else if (space.lanes > 1)
        sums.front() = combineLanes(op, sums.front());
      for (auto [row, sum] : llvm::zip_equal(rows, sums))
        row.sums[number] = sum;
    }
    forEach([&](Row &row) {
      for (auto [op, sum] : llvm::zip_equal(reductions, row.sums))
        setRow(op, sum);
    });
  }
  onRowThread([&] { forEach([&](Row &) { storeOutputs([&](unsigned output) { return isRow(output); }); }); });
  return columnSums;
}

void Nest::onRowThread(function_ref<void()> body) {
  if (!thread || space.lanes == 1)
    emitter.withLanes(1, nullptr, body);
  else if (llvm::any_of(llvm::seq<unsigned>(yielded().size()), [&](unsigned output) { return isRow(output); }))
    ifOnFirstThread(body);
}

void Nest::emitGuardedRow() {
  OpBuilder &b = emitter.builder;
  const SmallVector<Coord> row = coords;
  Value counts;
  emitter.withLanes(1, nullptr, [&] { counts = emitter.get(guard, row); });
  when(counts, {}, [&] {
    emitRows({row});
    return SmallVector<Value>();
  });
  emitter.rowValues.clear();
  coords = row;
  Value yes = arith::ConstantOp::create(b, emitter.loc, b.getBoolAttr(true));
  when(arith::XOrIOp::create(b, emitter.loc, counts, yes), {}, [&] {
    isEmptyRow = true;
    current = {};
    overReduced({}, [&](SmallVector<Value> none) {
      overLanes(emitter.i64(0), none, [&](ValueRange, Value) {
        storeOutputs([&](unsigned output) { return isFull(output); });
        return SmallVector<Value>();
      });
      return none;
    });
    coords[space.laneDim] = emitter.uniform(int64_t(0));
    onRowThread([&] { storeOutputs([&](unsigned output) { return isRow(output); }); });
    isEmptyRow = false;
    return SmallVector<Value>();
  });
}

void emitTile(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter, ArrayRef<Memory> outputs,
              Value tile, Value thread) {
  Nest(fused, space, emitter, outputs, thread).emitTile(tile);
}

} // namespace tcc::codegen
