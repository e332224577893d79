//===- LoopEmitter.cpp ----------------------------------------------------===//
#include "compiler/codegen/LoopEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// The memory as one dimension, so that a linear index is its coordinate.
Memory flat(const Memory &memory) {
  return {memory.pointer,
          RankedTensorType::get({std::max<int64_t>(2, memory.type.getNumElements())}, memory.type.getElementType())};
}

} // namespace

Value LoopEmitter::read(const Memory &memory, Value index, int64_t count, Value active) {
  ElementEmitter emitter(builder, loc);
  Value value;
  emitter.withLanes(count, nullptr, [&] {
    Value mask = active && count > 1 ? emitter.laneMask(active) : Value();
    emitter.withLanes(count, mask, [&] {
      value = emitter.load(flat(memory), {Coord{index, count == 1 ? 0 : 1, nullptr}});
    });
  });
  return value;
}

void LoopEmitter::store(unsigned result, Value index, Value value, Value active) {
  write(results[result], index, value, active);
}

/// How large it is does not matter here: its kernel asked for it.
Memory LoopEmitter::scratchOf(Type element) const { return {scratch, RankedTensorType::get({int64_t(1) << 40}, element)}; }

Value LoopEmitter::loadScratch(Type element, Value index, int64_t count, Value active) {
  return read(scratchOf(element), index, count, active);
}

void LoopEmitter::storeScratch(Type element, Value index, Value value, Value active) {
  write(scratchOf(element), index, value, active);
}

void LoopEmitter::write(const Memory &memory, Value index, Value value, Value active) {
  int64_t count = isa<VectorType>(value.getType()) ? cast<VectorType>(value.getType()).getNumElements() : 1;
  ElementEmitter emitter(builder, loc);
  emitter.withLanes(count, nullptr, [&] {
    Value mask = active && count > 1 ? emitter.laneMask(active) : Value();
    emitter.withLanes(count, mask, [&] {
      emitter.store(flat(memory), {Coord{index, count == 1 ? 0 : 1, nullptr}}, value);
    });
  });
}

SmallVector<Value> LoopEmitter::loop(Value lower, Value upper, int64_t step, ValueRange inits,
                                     function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  Value stepValue = arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(step));
  auto loopOp = scf::ForOp::create(builder, loc, lower, upper, stepValue, inits);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loopOp.getBody());
  SmallVector<Value> next = body(loopOp.getInductionVar(), loopOp.getRegionIterArgs());
  if (!inits.empty())
    scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(loopOp.getResults());
}

SmallVector<Value> LoopEmitter::repeat(ValueRange inits, function_ref<Value(ValueRange)> test,
                                       function_ref<SmallVector<Value>(ValueRange)> step) {
  auto loopOp = scf::WhileOp::create(
      builder, loc, inits.getTypes(), inits,
      [&](OpBuilder &, Location, ValueRange carried) {
        Value holds = test(carried);
        scf::ConditionOp::create(builder, loc, holds, carried);
      },
      [&](OpBuilder &, Location, ValueRange carried) {
        SmallVector<Value> next = step(carried);
        scf::YieldOp::create(builder, loc, next);
      });
  return SmallVector<Value>(loopOp.getResults());
}

void LoopEmitter::forTiles(Value begin, Value end, function_ref<void(Value)> body) {
  loop(begin, end, 1, {}, [&](Value tile, ValueRange) {
    body(tile);
    return SmallVector<Value>();
  });
}

} // namespace tcc::codegen
