//===- EntryProblem.h - an entry function as a planning problem --*- C++ -*-===//
//
// The bridge between IR and compiler/planning: instructions, the values between them, the pairs that may share memory,
// and the order that overwriting state imposes. Scheduling, rematerialisation and packing work on the
// program; `apply` makes the IR follow a sequence.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_MEMORY_ENTRYPROBLEM_H
#define TCC_PASSES_MEMORY_ENTRYPROBLEM_H

#include "compiler/dialect/Views.h"
#include "compiler/planning/Program.h"
#include "compiler/planning/Transfers.h"
#include "compiler/target/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringMap.h"

#include <vector>

namespace tcc::train {

/// True for ops that become instructions: everything but views and the terminator.
bool isInstruction(mlir::Operation *op);

/// The operand whose memory an instruction's result 0 takes over and updates, or −1.
int requiredInPlaceOperand(mlir::Operation *op);

/// (operand, result) of an instruction that may share memory.
llvm::SmallVector<std::pair<unsigned, unsigned>> inPlacePairs(mlir::Operation *op);

/// The variable whose value an argument is at entry; null for inputs.
mlir::StringAttr variableOf(mlir::func::FuncOp function, mlir::BlockArgument argument);

/// The state arguments of an entry by their variables.
class StateArguments {
public:
  explicit StateArguments(mlir::func::FuncOp function);
  /// Null if the entry only writes the variable.
  mlir::BlockArgument lookup(llvm::StringRef variable) const { return arguments.lookup(variable); }

private:
  llvm::StringMap<mlir::BlockArgument> arguments;
};

/// True if the producer of `value` may write it directly into the memory of `argument`, after all other readers of the
/// argument.
bool canWriteOver(mlir::Value value, mlir::BlockArgument argument);

/// The operand whose memory the producer of `result` takes over and updates; null if it updates none.
mlir::Value updatedInPlace(mlir::Value result);

/// Values stored in a variable's memory, by root: new state, and the operands that a kernel updates in place to get it.
llvm::DenseMap<mlir::Value, llvm::StringRef> newStateOf(mlir::func::FuncOp function);

/// Bytes that an op reads of each operand. For a table that a kernel only gathers from, only the gathered elements
/// count.
llvm::SmallVector<double> bytesRead(mlir::Operation *op);

/// Bytes that an op reads and writes.
double bytesOf(mlir::Operation *op);

/// The time of an instruction on the nominal machine of the cost model. Depends on shapes alone, never on the host.
///
struct NominalTime {
  double arithmeticNs = 0, memoryNs = 0;
};
NominalTime nominalTime(mlir::Operation *op);

/// Nanoseconds on that machine, a launch included: the unit of recomputation's cost.
planning::Cost nominalCost(mlir::Operation *op);
/// The same for a part of the op with `flops` operations and `bytes` bytes.
planning::Cost nominalCost(mlir::Operation *op, double flops, double bytes);

/// Bytes that the machine copies to the host, or from it, in a nanosecond.
planning::Bytes linkBytesPerCost(mlir::Operation *op);

/// An op's floating-point operations, those inside a fused region included.
double flopsOf(mlir::Operation *op);

/// Scratch of an instruction for the number of concurrent tiles that memory is planned for (`train.slots`).
planning::Bytes scratchBytes(mlir::Operation *op);

/// Partial sums of an instruction.
planning::Bytes partialBytes(mlir::Operation *op);

struct EntryProblem {
  explicit EntryProblem(mlir::func::FuncOp function);

  mlir::func::FuncOp function;
  planning::Program program;                   ///< instruction i is instructions[i], value v is values[v]
  std::vector<mlir::Operation *> instructions; ///< in the order of the IR, views left out
  std::vector<mlir::Value> values;             ///< roots; state is not among them
  std::vector<mlir::BlockArgument> state;      ///< arguments that are variables

  /// Offers the values to be kept on the host: adds optional transfers to the program (planning::offerTransfers).
  void offerTransfers();

  /// Makes the function execute `sequence`: the first execution of an instruction is the op itself, later ones are
  /// clones marked train.recompute. Removes results of fused regions that have no reader left. The program is out of
  /// date afterwards. Offered transfers become train.store and train.fetch.
  void apply(const planning::Sequence &sequence);

private:
  planning::Offer offer;                  ///< the offered transfers; its program has moved to `program`
  llvm::DenseMap<mlir::Value, int> index; // of values
};

} // namespace tcc::train

#endif // TCC_PASSES_MEMORY_ENTRYPROBLEM_H
