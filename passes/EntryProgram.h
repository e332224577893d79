//===- EntryProgram.h - an entry function as planning sees it ---*- C++ -*-===//
//
// The bridge between IR and compiler/planning: instructions, the values that pass between them, which may lie in one
// another's place, what has to run before state is overwritten. Scheduling, rematerialisation and packing work on the
// program; `apply` makes the IR follow a sequence.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ENTRYPROGRAM_H
#define TCC_PASSES_ENTRYPROGRAM_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/planning/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringMap.h"

#include <vector>

namespace tcc::train {

/// True for ops that become instructions: everything but views and the terminator.
bool isInstruction(mlir::Operation *op);

/// The operand whose memory an instruction's result 0 takes over and updates, or −1.
int requiredInPlaceOperand(mlir::Operation *op);

/// (operand, result) of an instruction that may lie in one place.
llvm::SmallVector<std::pair<unsigned, unsigned>> inPlacePairs(mlir::Operation *op);

/// The operand behind views.
mlir::Value rootOf(mlir::Value value);

/// The variable whose value an argument is at entry; null for inputs.
mlir::StringAttr variableOf(mlir::func::FuncOp function, mlir::BlockArgument argument);

/// The state arguments of an entry by their variables.
class StateArguments {
public:
  explicit StateArguments(mlir::func::FuncOp function);
  /// Null where the entry only writes the variable.
  mlir::BlockArgument lookup(llvm::StringRef variable) const { return arguments.lookup(variable); }

private:
  llvm::StringMap<mlir::BlockArgument> arguments;
};

/// True if the producer of `value` may write it straight into the memory of `argument`, once all other readers are
/// done.
bool canWriteOver(mlir::Value value, mlir::BlockArgument argument);

/// The operand whose memory the instruction behind `result` takes over and updates; null where it needs none.
mlir::Value updatedInPlace(mlir::Value result);

/// Values that lie in a variable's memory, by root: new state, and what a kernel updates in place to make it.
llvm::DenseMap<mlir::Value, llvm::StringRef> newStateOf(mlir::func::FuncOp function);

/// Bytes of an op's operands and results.
double bytesOf(mlir::Operation *op);

/// What an instruction takes on the nominal machine of the cost model, which depends on shapes alone, never on the
/// host.
struct NominalTime {
  double arithmeticNs = 0, memoryNs = 0;
};
NominalTime nominalTime(mlir::Operation *op);

/// Nanoseconds on that machine, a launch included: what recomputation is weighed by.
planning::Cost nominalCost(mlir::Operation *op);
planning::Cost nominalCost(double flops, double bytes, bool isLibraryCall);

/// An op's floating-point operations, those inside a fused region included.
double flopsOf(mlir::Operation *op);

/// Slots of scratch that an instruction has: one a worker, or one a tile where these are fewer.
int64_t scratchSlots(mlir::Operation *op);

/// Scratch of all workers together.
planning::Bytes scratchBytes(mlir::Operation *op);

struct EntryProgram {
  explicit EntryProgram(mlir::func::FuncOp function);

  mlir::func::FuncOp function;
  planning::Program program;                   ///< instruction i is instructions[i], value v is values[v]
  std::vector<mlir::Operation *> instructions; ///< in the order of the IR, views left out
  std::vector<mlir::Value> values;             ///< roots; state is not among them
  std::vector<mlir::BlockArgument> state;      ///< arguments that are variables

  /// Makes the function execute `sequence`: the first execution of an instruction is the op itself, later ones are
  /// clones marked train.recompute. Results of fused regions that nobody reads any more leave them. The program is out
  /// of date afterwards.
  void apply(const planning::Sequence &sequence);

private:
  llvm::DenseMap<mlir::Value, int> index; // of values
};

} // namespace tcc::train

#endif // TCC_PASSES_ENTRYPROGRAM_H
