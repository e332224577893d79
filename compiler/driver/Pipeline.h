//===- Pipeline.h - the passes of a compile, in order -----------*- C++ -*-===//
#ifndef TCC_COMPILER_DRIVER_PIPELINE_H
#define TCC_COMPILER_DRIVER_PIPELINE_H

#include "compiler/model/Initializer.h"

#include "mlir/Pass/PassManager.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tcc {

struct CompileOptions;
struct Recipe;
namespace target {
class Target;
struct Wishes;
}

/// The phases between import and emit, as options, recipe and target ask for them. Its references must outlive it.
struct Pipeline {
  const CompileOptions &options;
  const Recipe &recipe;
  const target::Target &target;
  const std::map<std::string, Initializer> &initializers;
  const std::vector<std::string> &entries; ///< that the plan gets
  bool asExported = false;                 ///< there is no recipe: the graph alone decides

  struct Phase {
    std::string name; ///< as `--dump-phases-to` has it
    std::function<void(mlir::OpPassManager &)> build;
  };
  std::vector<Phase> phases() const;
  /// May kernels share a launch?
  bool joinsKernels() const;

private:
  target::Wishes wishes() const;
  bool wants(llvm::StringRef entry) const;
  bool wantsLoss() const;
  bool wantsGradients() const;
  /// Share of extra time for recomputation without a budget: the recipe's, or the target's. Over several ranks (or in a
  /// prediction for many devices) 0 unless the recipe sets it: in the ladder's orders fewer instructions overlap
  /// collectives, and none overlaps a reduce-scatter.
  double extraTimeOf() const;
};

} // namespace tcc

#endif // TCC_COMPILER_DRIVER_PIPELINE_H
