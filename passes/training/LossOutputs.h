//===- LossOutputs.h - find the outputs that a loss reads -------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_LOSSOUTPUTS_H
#define TCC_PASSES_TRAINING_LOSSOUTPUTS_H

#include "compiler/recipe/Recipe.h"
#include "passes/losses/Loss.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace tcc::train {

/// The results of @forward, by number, as the recipe's [loss] and [evaluate] name them. A method that fails has
/// reported the problem.
class LossOutputs {
public:
  /// Both arguments outlive this object.
  LossOutputs(mlir::func::FuncOp forward, const Recipe &recipe) : forward(forward), recipe(recipe) {}

  using Numbers = llvm::SmallVector<unsigned>;
  /// The scalar that loss.output names, or the only scalar output.
  mlir::FailureOr<Numbers> findGraphLoss() const;
  /// The values that loss.of names, or the only floating-point output.
  mlir::FailureOr<Numbers> findPredictions(const Loss &kind) const;

  unsigned count() const { return forward.getNumResults(); }
  std::string nameOf(unsigned i) const;
  mlir::Type typeOf(unsigned i) const { return forward.getResultTypes()[i]; }
  /// The sample axis of the output; null if unknown.
  mlir::IntegerAttr sampleAxisOf(unsigned i) const;
  /// True for a value inside the graph that is returned for loss.of.
  bool isInner(unsigned i) const;
  bool isFloat(unsigned i) const;

  /// For messages: "`logits` is tensor<8x10xf32>, …"; "outputs: `logits` (tensor<8x10xf32>), …".
  std::string describe(llvm::ArrayRef<unsigned> outputs) const;
  std::string list() const;
  /// An error about a key of the recipe.
  mlir::InFlightDiagnostic fail(const std::string &key) const;

private:
  bool isScalarLoss(unsigned i) const;
  /// The output of this name; if there is none, an error about `key`.
  mlir::FailureOr<unsigned> find(const std::string &key, const std::string &name) const;

  mutable mlir::func::FuncOp forward; ///< a handle
  const Recipe &recipe;
};

std::string typeText(mlir::Type type);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_LOSSOUTPUTS_H
