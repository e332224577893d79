//===- LoopKernel.cpp - a loop's steps around its body's regions ----------===//
//
// In each step, the regions of the body run one after another over all elements of a tile. State is double-buffered in
// scratch: a step reads one copy and writes the other. Parts are stored in the results, other values in scratch.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Loop.h"
#include "compiler/dialect/Views.h"
#include "compiler/kernels/KernelModels.h"
#include "compiler/kernels/LoopRows.h"

using namespace mlir;

namespace tcc::train {
namespace {

constexpr int64_t kSlotAlignmentBytes = 64;

int64_t alignedBytes(Value value) { return int64_t(llvm::alignTo(tensorBytes(value.getType()), kSlotAlignmentBytes)); }

/// Offsets of the values of a loop's body in scratch.
class LoopScratch {
public:
  explicit LoopScratch(LoopOp loop) {
    for (BlockArgument state : loop.getStateArguments()) {
      offsets[state] = bytes;
      bytes += 2 * alignedBytes(state);
    }
    NextOp next = loop.getNext();
    llvm::SmallPtrSet<Value, 8> placed;
    for (Value value : next.getStates())
      placed.insert(value);
    for (Value value : next.getParts())
      placed.insert(value);
    for (auto region : loop.getBlock().getOps<FusedOp>())
      for (Value result : region.getResults())
        if (!placed.contains(result)) {
          offsets[result] = bytes;
          bytes += alignedBytes(result);
        }
  }

  int64_t offsetOf(Value value) const { return offsets.lookup(value); }
  int64_t bytes = 0;

private:
  llvm::DenseMap<Value, int64_t> offsets;
};

/// Emits one tile of a loop.
class LoopBody {
public:
  LoopBody(LoopOp loop, LoopBuilder &loops, Value tile)
      : loop(loop), loops(loops), b(loops.builder), loc(loops.loc), tile(tile), rows(loop), body(rows.body()),
        scratch(body) {}

  void emit() {
    const unsigned states = body.getStateCount();
    const auto steps = int64_t(body.getSteps());
    for (unsigned k = 0; k < states; ++k) {
      Value state = body.getStateArguments()[k];
      copy(whole(BodyPlace::Operand, k, state), stateSlot(k, index(0)), state);
    }
    loops.loop(index(0), index(steps), 1, {}, [&](Value i, ValueRange) {
      Value step = body.getReverse() ? arith::SubIOp::create(b, loc, index(steps - 1), i).getResult() : i;
      Value odd = arith::AndIOp::create(b, loc, i, index(1)), even = arith::XOrIOp::create(b, loc, odd, index(1));
      emitStep(step, odd, even);
      return llvm::SmallVector<Value>();
    });
    for (unsigned k = 0; k < states; ++k) {
      Value state = body.getStateArguments()[k];
      copy(stateSlot(k, index(steps % 2)), whole(BodyPlace::Result, k, state), state);
    }
  }

private:
  Value index(int64_t value) { return loops.index(value); }
  /// The tile's part of an operand or result without a dimension of steps; `value` is its value in the body.
  BodyPlace whole(BodyPlace::Kind kind, unsigned number, Value value) {
    return {kind, number, rows.offsetOf(b, loc, value, tile)};
  }
  /// The same for one step of an operand or result with all steps; `like` has the extents of a step.
  BodyPlace part(BodyPlace::Kind kind, unsigned number, Value step, Value value, Value like) {
    BodyPlace place = whole(kind, number, value);
    Value before = arith::MulIOp::create(b, loc, step, index(tensorTypeOf(like).getNumElements()));
    place.offset = arith::AddIOp::create(b, loc, before, place.offset);
    return place;
  }
  BodyPlace stateSlot(unsigned k, Value half) {
    BlockArgument state = body.getStateArguments()[k];
    Value offset = arith::MulIOp::create(b, loc, half, index(alignedBytes(state)));
    return {BodyPlace::Scratch, 0, arith::AddIOp::create(b, loc, offset, index(scratch.offsetOf(state)))};
  }

  void emitStep(Value step, Value now, Value then) {
    NextOp next = body.getNext();
    const unsigned states = body.getStateCount(), sliced = unsigned(body.getSliced().size());
    places.clear();
    for (unsigned k = 0; k < states; ++k)
      places[body.getStateArguments()[k]] = stateSlot(k, now);
    for (auto [number, argument] : llvm::enumerate(body.getSlicedArguments()))
      places[argument] = part(BodyPlace::Operand, states + unsigned(number), step, argument,
                              loop.getSlicedArguments()[unsigned(number)]);
    for (auto [number, argument] : llvm::enumerate(body.getFixedArguments()))
      places[argument] = whole(BodyPlace::Operand, states + sliced + unsigned(number), argument);
    // If a value has several places, its region writes the first, and the others are copied.
    llvm::SmallVector<std::pair<Value, BodyPlace>> copies;
    auto leaves = [&](Value value, const BodyPlace &place) {
      auto region = dyn_cast_or_null<FusedOp>(value.getDefiningOp());
      if (!region || !places.try_emplace(value, place).second)
        copies.push_back({value, place});
    };
    for (unsigned k = 0; k < states; ++k)
      leaves(next.getStates()[k], stateSlot(k, then));
    for (auto [number, value] : llvm::enumerate(next.getParts()))
      leaves(value, part(BodyPlace::Result, states + unsigned(number), step, value,
                         loop.getNext().getParts()[unsigned(number)]));
    for (Operation &op : body.getBlock().without_terminator()) {
      auto region = dyn_cast<FusedOp>(&op);
      if (!region)
        continue; // a view
      llvm::SmallVector<BodyPlace> inputs, results;
      for (Value input : region.getInputs())
        inputs.push_back(placeOf(input));
      for (Value value : region.getResults())
        results.push_back(placeOf(value));
      loops.runRegion(region, inputs, results);
    }
    for (auto &[value, place] : copies)
      copy(placeOf(value), place, value);
  }

  BodyPlace placeOf(Value value) {
    Value root = rootOf(value);
    auto [found, isNew] = places.try_emplace(root, BodyPlace{BodyPlace::Scratch, 0, Value()});
    if (isNew)
      found->second.offset = index(scratch.offsetOf(root));
    return found->second;
  }

  void copy(const BodyPlace &from, const BodyPlace &to, Value value) {
    auto type = tensorTypeOf(value);
    // A region that yields its operand.
    OpBuilder detached(b.getContext());
    OperationState state(loc, FusedOp::getOperationName());
    state.addTypes(type);
    state.addRegion();
    OwningOpRef<FusedOp> region(cast<FusedOp>(Operation::create(state)));
    auto *block = new Block;
    region->getBody().push_back(block);
    block->addArgument(type, loc);
    detached.setInsertionPointToEnd(block);
    YieldOp::create(detached, loc, block->getArguments());
    loops.runRegion(*region, {from}, {to});
  }

  LoopOp loop;
  LoopBuilder &loops;
  OpBuilder &b;
  Location loc;
  Value tile;
  LoopRows rows;
  LoopOp body; ///< the loop of one tile
  LoopScratch scratch;
  llvm::DenseMap<Value, BodyPlace> places; ///< of the step's values
};

struct LoopLoops : LoopKernel::ExternalModel<LoopLoops, LoopOp> {
  int64_t getTileCount(Operation *op) const { return LoopRows(cast<LoopOp>(op)).tiles(); }
  int64_t getScratchBytes(Operation *op) const {
    LoopRows rows(cast<LoopOp>(op));
    return LoopScratch(rows.body()).bytes;
  }
  void emitTile(Operation *op, LoopBuilder &loops, Value tile) const { LoopBody(cast<LoopOp>(op), loops, tile).emit(); }
};

} // namespace

void attachLoop(MLIRContext &context) { LoopOp::attachInterface<LoopLoops>(context); }

} // namespace tcc::train
