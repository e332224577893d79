//===- Buffers.h - buffers, in-place reuse and live ranges ------*- C++ -*-===//
//
// The buffers of an entry in the order of its IR, with live ranges by planning::blocksOf: plan-memory packs them, emit
// writes them into the plan. Reshapes are views of their operand. A result that may overwrite an operand that dies at
// this instruction takes over its memory. A variable's argument and its new value share the variable's memory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_MEMORY_BUFFERS_H
#define TCC_PASSES_MEMORY_BUFFERS_H

#include "passes/memory/EntryProblem.h"

#include <string>
#include <vector>

namespace tcc::train {

/// A piece of memory of one entry: a value and its views, or partial sums. Scratch is not a buffer, since its size
/// depends on the number of tiles in flight.
struct EntryBuffer {
  enum Kind { kValue, kState, kInput, kOutput, kPartial, kScalars, kCounters };
  Kind kind = kValue;
  mlir::Value value;                ///< null for partial sums and write-only state
  mlir::Operation *owner = nullptr; ///< the op that defines it, or whose partial sums it holds
  std::string variable;             ///< state: its name
  int64_t bytes = 0;
  int64_t first = 0, last = 0; ///< instructions; −1: at entry, count: at exit
  int block = -1;              ///< transient: its index in EntryBuffers::blocks
  bool onHost = false;         ///< transient, in the memory of the host
  int inPlaceOf = -1; ///< buffer whose memory it takes over when that one dies
  mlir::Operation *lastReader = nullptr;
};

struct EntryBuffers {
  explicit EntryBuffers(mlir::func::FuncOp function);

  /// Records the offset of every block of the device as train.offset(s) and train.scratch_offset, and the size of the
  /// arena. `problem`: packingOf(blocks), possibly with other live ranges.
  void place(mlir::func::FuncOp function, const planning::PackingProblem &problem, llvm::ArrayRef<int> bufferOfBlock,
             const planning::PackingSolution &solution) const;
  /// Records the offset of every block of the host as train.offsets of its store, and the size of the host's arena.
  void placeOnHost(mlir::func::FuncOp function, llvm::ArrayRef<int> bufferOfBlock,
                   const planning::PackingSolution &solution) const;
  /// The recorded offsets of the `count` buffers of a packing problem.
  std::vector<planning::Bytes> offsets(mlir::func::FuncOp function, llvm::ArrayRef<int> bufferOfBlock,
                                       size_t count) const;

  std::vector<mlir::Operation *> instructions; ///< in order, views left out
  std::vector<EntryBuffer> buffers;
  std::vector<planning::Block> blocks; ///< allocations that transient buffers are parts of
  /// Buffer of a value, views followed.
  unsigned bufferOf(mlir::Value value) const { return index.lookup(rootOf(value)); }
  /// Buffers that an instruction defines: results, then partial sums if it has any.
  std::vector<unsigned> definedBy(mlir::Operation *op) const;
  /// The buffers that it defines or reads, ascending.
  std::vector<unsigned> touchedBy(mlir::Operation *op) const;

private:
  /// Extends live ranges of an instruction's buffers to the end of its overlap (train.beside).
  void lengthenLives();

  llvm::DenseMap<mlir::Value, unsigned> index;
  llvm::DenseMap<mlir::Operation *, unsigned> partialOf;
};

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_BUFFERS_H
