//===- Program.h - run passes on textual IR and evaluate the result -*- C++ -*-===//
//
// Numeric tests of passes: parse a module, run passes, call a function with tensors by name. Every op runs by its naive
// evaluator, so that only the passes are under test.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PASSES_PROGRAM_H
#define TCC_TEST_UNIT_PASSES_PROGRAM_H

#include "compiler/recipe/Recipe.h"
#include "passes/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tcc::test {

using train::HostTensor;
using Tensors = std::map<std::string, HostTensor>;
using Numbers = std::vector<double>;

class Program {
public:
  /// Fails the running test if the text does not parse.
  explicit Program(const std::string &text);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// Messages of the last run.
  std::string messages;

  /// Gives the module a recipe, and the entries to build (empty: all that can be).
  void describe(const Recipe &recipe, llvm::ArrayRef<llvm::StringRef> entries = {});

  /// Runs passes; false if one fails.
  bool run(const std::function<void(mlir::PassManager &)> &addPasses);

  /// A tensor of the type that `function` declares for the argument of this name (train.name, train.variable, or
  /// "scalars") or of the variable of this name.
  HostTensor tensor(const std::string &name, const Numbers &values);

  /// Calls a function. Arguments and results are named by train.name, train.variable, train.gradient_of (prefixed with
  /// "gradient:") or "scalars"; reads of variables also take their values from `arguments`.
  Tensors call(const std::string &function, const Tensors &arguments);

  /// Names of the run-time scalars, in order.
  std::vector<std::string> scalars();
};

/// A module with one f64 parameter @p of this shape ("3x4"), which is the graph's output "y".
std::string parameterModule(const std::string &shape);

/// The results of `function` on every rank of a job for every rank's arguments, evaluated op by op in program order.
using TensorList = std::vector<HostTensor>;
std::vector<TensorList> evaluateRanks(mlir::func::FuncOp function, const std::vector<TensorList> &arguments);

Numbers values(const HostTensor &tensor);
/// Compares element by element, within `tolerance` relative to the larger of the expected value and `floor`.
void expectNear(const HostTensor &actual, const Numbers &expected, double tolerance, double floor = 1e-3);

} // namespace tcc::test

#endif // TCC_TEST_UNIT_PASSES_PROGRAM_H
