//===- LossTargets.h - outputs, targets and other inputs of a loss -*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_LOSSTARGETS_H
#define TCC_PASSES_TRAINING_LOSSTARGETS_H

#include "compiler/recipe/Recipe.h"
#include "passes/losses/Loss.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
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

  /// The output of this name; if there is none, an error about `key`.
  mlir::FailureOr<unsigned> find(const std::string &key, const std::string &name) const;

  /// For messages: "`logits` is tensor<8x10xf32>, …"; "outputs: `logits` (tensor<8x10xf32>), …".
  std::string describe(llvm::ArrayRef<unsigned> outputs) const;
  std::string list() const;
  /// An error about a key of the recipe.
  mlir::InFlightDiagnostic fail(const std::string &key) const;

private:
  bool isScalarLoss(unsigned i) const;

  mutable mlir::func::FuncOp forward; ///< a handle
  const Recipe &recipe;
};

std::string typeText(mlir::Type type);

/// Samples of a batch: the extent of the first sampled input; nothing: no input is sampled.
std::optional<int64_t> samplesOfBatch(mlir::func::FuncOp loss);

/// Finds the inputs of the graph that a built-in loss reads beside the prediction, or adds them to @loss: targets, and
/// the lengths of sequences. Tells the loader which integers are legal. A method that fails has reported the problem.
class LossTargets {
public:
  /// `graph`: the outputs of @forward; it outlives this. `oneOfSeveral`: the loss is one of several, so the loader
  /// cannot derive the number of classes, as it does for a plan's only target.
  LossTargets(mlir::func::FuncOp loss, const LossOutputs &graph, const LossSettings &settings, bool oneOfSeveral)
      : loss(loss), graph(graph), settings(settings), oneOfSeveral(oneOfSeveral) {}

  /// Completes `inputs`, whose predictions (the graph's `outputs`) are set: axes, target, lengths and sample weights.
  /// `alone`: no other loss trains the same samples.
  mlir::LogicalResult find(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs, bool alone);

private:
  /// Weighs samples by an input for which `key` is responsible: the graph's input of this name, or a new one.
  mlir::LogicalResult weigh(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs,
                            const std::string &key, const std::string &name);
  /// The input that is 1 for a sample and 0 for a slot of the batch without one, which the runtime fills.
  std::string presenceInput();
  /// Finds the class axis, and adds the target of kinds whose target's shape follows from the prediction's.
  mlir::LogicalResult findTargetOf(const Loss &kind, llvm::ArrayRef<unsigned> outputs, LossInputs &inputs);
  /// Finds the axes of a prediction of sequences, and adds its target and lengths.
  mlir::LogicalResult findSequences(llvm::ArrayRef<unsigned> outputs, LossInputs &inputs);
  /// The graph input of this name, or a new one of type `type`.
  mlir::FailureOr<mlir::Value> findTarget(const Loss &kind, const std::string &name, mlir::RankedTensorType type,
                                          mlir::RankedTensorType predictionType);
  /// The graph input of integers that `key` names, or a new one of i64 [samples, extent], or [samples] where extent is
  /// 0.
  mlir::FailureOr<unsigned> findIntegers(const std::string &key, const std::string &name, int64_t samples,
                                         int64_t extent);
  /// The axis that the recipe gives under `key`, counted from 0. An error names `key` if the value has no such axis.
  mlir::FailureOr<int64_t> axisOf(const std::string &key, int64_t given, llvm::ArrayRef<unsigned> outputs,
                                  int64_t rank);
  /// Tells the loader which values of an integer input are legal: [low, high] and the recipe's padding.
  void limit(unsigned argument, int64_t high, bool orIgnored, const std::string &meaning);
  std::optional<unsigned> findArgument(llvm::StringRef name);
  unsigned addArgument(llvm::StringRef name, mlir::RankedTensorType type);

  mlir::func::FuncOp loss;
  const LossOutputs &graph;
  const LossSettings &settings;
  bool oneOfSeveral;
};

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_LOSSTARGETS_H
