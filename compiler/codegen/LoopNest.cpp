//===- LoopNest.cpp - the loops of a fused region -------------------------===//
#include "compiler/codegen/LoopNest.h"

#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// Vectors that a reduction adds up one after another before it starts anew: a few in a hundred more work, and the sum
/// of ten million elements is 300 additions deep instead of 300,000.
constexpr int64_t kLongestRun = 128;

constexpr int64_t kWarp = 32; ///< threads

/// Rounds of a warp that are written one after another, without a loop: a thread's loads are then in flight together,
/// and a row that several levels walk stays in registers. No more than registers hold: elements of a row, and
/// operations.
constexpr int64_t kStraightRounds = 32, kStraightLoads = 96, kStraightOperations = 4096;

/// Elements that one round of a thread's loop has in flight, and rows of its columns.
constexpr int64_t kLoadsInFlight = 32, kRowsInFlight = 8;

/// Emits the loops of one kernel. A warp's nest is that of vectors, with code for one thread: positions of the lanes
/// are the thread's own, a masked tail is a branch, and the end of a reduction goes through shuffles; in a block of
/// several warps, then through shared memory.
class Nest {
public:
  Nest(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter, ArrayRef<Memory> outputs,
       Value thread)
      : fused(fused), space(space), emitter(emitter), outputs(outputs), thread(thread) {}

  void emitTile(Value tile) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    if (space.unitsPerTile == 1)
      return emitUnit(tile);
    Value first = arith::MulIOp::create(b, loc, tile, emitter.i64(space.unitsPerTile));
    Value last = arith::AddIOp::create(b, loc, first, emitter.i64(space.unitsPerTile));
    if (space.units % space.unitsPerTile)
      last = arith::MinSIOp::create(b, loc, last, emitter.i64(space.units));
    emitter.loop(first, last, 1, {}, [&](Value unit, ValueRange) {
      emitUnit(unit);
      return SmallVector<Value>();
    });
  }

private:
  void emitUnit(Value unit) {
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
      if (!space.reduced[dim] && dim != space.laneDim && space.dims[dim] != 1) {
        first = dim;
        break;
      }
    for (int dim = int(rank) - 1; dim >= 0; --dim) {
      if (space.reduced[dim] || unsigned(dim) == space.laneDim || space.dims[dim] == 1)
        continue;
      if (dim == first) {
        coords[dim] = emitter.uniform(rest);
        break;
      }
      coords[dim] = emitter.uniform(arith::RemUIOp::create(b, loc, rest, emitter.i64(space.dims[dim])).getResult());
      rest = arith::DivUIOp::create(b, loc, rest, emitter.i64(space.dims[dim]));
    }
    Value start =
        block ? arith::MulIOp::create(b, loc, block, emitter.i64(space.laneBlock)).getResult() : emitter.i64(0);
    emitter.rowValues.clear();
    if (thread && space.lanes == 1)
      ifOnFirstThread([&] { emitLevels(start); }); // one element in all
    else
      emitLevels(start);
  }

  void emitLevels(Value start) {
    if (space.levels.empty())
      emitElementwise(start);
    else if (space.lanesReduced())
      emitRow();
    else if (space.sumsInMemory())
      emitLaneBlock(start);
    else
      emitLaneParallel(start);
  }

  /// Lanes of the values that this code computes with.
  int64_t valueLanes() const { return thread ? 1 : space.lanes; }

  /// The coordinate of the lanes from `position` on.
  Coord lanesAt(Value position) {
    if (thread && space.lanes > 1)
      return Coord{arith::AddIOp::create(emitter.builder, emitter.loc, position, thread), 0, nullptr};
    return Coord{position, space.lanes == 1 ? 0 : 1, nullptr};
  }

  /// Runs `body` where `condition` holds, of a warp's threads; carries `values` through it.
  SmallVector<Value> when(Value condition, ValueRange values, function_ref<SmallVector<Value>()> body) {
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
  void ifOnFirstThread(function_ref<void()> body) {
    Value first = arith::CmpIOp::create(emitter.builder, emitter.loc, arith::CmpIPredicate::eq, thread, emitter.i64(0));
    when(first, {}, [&] {
      body();
      return SmallVector<Value>();
    });
  }
  /// i1: is this thread's lane among the first `count`?
  Value isBelow(Value count) {
    return arith::CmpIOp::create(emitter.builder, emitter.loc, arith::CmpIPredicate::slt, thread, count);
  }

  /// Calls `body` for the lanes from `start` on; a block ends at min(start + laneBlock, extent).
  void overLanes(Value start, SmallVector<Value> &carried,
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
      end =
          arith::MinSIOp::create(b, loc, arith::AddIOp::create(b, loc, start, emitter.i64(block)), emitter.i64(extent));
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

  /// Does a thread's part of a row, over which nothing else is looped, fit into registers?
  bool isStraight() {
    if (!thread || space.laneBlocks() != 1)
      return false;
    for (auto [dim, extent] : llvm::enumerate(space.dims))
      if (space.reduced[dim] && dim != space.laneDim && extent != 1)
        return false;
    int64_t rounds = space.dims[space.laneDim] / space.lanes, operations = 0, loads = 0;
    for (Operation &op : fused.getBody().front())
      operations += int64_t(op.getNumResults());
    loads = fullOperands();
    return rounds <= kStraightRounds && rounds * loads <= kStraightLoads && rounds * operations <= kStraightOperations;
  }

  using Elements = SmallVector<std::pair<unsigned, Value>>;
  Elements computeOutputs(function_ref<bool(unsigned)> wanted) {
    Elements elements;
    for (auto [index, value] : llvm::enumerate(yielded()))
      if (wanted(index))
        elements.push_back({unsigned(index), emitter.get(value, coordsFor(value))});
    return elements;
  }
  /// All are computed before the first is stored: one may overwrite another's operand.
  void storeOutputs(function_ref<bool(unsigned)> wanted) {
    for (auto [index, element] : computeOutputs(wanted))
      emitter.store(outputs[index], coordsFor(yielded()[index]), element);
  }

  SmallVector<Coord> coordsFor(Value value) {
    size_t rank = cast<RankedTensorType>(value.getType()).getRank();
    return rank == coords.size() ? coords : SmallVector<Coord>();
  }

  OperandRange yielded() { return cast<train::YieldOp>(fused.getBody().front().getTerminator()).getValues(); }

  bool isRow(unsigned output) {
    return space.isRowShape(cast<RankedTensorType>(yielded()[output].getType()).getShape()) && !isFull(output);
  }
  bool isFull(unsigned output) {
    return cast<RankedTensorType>(yielded()[output].getType()).getShape() == ArrayRef<int64_t>(space.dims);
  }

  void emitElementwise(Value start) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    const int64_t block = space.laneBlock, extent = space.dims[space.laneDim];
    if (!thread || space.lanes == 1 || block % space.lanes || block / space.lanes > kStraightRounds)
      return emitElementwiseLoop(start);
    if (extent % block == 0)
      return emitStraight(start);
    // The last block of a row is shorter.
    Value end = arith::AddIOp::create(b, loc, start, emitter.i64(block));
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, emitter.i64(extent));
    auto branch = scf::IfOp::create(b, loc, whole, /*withElse=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    emitter.withLanes(1, nullptr, [&] { emitStraight(start); });
    b.setInsertionPointToStart(branch.elseBlock());
    emitter.withLanes(1, nullptr, [&] { emitElementwiseLoop(start); });
  }

  /// A whole block of a warp.
  void emitStraight(Value start) {
    SmallVector<Value> none;
    visit(
        positionsOf(start, space.laneBlock / space.lanes), none, [](ValueRange, Value) { return SmallVector<Value>(); },
        [](unsigned) { return true; });
  }

  using Add = function_ref<SmallVector<Value>(ValueRange carried, Value mask)>;
  using Wanted = function_ref<bool(unsigned output)>;

  /// Where this thread's elements are, of so many rounds of all lanes from `start` on.
  SmallVector<Value> positionsOf(Value start, int64_t rounds) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    int64_t together = space.neighbours;
    while (together > std::max<int64_t>(rounds, 1))
      together /= 2;
    SmallVector<Value> positions;
    Value own = arith::MulIOp::create(b, loc, thread, emitter.i64(together));
    for (int64_t round = 0; round + together <= rounds; round += together) {
      Value base = arith::AddIOp::create(b, loc, start, emitter.i64(round * space.lanes));
      base = arith::AddIOp::create(b, loc, base, own);
      for (int64_t i = 0; i < together; ++i)
        positions.push_back(arith::AddIOp::create(b, loc, base, emitter.i64(i)));
    }
    for (int64_t round = rounds / together * together; round < rounds; ++round) {
      Value base = arith::AddIOp::create(b, loc, start, emitter.i64(round * space.lanes));
      positions.push_back(arith::AddIOp::create(b, loc, base, thread));
    }
    return positions;
  }

  /// Adds a thread's elements at some places up, then stores what is wanted of each: everything is loaded before the
  /// first element is stored, so that loads are in flight together even where a result may overwrite an operand.
  void visitEach(size_t count, function_ref<void(size_t)> place, SmallVector<Value> &carried, Add add, Wanted stored) {
    emitter.withLanes(1, nullptr, [&] {
      for (size_t i = 0; i < count; ++i) {
        place(i);
        carried = add(carried, nullptr);
      }
      SmallVector<Elements> elements;
      for (size_t i = 0; i < count; ++i) {
        place(i);
        elements.push_back(computeOutputs(stored));
      }
      // One result after another: neighbours of one are stored together.
      const size_t results = count == 0 ? 0 : elements.front().size();
      for (size_t result = 0; result < results; ++result)
        for (size_t i = 0; i < count; ++i) {
          place(i);
          auto [index, element] = elements[i][result];
          emitter.store(outputs[index], coordsFor(yielded()[index]), element);
        }
    });
  }
  void visit(ArrayRef<Value> positions, SmallVector<Value> &carried, Add add, Wanted stored) {
    visitEach(
        positions.size(),
        [&](size_t i) {
          coords[space.laneDim] = Coord{positions[i], 0, nullptr};
        },
        carried, add, stored);
  }

  /// This thread's part of a row that all lanes reduce.
  void overThreadRow(SmallVector<Value> &carried, Add add, Wanted stored) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    const int64_t extent = space.dims[space.laneDim], rounds = extent / space.lanes, tail = extent % space.lanes;
    int64_t done = 0;
    if (isStraight()) {
      visit(positionsOf(emitter.i64(0), rounds), carried, add, stored);
      done = rounds;
    } else {
      const int64_t inFlight =
          std::clamp<int64_t>(kLoadsInFlight / std::max<int64_t>(1, fullOperands()), space.neighbours, kLoadsInFlight);
      const int64_t turns = rounds / inFlight, run = std::max<int64_t>(1, kLongestRun / inFlight);
      if (turns > 0)
        carried = inRuns(turns, run, carried, [&](Value first, Value last, SmallVector<Value> values) {
          return emitter.loop(first, last, 1, values, [&](Value turn, ValueRange now) {
            SmallVector<Value> next(now);
            visit(positionsOf(times(turn, inFlight * space.lanes), inFlight), next, add, stored);
            return next;
          });
        });
      done = turns * inFlight;
      if (done < rounds)
        visit(positionsOf(emitter.i64(done * space.lanes), rounds - done), carried, add, stored);
    }
    if (tail)
      carried = when(isBelow(emitter.i64(tail)), carried, [&] {
        SmallVector<Value> next = carried;
        Value position = arith::AddIOp::create(b, loc, emitter.i64(rounds * space.lanes), thread);
        visit({position}, next, add, stored);
        return next;
      });
  }

  /// Rows [first, last) of this thread's column, several in flight.
  SmallVector<Value> overRows(unsigned dim, Value first, Value last, SmallVector<Value> carried,
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
  SmallVector<Value> visitRows(SmallVector<Value> carried, Add add, Wanted stored) {
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

  /// Operands of which an element is read for each element of the space.
  int64_t fullOperands() const {
    return llvm::count_if(fused.getBody().front().getArguments(), [&](BlockArgument operand) {
      return cast<RankedTensorType>(operand.getType()).getShape() == ArrayRef<int64_t>(space.dims);
    });
  }

  void emitElementwiseLoop(Value start) {
    SmallVector<Value> none;
    overLanes(start, none, [&](ValueRange, Value) {
      storeOutputs([](unsigned) { return true; });
      return SmallVector<Value>();
    });
  }

  using Range = function_ref<SmallVector<Value>(Value first, Value last, SmallVector<Value> carried)>;

  Value times(Value x, int64_t y) { return arith::MulIOp::create(emitter.builder, emitter.loc, x, emitter.i64(y)); }

  /// Rounds [0, count) of a reduction's loop. `range` adds some of them to what it is given. More than `run` are cut
  /// into runs that start from nothing, whose results are combined, themselves in runs: cascade summation, whose error
  /// grows with the depth of this tree (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), not the count.
  SmallVector<Value> inRuns(int64_t count, int64_t run, SmallVector<Value> carried, Range range) {
    if (count <= run || current.empty())
      return range(emitter.i64(0), emitter.i64(count), carried);
    auto runs = [&](Value firstRun, Value lastRun, SmallVector<Value> values) {
      return emitter.loop(firstRun, lastRun, 1, values, [&](Value number, ValueRange now) {
        OpBuilder &b = emitter.builder;
        Value first = times(number, run), last = arith::AddIOp::create(b, emitter.loc, first, emitter.i64(run));
        if (count % run)
          last = arith::MinSIOp::create(b, emitter.loc, last, emitter.i64(count));
        if (!blockSums)
          return combined(now, range(first, last, identities(current)));
        blockSums->begin();
        range(first, last, {});
        blockSums->end();
        return SmallVector<Value>();
      });
    };
    return inRuns((count + run - 1) / run, kLongestRun, carried, runs);
  }

  /// Loops over the reduced dimensions other than the lanes, from `dim` on.
  SmallVector<Value> overReduced(unsigned dim, SmallVector<Value> carried,
                                 function_ref<SmallVector<Value>(SmallVector<Value>)> body) {
    auto isLooped = [&](unsigned d) { return space.reduced[d] && d != space.laneDim && space.dims[d] != 1; };
    while (dim < space.dims.size() && !isLooped(dim))
      ++dim;
    if (dim == space.dims.size())
      return body(carried);
    // Vectors that one round adds up.
    int64_t inside = space.lanesReduced() ? (space.dims[space.laneDim] + space.lanes - 1) / space.lanes : 1;
    for (unsigned inner = dim + 1; inner < space.dims.size(); ++inner)
      if (isLooped(inner))
        inside *= space.dims[inner];
    int64_t run = std::max<int64_t>(1, kLongestRun / inside);
    bool jumps = inside == 1 && !space.lanesReduced() && !blockSums && space.laneBlocks() > 1;
    if (inside == 1 && rowsOfLoop > 1)
      return inRuns(space.dims[dim], run, carried, [&](Value first, Value last, SmallVector<Value> values) {
        return overRows(dim, first, last, values, body);
      });
    return inRuns(space.dims[dim], run, carried, [&](Value first, Value last, SmallVector<Value> values) {
      return emitter.loop(first, last, 1, values, [&](Value i, ValueRange now) {
        coords[dim] = emitter.uniform(i);
        emitter.jumpingCounter = jumps ? i : Value();
        SmallVector<Value> next = overReduced(dim + 1, SmallVector<Value>(now), body);
        emitter.jumpingCounter = Value();
        coords[dim] = emitter.uniform(int64_t(0));
        return next;
      });
    });
  }

  /// The staged reductions of one level: identities to start from, for each column.
  SmallVector<Value> identities(ArrayRef<Operation *> reductions) {
    SmallVector<Value> values;
    emitter.withLanes(valueLanes(), nullptr, [&] {
      for (size_t i = 0; i < std::max<size_t>(1, columns.size()); ++i)
        for (Operation *op : reductions)
          values.push_back(emitter.splat(cast<train::Reducible>(op).emitIdentity(emitter)));
    });
    return values;
  }
  SmallVector<Value> accumulate(ArrayRef<Operation *> reductions, ValueRange carried, Value mask) {
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

  SmallVector<Value> combined(ValueRange sums, ArrayRef<Value> more) {
    SmallVector<Value> next;
    emitter.withLanes(valueLanes(), nullptr, [&] {
      for (auto [i, left, right] : llvm::enumerate(sums, more))
        next.push_back(cast<train::Reducible>(current[i % current.size()]).emitCombine(emitter, left, right));
    });
    return next;
  }

  /// Halves a vector until one element is left. In a warp the upper half's threads hand their values down, and the
  /// first thread's result to all: the same tree.
  Value combineLanes(Operation *op, Value vector) {
    OpBuilder &b = emitter.builder;
    if (thread) {
      Value value = vector;
      for (int64_t half = std::min(space.lanes, kWarp) / 2; half >= 1; half /= 2)
        value = cast<train::Reducible>(op).emitCombine(emitter, value, shuffleDown(b, emitter.loc, value, half));
      return space.lanes > kWarp ? combineWarps(op, value) : shuffleFromFirst(b, emitter.loc, value);
    }
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

  /// Combines the values of the first threads of a block's warps, in their order; every thread gets the result.
  Value combineWarps(Operation *op, Value value) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    Type type = value.getType();
    Value memory = sharedMemory(b, loc, space.lanes / kWarp);
    auto at = [&](Value number) -> Value {
      return LLVM::GEPOp::create(b, loc, memory.getType(), type, memory, ValueRange{number});
    };
    Value lane = arith::RemUIOp::create(b, loc, thread, emitter.i64(kWarp));
    when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, emitter.i64(0)), {}, [&] {
      LLVM::StoreOp::create(b, loc, value, at(arith::DivUIOp::create(b, loc, thread, emitter.i64(kWarp))));
      return SmallVector<Value>();
    });
    meetBlock(b, loc);
    Value sum;
    for (int64_t warp = 0; warp < space.lanes / kWarp; ++warp) {
      Value next = LLVM::LoadOp::create(b, loc, type, at(emitter.i64(warp)));
      sum = sum ? cast<train::Reducible>(op).emitCombine(emitter, sum, next) : next;
    }
    meetBlock(b, loc); // before the next reduction writes there
    return sum;
  }

  void setRow(Operation *op, Value value) {
    Type element = cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
    emitter.rowValues[op] = emitter.rounded(value, element);
  }

  bool outputInLevel(unsigned output, unsigned level) {
    if (!isFull(output))
      return false;
    unsigned needed = space.levelOf(yielded()[output]);
    return needed == level;
  }

  void emitRow() {
    emitter.rowCoords.assign(coords.begin(), coords.end());
    Value zero = emitter.i64(0);
    for (unsigned level = 0; level <= space.levels.size(); ++level) {
      bool last = level == space.levels.size();
      ArrayRef<Operation *> reductions = last ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
      bool stores = false;
      for (unsigned output = 0; output < yielded().size(); ++output)
        stores |= outputInLevel(output, level);
      if (!last || stores) {
        current = reductions;
        SmallVector<Value> carried = overReduced(0, identities(reductions), [&](SmallVector<Value> values) {
          auto add = [&](ValueRange now, Value mask) { return accumulate(reductions, now, mask); };
          auto stored = [&](unsigned output) { return outputInLevel(output, level); };
          if (thread && space.lanes > 1)
            overThreadRow(values, add, stored);
          else
            overLanes(zero, values, [&](ValueRange now, Value mask) {
              SmallVector<Value> next = add(now, mask);
              storeOutputs(stored);
              return next;
            });
          return values;
        });
        coords[space.laneDim] = emitter.uniform(int64_t(0));
        for (auto [op, value] : llvm::zip(reductions, carried))
          setRow(op, space.lanes == 1 ? value : combineLanes(op, value));
      }
    }
    bool hasRows = false;
    for (unsigned output = 0; output < yielded().size(); ++output)
      hasRows |= isRow(output);
    auto storeRows = [&] { storeOutputs([&](unsigned output) { return isRow(output); }); };
    if (!thread || space.lanes == 1)
      emitter.withLanes(1, nullptr, storeRows);
    else if (hasRows)
      ifOnFirstThread(storeRows);
  }

  void emitLaneParallel(Value start) {
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

  /// A vector of columns, or this thread's neighbours among those of the warp.
  void emitLaneColumns(Value start) {
    OpBuilder &b = emitter.builder;
    Location loc = emitter.loc;
    columns.assign(1, {lanesAt(start), {}});
    if (space.columns > 1) {
      columns.clear();
      Value own = arith::MulIOp::create(b, loc, thread, emitter.i64(space.columns));
      own = arith::AddIOp::create(b, loc, start, own);
      for (int64_t i = 0; i < space.columns; ++i)
        columns.push_back({Coord{arith::AddIOp::create(b, loc, own, emitter.i64(i)), 0, nullptr}, {}});
    }
    enterColumn(0);
    for (unsigned level = 0; level <= space.levels.size(); ++level) {
      bool last = level == space.levels.size();
      ArrayRef<Operation *> reductions = last ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
      bool stores = false;
      for (unsigned output = 0; output < yielded().size(); ++output)
        stores |= outputInLevel(output, level);
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
      // A thread's loop over rows has several of them in flight.
      rowsOfLoop = thread ? kRowsInFlight : 1;
      SmallVector<Value> carried =
          overReduced(0, identities(reductions), [&](SmallVector<Value> values) { return visitRows(values, add, stored); });
      rowsOfLoop = 1;
      for (size_t i = 0; i < columns.size(); ++i) {
        enterColumn(i);
        for (auto [op, value] : llvm::zip(reductions, ArrayRef(carried).slice(i * reductions.size(), reductions.size())))
          setRow(op, value);
        columns[i].rows = emitter.rowValues;
      }
    }
    SmallVector<Value> none;
    auto rowsOnly = [&](unsigned output) { return isRow(output); };
    if (columns.size() == 1)
      storeOutputs(rowsOnly);
    else
      visitEach(
          columns.size(), [&](size_t i) { enterColumn(i); }, none,
          [](ValueRange, Value) { return SmallVector<Value>(); }, rowsOnly);
  }
  void enterColumn(size_t number) {
    column = number;
    coords[space.laneDim] = columns[number].at;
    emitter.rowCoords.assign(coords.begin(), coords.end());
    emitter.rowValues = columns[number].rows;
  }

  /// The sums of a block of lanes, one vector after another, on the worker's stack. Runs of a reduction that are to be
  /// combined have sums of their own, one level deeper.
  class BlockSums {
  public:
    BlockSums(Nest &nest, Value start) : nest(nest), start(start) {}

    /// The sums of `nest.current` start from nothing, a level deeper than they were.
    void begin() {
      ++depth;
      nest.eachVector(start, [&] {
        for (auto [op, value] : llvm::zip_equal(nest.current, nest.identities(nest.current)))
          save(op, value);
      });
    }
    /// The deepest sums are combined with those before them.
    void end() {
      nest.eachVector(start, [&] {
        SmallVector<Value> deeper = loadAll();
        --depth;
        saveAll(nest.combined(loadAll(), deeper));
        ++depth;
      });
      --depth;
    }
    void finish() { --depth; }
    SmallVector<Value> loadAll() {
      return llvm::map_to_vector(nest.current, [&](Operation *op) { return load({op, depth}); });
    }
    void saveAll(ArrayRef<Value> values) {
      for (auto [op, value] : llvm::zip_equal(nest.current, values))
        save(op, value);
    }
    /// The result of a level that is done.
    Value result(Operation *op) { return load({op, 0}); }

  private:
    using Key = std::pair<Operation *, int>;
    static constexpr unsigned kAlignment = 64;

    void save(Operation *op, Value sum) {
      Value &memory = memories[{op, depth}];
      if (!memory)
        memory = allocate(sum.getType());
      types[op] = sum.getType();
      LLVM::StoreOp::create(nest.emitter.builder, nest.emitter.loc, sum, address({op, depth}), kAlignment);
    }
    Value load(Key key) {
      return LLVM::LoadOp::create(nest.emitter.builder, nest.emitter.loc, types.lookup(key.first), address(key),
                                  kAlignment);
    }
    Value allocate(Type vector) {
      OpBuilder &b = nest.emitter.builder;
      OpBuilder::InsertionGuard guard(b);
      Operation *parent = b.getInsertionBlock()->getParentOp();
      auto function = dyn_cast<LLVM::LLVMFuncOp>(parent);
      if (!function)
        function = parent->getParentOfType<LLVM::LLVMFuncOp>();
      b.setInsertionPointToStart(&function.getBody().front());
      Value count = nest.emitter.i64(nest.space.laneBlock);
      return LLVM::AllocaOp::create(b, nest.emitter.loc, LLVM::LLVMPointerType::get(b.getContext()),
                                    getElementTypeOrSelf(vector), count, kAlignment);
    }
    Value address(Key key) {
      OpBuilder &b = nest.emitter.builder;
      Value at = arith::SubIOp::create(b, nest.emitter.loc, nest.coords[nest.space.laneDim].base, start);
      return LLVM::GEPOp::create(b, nest.emitter.loc, LLVM::LLVMPointerType::get(b.getContext()),
                                 getElementTypeOrSelf(types.lookup(key.first)), memories.lookup(key), ValueRange{at});
    }

    Nest &nest;
    Value start;
    int depth = -1;
    llvm::DenseMap<Key, Value> memories;
    llvm::DenseMap<Operation *, Type> types;
  };

  /// Runs `body` for each vector of the block, with the sums of the levels that are done.
  void eachVector(Value start, function_ref<void()> body) {
    SmallVector<Value> none;
    overLanes(start, none, [&](ValueRange, Value) {
      emitter.rowCoords.assign(coords.begin(), coords.end());
      emitter.rowValues.clear();
      for (unsigned level = 0; level < levelsDone; ++level)
        for (Operation *op : space.levels[level])
          setRow(op, blockSums->result(op));
      body();
      return SmallVector<Value>();
    });
  }

  void emitLaneBlock(Value start) {
    BlockSums sums(*this, start);
    blockSums = &sums;
    for (levelsDone = 0; levelsDone <= space.levels.size(); ++levelsDone) {
      unsigned level = levelsDone;
      current = level == space.levels.size() ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
      bool stores = false;
      for (unsigned output = 0; output < yielded().size(); ++output)
        stores |= outputInLevel(output, level);
      if (current.empty() && !stores)
        continue;
      sums.begin();
      overReduced(0, {}, [&](SmallVector<Value> none) {
        eachVector(start, [&] {
          sums.saveAll(accumulate(current, sums.loadAll(), nullptr));
          storeOutputs([&](unsigned output) { return outputInLevel(output, level); });
        });
        return none;
      });
      sums.finish();
    }
    levelsDone = unsigned(space.levels.size());
    eachVector(start, [&] { storeOutputs([&](unsigned output) { return isRow(output); }); });
    emitter.rowValues.clear();
    blockSums = nullptr;
  }

  mutable train::FusedOp fused; ///< a handle
  const IterationSpace &space;
  ElementEmitter &emitter;
  ArrayRef<Memory> outputs;
  Value thread; ///< this thread's number in its warp or block (i64); null where lanes are those of vectors
  SmallVector<Coord> coords;
  ArrayRef<Operation *> current;  ///< the reductions whose level is walked
  BlockSums *blockSums = nullptr; ///< where they are, if not in registers
  unsigned levelsDone = 0;        ///< with sums in memory
  struct Column {
    Coord at;
    llvm::DenseMap<Operation *, Value> rows; ///< results of the levels that are done
  };
  SmallVector<Column> columns; ///< that this code sums up, lanes of vectors or a thread's
  size_t column = 0;           ///< the one that is computed
  int64_t rowsOfLoop = 1;      ///< that a round of the innermost loop over rows takes
  SmallVector<Value> rowsAt;   ///< those of this round, along rowsDim
  unsigned rowsDim = 0;
};

} // namespace

void emitTile(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter, ArrayRef<Memory> outputs,
              Value tile, Value thread) {
  Nest(fused, space, emitter, outputs, thread).emitTile(tile);
}

} // namespace tcc::codegen
