//===- Repetition.h - one sequence of ops, again and again ------*- C++ -*-===//
//
// Ops that only move elements (views, slices, transposes, broadcasts) and constants may stand anywhere, so they are
// left out where repetitions are looked for, and followed where operands are compared.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_LOOPS_REPETITION_H
#define TCC_PASSES_LOOPS_REPETITION_H

#include "compiler/dialect/TrainDialect.h"

#include <optional>
#include <vector>

namespace tcc::train {

/// Movements in a row that are followed: a graph may have more of them than a stack has room for.
inline constexpr unsigned kMostMoves = 64;

/// Moves elements, or is a constant.
bool isQuiet(mlir::Operation *op);
/// The two move elements in the same way, or have the same value.
bool isSameMovement(mlir::Operation *a, mlir::Operation *b);

/// One operand of all steps: the same value in each of them; what an op of the same step makes, or one of the step
/// before; slices side by side of one tensor; or one movement of such families.
struct Family {
  enum Kind { Fixed, Inner, Carried, Sliced, Moved } kind;
  mlir::Value value = nullptr;            ///< Fixed: it; Carried: that of the first step; Sliced: the tensor
  unsigned op = 0, result = 0;            ///< Inner: which of the step's ops makes it
  mlir::Operation *like = nullptr;        ///< Moved: the op that moves; Sliced: the first slice
  int64_t dim = 0, start = 0, stride = 0; ///< Sliced
  std::vector<Family> operands = {};      ///< Moved: of the op; Carried: what a step leaves for the next one

  bool operator==(const Family &other) const;
};

/// `steps` repetitions of `period` ops, from number `first` on, of ops that are not quiet.
class Repetition {
public:
  using Numbers = llvm::DenseMap<mlir::Operation *, unsigned>;
  Repetition(llvm::ArrayRef<mlir::Operation *> ops, const Numbers &numbers, unsigned first, unsigned period,
             unsigned steps)
      : period(period), steps(steps), ops(ops), numbers(numbers), first(first) {}

  const unsigned period, steps;

  mlir::Operation *at(unsigned step, unsigned op) const { return ops[first + step * period + op]; }
  /// The step and number of an op, if it is one of the repetition. Null is none.
  std::optional<std::pair<unsigned, unsigned>> placeOf(mlir::Operation *op) const;
  /// The family of these values, one of each step; nothing if they are none.
  std::optional<Family> classify(llvm::ArrayRef<mlir::Value> values, unsigned moves = 0);

private:
  bool isOutside(mlir::Value value, unsigned moves = 0);
  std::optional<Family> made(llvm::ArrayRef<mlir::Value> values, unsigned step, unsigned shift) const;
  std::optional<Family> sliced(llvm::ArrayRef<mlir::Value> values);
  std::optional<Family> left(llvm::ArrayRef<mlir::Value> values, unsigned moves = 0);
  static std::optional<Family> moved(llvm::ArrayRef<mlir::Value> values,
                                     llvm::function_ref<std::optional<Family>(llvm::ArrayRef<mlir::Value>)> operandOf);

  llvm::ArrayRef<mlir::Operation *> ops;
  const Numbers &numbers;
  unsigned first;
  llvm::DenseMap<mlir::Operation *, bool> outside;
};

} // namespace tcc::train

#endif // TCC_PASSES_LOOPS_REPETITION_H
