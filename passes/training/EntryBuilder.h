//===- EntryBuilder.h - an entry function while it is being built -*- C++ -*-===//
//
// An entry takes the graph's inputs, the state that it reads, the run-time scalars and the counters of random numbers;
// it returns outputs and the next values of the state that it changes. State, scalars and counters are added on demand.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_TRAINING_ENTRYBUILDER_H
#define TCC_PASSES_TRAINING_ENTRYBUILDER_H

#include "compiler/dialect/Builders.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace tcc::train {

class EntryBuilder {
public:
  /// Appends the function @`entry` to the module.
  EntryBuilder(mlir::ModuleOp module, llvm::StringRef entry);

  mlir::OpBuilder builder;

  enum class Mode { Training, Inference };
  /// Copies the body of `source`: its arguments become inputs of the entry, its reads become state. Inputs that nothing
  /// reads are left out unless `keepInputs`. In inference mode, ops that depend on it take that form and nothing is
  /// written. Returns the values that `source` returns.
  llvm::SmallVector<mlir::Value> inlineBody(mlir::func::FuncOp source, bool keepInputs, Mode mode = Mode::Training);
  /// The values that `source` wrote to variables (running statistics), in the order of their first write. They become
  /// updates only if the entry asks for that.
  llvm::ArrayRef<std::pair<std::string, mlir::Value>> written() const { return writes; }

  /// The value of a variable at entry; of a sharded one, this rank's shard.
  mlir::Value state(llvm::StringRef variable);
  /// The same, but of a sharded variable the whole value, gathered at the builder's insertion point.
  mlir::Value wholeState(llvm::StringRef variable);
  /// A run-time scalar (f32, rank 0).
  mlir::Value scalar(llvm::StringRef name);
  /// The key of this call's random numbers (ui32[4]).
  mlir::Value randomKey();
  /// Sets the names of all scalars of the vector in advance.
  void setScalarNames(llvm::ArrayRef<std::string> names) { scalarOrder.assign(names.begin(), names.end()); }
  /// Makes this scalar a constant of the entry from now on.
  void fixScalar(llvm::StringRef name, double value);
  /// Names of the scalars asked for, in the order of their vector.
  const std::vector<std::string> &scalarNames() const { return scalarOrder; }

  /// A result; `sampleAxis`: the axis of its samples, null if it has none.
  void output(llvm::StringRef name, mlir::Value value, mlir::IntegerAttr sampleAxis = nullptr);
  /// The next value of a variable.
  void update(llvm::StringRef variable, mlir::Value next);

  /// Ends the function; nothing may be added afterwards.
  mlir::func::FuncOp finish();

private:
  mlir::ModuleOp module;
  mlir::SymbolTable symbols; ///< the variables, declared before any entry is built
  mlir::func::FuncOp function;
  mlir::Block *body;
  std::vector<mlir::DictionaryAttr> inputAttributes;
  std::vector<std::string> stateOrder, scalarOrder;
  llvm::StringMap<unsigned> statePositions; ///< in stateOrder
  mlir::BlockArgument scalars, counters;
  std::vector<std::pair<std::string, mlir::Value>> writes;
  std::map<std::string, mlir::Value> scalarValues;
  struct Output {
    std::string name;
    mlir::Value value;
    mlir::IntegerAttr sampleAxis;
  };
  std::vector<Output> outputs;
  std::vector<std::pair<std::string, mlir::Value>> updates;
};

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_ENTRYBUILDER_H
