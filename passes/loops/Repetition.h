//===- Repetition.h - one sequence of ops, again and again ------*- C++ -*-===//
//
// Ops that only move elements (views, slices, transposes, broadcasts) and constants ("quiet" ops) may be anywhere in
// the block: the search for repetitions skips them, and comparisons of operands look through them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_LOOPS_REPETITION_H
#define TCC_PASSES_LOOPS_REPETITION_H

#include "compiler/dialect/TrainDialect.h"

#include <optional>
#include <vector>

namespace tcc::train {

/// Longest chain of movements that is followed: recursion through a longer one could overflow the stack.
inline constexpr unsigned kMostMoves = 64;

/// True if the op only moves elements, or is a constant.
bool isQuiet(mlir::Operation *op);
/// True if both ops move elements in the same way, or are equal constants.
bool isSameMovement(mlir::Operation *a, mlir::Operation *b);

/// One operand over all steps: the same value in each (Fixed), a result of the same step (Inner) or of the step before
/// (Carried), evenly spaced slices of one tensor (Sliced), or a movement of such families (Moved).
struct Family {
  enum Kind { Fixed, Inner, Carried, Sliced, Moved } kind;
  mlir::Value value = nullptr;            ///< Fixed: the value; Carried: its first value; Sliced: the tensor
  unsigned op = 0, result = 0;            ///< Inner: the number of the op in its step, and of its result
  mlir::Operation *like = nullptr;        ///< Moved: the op that moves; Sliced: the first slice
  int64_t dim = 0, start = 0, stride = 0; ///< Sliced
  std::vector<Family> operands = {};      ///< Moved: the op's operands; Carried: the value for the next step

  bool operator==(const Family &other) const;
};

/// `steps` repetitions of `period` ops that are not quiet, starting at op number `first`.
class Repetition {
public:
  using Numbers = llvm::DenseMap<mlir::Operation *, unsigned>;
  Repetition(llvm::ArrayRef<mlir::Operation *> ops, const Numbers &numbers, unsigned first, unsigned period,
             unsigned steps)
      : period(period), steps(steps), ops(ops), numbers(numbers), first(first) {}

  const unsigned period, steps;

  mlir::Operation *at(unsigned step, unsigned op) const { return ops[first + step * period + op]; }
  /// The step of an op and its number in that step; nullopt if it is null or not part of the repetition.
  std::optional<std::pair<unsigned, unsigned>> placeOf(mlir::Operation *op) const;
  /// The family of these values, one per step; nullopt if they are none.
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
