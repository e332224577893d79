//===- Buffers.h - which values share memory, and how long they live -*- C++ -*-===//
//
// The buffers of an entry in the order of its IR, by planning's account of what lives when (planning::blocksOf):
// plan-memory packs them, emit writes them into the plan. Reshapes are views of their operand. A result that may
// overwrite an operand which dies there lies in its place. A variable's argument and its new value lie in the variable.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_BUFFERS_H
#define TCC_PASSES_BUFFERS_H

#include "passes/EntryProgram.h"

#include <string>
#include <vector>

namespace tcc::train {

/// A piece of memory of one entry: a value and its views, or scratch.
struct EntryBuffer {
  enum Kind { kValue, kState, kInput, kOutput, kScratch, kPartial, kScalars, kCounters };
  Kind kind = kValue;
  mlir::Value value;                ///< null for scratch and for state that is only written
  mlir::Operation *owner = nullptr; ///< the op that defines it, or whose scratch it is
  std::string variable;             ///< state: its name
  int64_t bytes = 0;
  int64_t first = 0, last = 0; ///< instructions; −1: at entry, count: at exit
  int block = -1;              ///< transient: where it lies in EntryBuffers::blocks, and how far into it
  int64_t offsetInBlock = 0;
  int inPlaceOf = -1; ///< buffer whose memory it takes over when that one dies
  mlir::Operation *lastReader = nullptr;
};

struct EntryBuffers {
  explicit EntryBuffers(mlir::func::FuncOp function);

  /// Writes down where every block lies, as train.offset(s), and what the arena takes.
  void place(mlir::func::FuncOp function, llvm::ArrayRef<int> bufferOfBlock,
             const planning::PackingSolution &solution) const;
  /// Where blocks lie, as written down: of each of `count` buffers of a packing problem.
  std::vector<planning::Bytes> offsets(mlir::func::FuncOp function, llvm::ArrayRef<int> bufferOfBlock,
                                       size_t count) const;

  std::vector<mlir::Operation *> instructions; ///< in order, views left out
  std::vector<EntryBuffer> buffers;
  std::vector<planning::Block> blocks; ///< what the transient buffers are parts of
  /// Buffer of a value, views followed.
  unsigned bufferOf(mlir::Value value) const { return index.lookup(rootOf(value)); }
  /// Buffers an instruction defines: results, then scratch, then partial sums (where it has them).
  std::vector<unsigned> definedBy(mlir::Operation *op) const;
  /// Those and the ones it reads, ascending.
  std::vector<unsigned> touchedBy(mlir::Operation *op) const;

private:
  /// What an instruction touches lives as long as it may run beside others (train.beside).
  void lengthenLives();

  llvm::DenseMap<mlir::Value, unsigned> index;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned, 2>> scratchOf; ///< and partial sums
};

} // namespace tcc::train

#endif // TCC_PASSES_BUFFERS_H
