//===- LoopEmitter.cpp - loops for ops that write their own (LoopKernel) --===//
#include "compiler/codegen/LoopEmitter.h"

#include "compiler/codegen/IterationSpace.h"
#include "compiler/codegen/Nest.h"
#include "compiler/codegen/WarpShuffle.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using tcc::train::Coord;

namespace tcc::codegen {

namespace {

/// The memory with one dimension, so that a linear index is a coordinate.
Memory flat(const Memory &memory) {
  return {memory.pointer,
          RankedTensorType::get({std::max<int64_t>(2, memory.type.getNumElements())}, memory.type.getElementType())};
}

} // namespace

Value LoopEmitter::read(const Memory &memory, Value index, int64_t count, Value active) {
  if (count == 1 && active) {
    Value none = arith::ConstantOp::create(builder, loc,
                                           builder.getZeroAttr(train::laneTypeOf(memory.type.getElementType(), 1)));
    return when(
               isAny(active), [&]() -> SmallVector<Value> { return {read(memory, index, 1, Value())}; }, none)
        .front();
  }
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
  write(results[result].memory, index, value, active);
}

/// The scratch as an unbounded array: the kernel has declared its size.
Memory LoopEmitter::scratchOf(Type element) const {
  return {scratch, RankedTensorType::get({int64_t(1) << 40}, element)};
}

Value LoopEmitter::loadScratch(Type element, Value index, int64_t count, Value active) {
  return read(scratchOf(element), index, count, active);
}

void LoopEmitter::storeScratch(Type element, Value index, Value value, Value active) {
  write(scratchOf(element), index, value, active);
}

Value LoopEmitter::loadWords(unsigned operand, Value index, int64_t count, Value active) {
  const Memory &memory = operands[operand].memory;
  int64_t words = std::max<int64_t>(1, memory.type.getNumElements() / 2);
  return read({memory.pointer, RankedTensorType::get({words}, builder.getI32Type())}, index, count, active);
}

namespace {

/// Lanes [first, first + count) of a vector.
Value part(OpBuilder &b, Location loc, Value vector, int64_t first, int64_t count) {
  if (cast<VectorType>(vector.getType()).getNumElements() == count)
    return vector;
  return vector::ExtractStridedSliceOp::create(b, loc, vector, first, count, 1);
}

Value withPart(OpBuilder &b, Location loc, Value vector, Value inserted, int64_t first) {
  if (vector.getType() == inserted.getType())
    return inserted;
  return vector::InsertStridedSliceOp::create(b, loc, inserted, vector, first, 1);
}

Value callIntrinsic(OpBuilder &b, Location loc, const llvm::Twine &name, Type result, ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(b, loc, result, b.getStringAttr(name), operands).getResult(0);
}

} // namespace

Value LoopEmitter::addPairs(Value sums, Value left, Value right) {
  int64_t lanes = cast<VectorType>(sums.getType()).getNumElements(), count = std::min<int64_t>(lanes, 16);
  auto bf16 = VectorType::get({2 * count}, builder.getBF16Type());
  auto pairsOf = [&](Value words, int64_t first) {
    return vector::BitCastOp::create(builder, loc, bf16, part(builder, loc, words, first, count));
  };
  Value result = sums;
  for (int64_t first = 0; first < lanes; first += count) {
    Value sum = part(builder, loc, sums, first, count);
    sum = callIntrinsic(builder, loc, "llvm.x86.avx512bf16.dpbf16ps." + llvm::Twine(32 * count), sum.getType(),
                        {sum, pairsOf(left, first), pairsOf(right, first)});
    result = withPart(builder, loc, result, sum, first);
  }
  return result;
}

Value LoopEmitter::roundToPairs(Value values) {
  int64_t lanes = cast<VectorType>(values.getType()).getNumElements();
  auto type = VectorType::get({lanes}, builder.getI16Type());
  Value result = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  for (int64_t first = 0; first < lanes; first += 32) {
    // The second operand becomes the lower half.
    Value rounded = callIntrinsic(builder, loc, "llvm.x86.avx512bf16.cvtne2ps2bf16.512",
                                  VectorType::get({32}, builder.getBF16Type()),
                                  {part(builder, loc, values, first + 16, 16), part(builder, loc, values, first, 16)});
    Value bits = vector::BitCastOp::create(builder, loc, VectorType::get({32}, builder.getI16Type()), rounded);
    result = withPart(builder, loc, result, bits, first);
  }
  return result;
}

void LoopEmitter::write(const Memory &memory, Value index, Value value, Value active) {
  int64_t count = isa<VectorType>(value.getType()) ? cast<VectorType>(value.getType()).getNumElements() : 1;
  if (count == 1 && active) {
    when(isAny(active),
         [&]() -> SmallVector<Value> { return write(memory, index, value, Value()), SmallVector<Value>(); }, {});
    return;
  }
  ElementEmitter emitter(builder, loc);
  emitter.withLanes(count, nullptr, [&] {
    Value mask = active && count > 1 ? emitter.laneMask(active) : Value();
    emitter.withLanes(count, mask, [&] {
      emitter.store(flat(memory), {Coord{index, count == 1 ? 0 : 1, nullptr}}, value);
    });
  });
}

void LoopEmitter::touch(const Memory &memory, Value index, bool forWriting) {
  if (!prefetches)
    return;
  Value address = LLVM::GEPOp::create(builder, loc, memory.pointer.getType(), storedType(memory.type.getElementType()),
                                      memory.pointer, ValueRange{index});
  prefetchLine(builder, loc, address, forWriting);
}

void LoopEmitter::runRegion(train::FusedOp region, ArrayRef<train::BodyPlace> inputs,
                            ArrayRef<train::BodyPlace> results) {
  // A GPU thread runs a region with the loop nest of vectors.
  target::CodeModel ofThread = model;
  ofThread.lanes = target::Lanes::Vector;
  ofThread.vectorLanes = model.threadLanes();
  auto copy = cast<train::FusedOp>(region->clone());
  mergeDims(copy);
  const IterationSpace space = analyzeIterationSpace(copy, ofThread);
  ElementEmitter emitter(builder, loc);
  auto at = [&](const train::BodyPlace &place, Type type) {
    const auto tensor = cast<RankedTensorType>(type);
    const bool isScratch = place.kind == train::BodyPlace::Scratch;
    Value base = isScratch                                 ? scratch
                 : place.kind == train::BodyPlace::Operand ? operands[place.number].memory.pointer
                                                           : this->results[place.number].memory.pointer;
    Type element = isScratch ? Type(builder.getI8Type()) : storedType(tensor.getElementType());
    return Memory{LLVM::GEPOp::create(builder, loc, base.getType(), element, base, ValueRange{place.offset}), tensor};
  };
  Block &body = copy.getBody().front();
  for (auto [argument, place] : llvm::zip_equal(body.getArguments(), inputs))
    emitter.memories[argument] = at(place, argument.getType());
  SmallVector<Memory> outputs;
  for (auto [value, place] : llvm::zip_equal(cast<train::YieldOp>(body.getTerminator()).getValues(), results))
    outputs.push_back(at(place, value.getType()));
  emitter.reducedDims.assign(space.reduced.begin(), space.reduced.end());
  loop(index(0), index(space.tiles()), 1, {}, [&](Value tile, ValueRange) {
    emitter.withLanes(1, nullptr, [&] { emitTile(copy, space, emitter, outputs, tile, nullptr); });
    return SmallVector<Value>();
  });
  if (emitter.failed)
    region->emitError("no kernel can be generated for ") << emitter.failed->getName();
  copy->destroy();
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

SmallVector<Value> LoopEmitter::when(Value condition, function_ref<SmallVector<Value>()> body, ValueRange otherwise) {
  auto either = scf::IfOp::create(builder, loc, otherwise.getTypes(), condition, /*withElseRegion=*/!otherwise.empty());
  OpBuilder::InsertionGuard guard(builder);
  auto fill = [&](Region &region, function_ref<SmallVector<Value>()> make) {
    builder.setInsertionPointToStart(&region.front());
    SmallVector<Value> values = make();
    if (!otherwise.empty())
      scf::YieldOp::create(builder, loc, values);
  };
  fill(either.getThenRegion(), body);
  if (!otherwise.empty())
    fill(either.getElseRegion(), [&] { return SmallVector<Value>(otherwise); });
  return SmallVector<Value>(either.getResults());
}

Value LoopEmitter::isAny(Value active) {
  Value none = arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(0));
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sgt, active, none);
}

Value LoopEmitter::ballot(Value condition) { return codegen::ballot(builder, loc, condition); }

Value LoopEmitter::ofThread(Value value, Value thread) { return shuffleFrom(builder, loc, value, thread); }

SmallVector<Value> LoopEmitter::multiplyTile(train::TileNumbers numbers, ValueRange sums, ValueRange left,
                                             ValueRange right) {
  return codegen::multiplyTile(builder, loc, numbers, sums, left, right);
}

Value LoopEmitter::roundToWord(train::TileNumbers numbers, Value lower, Value upper) {
  return codegen::roundToWord(builder, loc, lower, upper, numbers == train::TileNumbers::F16);
}

Value LoopEmitter::roundToTf32(Value value) { return codegen::roundToTf32(builder, loc, value); }

Value LoopEmitter::halvesOf(Value first, Value second, bool upper) {
  return codegen::halvesOf(builder, loc, first, second, upper);
}

namespace {

Value addressOf(OpBuilder &b, Location loc, const Memory &memory, Value index) {
  return LLVM::GEPOp::create(b, loc, memory.pointer.getType(), storedType(memory.type.getElementType()), memory.pointer,
                             ValueRange{index});
}

Value byteAt(OpBuilder &b, Location loc, Value memory, Value offset) {
  return LLVM::GEPOp::create(b, loc, memory.getType(), b.getI8Type(), memory, ValueRange{offset});
}

constexpr int64_t kWordBytes = 4;

} // namespace

SmallVector<Value> LoopEmitter::loadWords(Value address, int64_t count, int64_t alignment) {
  auto type = VectorType::get({count}, builder.getI32Type());
  Value row = LLVM::LoadOp::create(builder, loc, type, address, unsigned(alignment));
  SmallVector<Value> words;
  for (int64_t i = 0; i < count; ++i)
    words.push_back(vector::ExtractOp::create(builder, loc, row, i));
  return words;
}

SmallVector<Value> LoopEmitter::loadRow(unsigned operand, Value index, int64_t count, int64_t alignment) {
  return loadWords(addressOf(builder, loc, operands[operand].memory, index), count, alignment);
}

void LoopEmitter::storeRow(unsigned result, Value index, ValueRange words, int64_t alignment) {
  auto type = VectorType::get({int64_t(words.size())}, builder.getI32Type());
  Value row = vector::FromElementsOp::create(builder, loc, type, words);
  LLVM::StoreOp::create(builder, loc, row, addressOf(builder, loc, results[result].memory, index), unsigned(alignment));
}

void LoopEmitter::reserveBlockMemory(int64_t bytes) { blockMemory = sharedMemory(builder, loc, bytes); }

void LoopEmitter::copyToBlock(unsigned operand, Value index, int64_t alignment, Value offset, Value bytes) {
  Value from = addressOf(builder, loc, operands[operand].memory, index);
  copyAsynchronously(builder, loc, byteAt(builder, loc, blockMemory, offset), from, std::min(alignment, kCopyBytes),
                     bytes);
}

void LoopEmitter::meetBlock() {
  awaitCopies(builder, loc);
  codegen::meetBlock(builder, loc);
}

SmallVector<Value> LoopEmitter::loadBlockMemory(Value offset, int64_t count) {
  return loadWords(byteAt(builder, loc, blockMemory, offset), count, count * kWordBytes);
}

} // namespace tcc::codegen
