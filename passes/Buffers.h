//===- Buffers.h - which values share memory, and how long they live -*- C++ -*-===//
//
// The one account of an entry's memory, from its order of ops: plan-memory packs it, emit writes it into the plan.
// Reshapes are views of their operand. A result that may overwrite an operand which dies there lies in its place. A
// variable's argument and its new value lie in the variable.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_BUFFERS_H
#define TCC_PASSES_BUFFERS_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

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
  int inPlaceOf = -1;          ///< buffer whose memory it takes over when that one dies
  mlir::Operation *lastReader = nullptr;
};

struct EntryBuffers {
  explicit EntryBuffers(mlir::func::FuncOp function);

  std::vector<mlir::Operation *> instructions; ///< in order, views left out
  std::vector<EntryBuffer> buffers;
  /// Buffer of a value, views followed.
  unsigned bufferOf(mlir::Value value) const { return index.lookup(root(value)); }
  /// Buffers an instruction defines: results, then scratch, then partial sums (where it has them).
  std::vector<unsigned> definedBy(mlir::Operation *op) const;
  /// The operand behind views.
  static mlir::Value root(mlir::Value value);

private:
  llvm::DenseMap<mlir::Value, unsigned> index;
};

/// True for ops that become instructions: everything but views and the terminator.
bool isInstruction(mlir::Operation *op);

/// The state argument that a returned new value replaces, by name; null where the entry only writes it.
mlir::BlockArgument stateArgument(mlir::func::FuncOp function, llvm::StringRef variable);

/// True if the producer of `value` may write it straight into the memory of `argument`, once all other readers are
/// done.
bool canWriteOver(mlir::Value value, mlir::BlockArgument argument);

/// The operand whose memory the kernel behind `result` takes over and updates; null where it needs none.
mlir::Value updatedInPlace(mlir::Value result);

} // namespace tcc::train

#endif // TCC_PASSES_BUFFERS_H
