//===- Pipeline.h - the passes of a compile, in order -----------*- C++ -*-===//
#ifndef TCC_COMPILER_DRIVER_PIPELINE_H
#define TCC_COMPILER_DRIVER_PIPELINE_H

#include "passes/Phase.h"

#include "mlir/Pass/PassManager.h"

#include <string>
#include <vector>

namespace tcc {

struct CompileOptions;
struct Recipe;
namespace target {
class Target;
struct Wishes;
}

/// The phases between import and emit that options, recipe and target require. The objects that its references name
/// must outlive it.
struct Pipeline {
  const CompileOptions &options;
  const Recipe &recipe;
  const target::Target &target;
  const std::vector<std::string> &entries; ///< that the plan gets
  bool asExported = false;                 ///< there is no recipe: the graph alone decides
  bool severalShapes = false;              ///< the imported module holds one for each shape

  struct Step {
    Phase phase;
    /// Its passes, in the syntax of `tcc-opt --pass-pipeline`. The compile parses this text, so a phase depends on the
    /// module and the text alone.
    std::string passes;
  };
  std::vector<Step> steps() const;
  /// May kernels share a launch?
  bool joinsKernels() const;
  /// Is there a module for each [[phase]] or [[stage]] until entries are built?
  bool splits() const;

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

/// Registers the passes of Pipeline for the parser of pipelines.
void registerPipelinePasses();

} // namespace tcc

#endif // TCC_COMPILER_DRIVER_PIPELINE_H
