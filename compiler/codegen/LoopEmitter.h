//===- LoopEmitter.h - loops for ops that write their own (LoopKernel) --*- C++ -*-===//
#ifndef TCC_CODEGEN_LOOPEMITTER_H
#define TCC_CODEGEN_LOOPEMITTER_H

#include "compiler/codegen/ElementEmitter.h"
#include "compiler/codegen/KernelEmitter.h"

namespace tcc::codegen {

/// An operand or result, and its layout in memory.
struct PlacedMemory {
  Memory memory;
  train::StridedLayout layout;
};

/// Accesses elements at linear indices by masked vectors. A thread of a GPU runs the same loops with short vectors,
/// which LLVM scalarises.
class LoopEmitter : public train::LoopBuilder {
public:
  LoopEmitter(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<PlacedMemory> operands,
              llvm::ArrayRef<PlacedMemory> results, mlir::Value scratch, const target::CodeModel &model,
              mlir::Value threadInTile)
      : LoopBuilder(builder, loc), operands(operands), results(results), scratch(scratch), threadInTile(threadInTile),
        model(model), vectorLanes(model.threadLanes()), pairs(model.multipliesPairs), prefetches(!model.threaded()) {}

  int64_t lanes(mlir::Type element) const override { return vectorLanes; }
  const train::StridedLayout &layout(unsigned operand) const override { return operands[operand].layout; }
  const train::StridedLayout &resultLayout(unsigned result) const override { return results[result].layout; }
  mlir::Value load(unsigned operand, mlir::Value index, int64_t count, mlir::Value active) override {
    return read(operands[operand].memory, index, count, active);
  }
  mlir::Value loadResult(unsigned result, mlir::Value index, int64_t count, mlir::Value active) override {
    return read(results[result].memory, index, count, active);
  }
  void store(unsigned result, mlir::Value index, mlir::Value value, mlir::Value active) override;
  void prefetch(unsigned operand, mlir::Value index) override {
    touch(operands[operand].memory, index, /*forWriting=*/false);
  }
  void prefetchResult(unsigned result, mlir::Value index) override {
    touch(results[result].memory, index, /*forWriting=*/true);
  }
  llvm::SmallVector<mlir::Value>
  loop(mlir::Value lower, mlir::Value upper, int64_t step, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body) override;
  llvm::SmallVector<mlir::Value>
  repeat(mlir::ValueRange inits, llvm::function_ref<mlir::Value(mlir::ValueRange)> test,
         llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange)> step) override;
  llvm::SmallVector<mlir::Value> when(mlir::Value condition, llvm::function_ref<llvm::SmallVector<mlir::Value>()> body,
                                      mlir::ValueRange otherwise) override;
  mlir::Value thread() override { return threadInTile; }
  mlir::Value ballot(mlir::Value condition) override;
  mlir::Value ofThread(mlir::Value value, mlir::Value thread) override;
  llvm::SmallVector<mlir::Value> multiplyTile(train::TileNumbers numbers, mlir::ValueRange sums, mlir::ValueRange left,
                                              mlir::ValueRange right) override;
  mlir::Value roundToWord(train::TileNumbers numbers, mlir::Value lower, mlir::Value upper) override;
  mlir::Value roundToTf32(mlir::Value value) override;
  mlir::Value halvesOf(mlir::Value first, mlir::Value second, bool upper) override;
  llvm::SmallVector<mlir::Value> loadRow(unsigned operand, mlir::Value index, int64_t count,
                                         int64_t alignment) override;
  void storeRow(unsigned result, mlir::Value index, mlir::ValueRange words, int64_t alignment) override;
  void reserveBlockMemory(int64_t bytes) override;
  void copyToBlock(unsigned operand, mlir::Value index, int64_t alignment, mlir::Value offset,
                   mlir::Value bytes) override;
  void meetBlock() override;
  llvm::SmallVector<mlir::Value> loadBlockMemory(mlir::Value offset, int64_t count) override;

  mlir::Value loadScratch(mlir::Type element, mlir::Value index, int64_t count, mlir::Value active) override;
  void storeScratch(mlir::Type element, mlir::Value index, mlir::Value value, mlir::Value active) override;

  void runRegion(train::FusedOp region, llvm::ArrayRef<train::BodyPlace> inputs,
                 llvm::ArrayRef<train::BodyPlace> results) override;

  bool multipliesPairs() const override { return pairs; }
  mlir::Value loadWords(unsigned operand, mlir::Value index, int64_t count, mlir::Value active) override;
  mlir::Value addPairs(mlir::Value sums, mlir::Value left, mlir::Value right) override;
  mlir::Value roundToPairs(mlir::Value values) override;

private:
  mlir::Value read(const Memory &memory, mlir::Value index, int64_t count, mlir::Value active);
  void write(const Memory &memory, mlir::Value index, mlir::Value value, mlir::Value active);
  void touch(const Memory &memory, mlir::Value index, bool forWriting);
  llvm::SmallVector<mlir::Value> loadWords(mlir::Value address, int64_t count, int64_t alignment);
  Memory scratchOf(mlir::Type element) const;
  mlir::Value isAny(mlir::Value active);

  llvm::ArrayRef<PlacedMemory> operands, results;
  mlir::Value scratch, threadInTile, blockMemory;
  const target::CodeModel &model;
  int64_t vectorLanes;
  bool pairs, prefetches;
};

} // namespace tcc::codegen

#endif // TCC_CODEGEN_LOOPEMITTER_H
