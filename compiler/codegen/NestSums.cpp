//===- NestSums.cpp - sums of parallel lanes in memory --------------------===//
#include "compiler/codegen/Nest.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace tcc::codegen {

void Nest::BlockSums::begin() {
  ++depth;
  nest.eachVector(start, [&] {
    for (auto [op, value] : llvm::zip_equal(nest.current, nest.identities(nest.current)))
      save(op, value);
  });
}

void Nest::BlockSums::end() {
  nest.eachVector(start, [&] {
    SmallVector<Value> deeper = loadAll();
    --depth;
    saveAll(nest.combined(loadAll(), deeper));
    ++depth;
  });
  --depth;
}

SmallVector<Value> Nest::BlockSums::loadAll() {
  return llvm::map_to_vector(nest.current, [&](Operation *op) { return load({op, depth}); });
}

void Nest::BlockSums::saveAll(ArrayRef<Value> values) {
  for (auto [op, value] : llvm::zip_equal(nest.current, values))
    save(op, value);
}

void Nest::BlockSums::save(Operation *op, Value sum) {
  Value &memory = memories[{op, depth}];
  if (!memory)
    memory = allocate(sum.getType());
  types[op] = sum.getType();
  LLVM::StoreOp::create(nest.emitter.builder, nest.emitter.loc, sum, address({op, depth}), kAlignment);
}

Value Nest::BlockSums::load(Key key) {
  return LLVM::LoadOp::create(nest.emitter.builder, nest.emitter.loc, types.lookup(key.first), address(key),
                              kAlignment);
}

Value Nest::BlockSums::allocate(Type vector) {
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

Value Nest::BlockSums::address(Key key) {
  OpBuilder &b = nest.emitter.builder;
  Value at = arith::SubIOp::create(b, nest.emitter.loc, nest.coords[nest.space.laneDim].base, start);
  return LLVM::GEPOp::create(b, nest.emitter.loc, LLVM::LLVMPointerType::get(b.getContext()),
                             getElementTypeOrSelf(types.lookup(key.first)), memories.lookup(key), ValueRange{at});
}

void Nest::eachVector(Value start, function_ref<void()> body) {
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

void Nest::emitLaneBlock(Value start) {
  BlockSums sums(*this, start);
  blockSums = &sums;
  for (levelsDone = 0; levelsDone <= space.levels.size(); ++levelsDone) {
    unsigned level = levelsDone;
    current = level == space.levels.size() ? ArrayRef<Operation *>() : ArrayRef(space.levels[level]);
    const bool stores = storesInLevel(level);
    if (current.empty() && !stores)
      continue;
    sums.begin();
    overReduced({}, [&](SmallVector<Value> none) {
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

} // namespace tcc::codegen
