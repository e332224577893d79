//===- NestThreads.cpp - the elements of a warp's thread ------------------===//
#include "compiler/codegen/Nest.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// Limits of fully unrolled rounds of a warp: a thread's loads are then in flight together, and a row that several
/// levels read stays in registers. The second and third limit loads and operations by the number of registers.
constexpr int64_t kStraightRounds = 32, kStraightLoads = 96, kStraightOperations = 4096;

/// Elements in flight in one iteration of a thread's loop.
constexpr int64_t kLoadsInFlight = 32;

} // namespace

bool Nest::isStraight() {
  if (!thread || space.laneBlocks() != 1)
    return false;
  if (space.walks())
    return true; // few elements, since the sums of their columns are in registers, too
  for (auto [dim, extent] : llvm::enumerate(space.dims))
    if (space.reduced[dim] && dim != space.laneDim && extent != 1)
      return false;
  int64_t rounds = space.dims[space.laneDim] / space.lanes, operations = 0, loads = 0;
  for (Operation &op : fused.getBody().front())
    operations += int64_t(op.getNumResults());
  loads = fullOperands();
  return rounds <= kStraightRounds && rounds * loads <= kStraightLoads && rounds * operations <= kStraightOperations;
}

int64_t Nest::fullOperands() const {
  return llvm::count_if(fused.getBody().front().getArguments(), [&](BlockArgument operand) {
    return cast<RankedTensorType>(operand.getType()).getShape() == ArrayRef<int64_t>(space.dims);
  });
}

void Nest::emitElementwise(Value start) {
  OpBuilder &b = emitter.builder;
  Location loc = emitter.loc;
  const int64_t block = space.laneBlock, extent = space.dims[space.laneDim];
  if (!thread || space.lanes == 1 || block % space.lanes || block / space.lanes > kStraightRounds)
    return emitElementwiseLoop(start);
  if (extent % block == 0)
    return emitStraight(start);
  // The last block of a row may be shorter.
  Value end = arith::AddIOp::create(b, loc, start, emitter.i64(block));
  Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, emitter.i64(extent));
  auto branch = scf::IfOp::create(b, loc, whole, /*withElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emitter.withLanes(1, nullptr, [&] { emitStraight(start); });
  b.setInsertionPointToStart(branch.elseBlock());
  emitter.withLanes(1, nullptr, [&] { emitElementwiseLoop(start); });
}

void Nest::emitStraight(Value start) {
  SmallVector<Value> none;
  visit(
      positionsOf(start, space.laneBlock / space.lanes), none, [](ValueRange, Value) { return SmallVector<Value>(); },
      [](unsigned) { return true; });
}

SmallVector<Value> Nest::positionsOf(Value start, int64_t rounds) {
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

void Nest::visitEach(size_t count, function_ref<void(size_t)> place, SmallVector<Value> &carried, Add add,
                     Wanted stored) {
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
    // Result by result, so that neighbouring elements of a result are stored together.
    const size_t results = count == 0 ? 0 : elements.front().size();
    for (size_t result = 0; result < results; ++result)
      for (size_t i = 0; i < count; ++i) {
        place(i);
        auto [index, element] = elements[i][result];
        emitter.store(outputs[index], coordsFor(yielded()[index]), element);
      }
  });
}

void Nest::visit(ArrayRef<Value> positions, SmallVector<Value> &carried, Add add, Wanted stored) {
  visitEach(
      positions.size(),
      [&](size_t i) {
        coords[space.laneDim] = Coord{positions[i], 0, nullptr};
      },
      carried, add, stored);
}

void Nest::overThreadRow(SmallVector<Value> &carried, Add add, Wanted stored) {
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

} // namespace tcc::codegen
