//===- AttentionMask.h - the meaning of an attention mask -------*- C++ -*-===//
//
// Masks of attention arrive as trees of comparisons, selects, casts and arithmetic on zeros and ones. They are read as
// a conjunction: a band of key − query (from comparisons of ranges, triangles, or constants that turn out to be one),
// and tensors of booleans. A mask with a finite fill excludes keys exactly only in rows that keep some key;
// keepsEveryRow proves this for some conjunctions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ATTENTION_ATTENTIONMASK_H
#define TCC_PASSES_ATTENTION_ATTENTIONMASK_H

#include "passes/attention/AxisLayout.h"

#include <cstdint>
#include <limits>

namespace tcc::train {

/// A number at or below this means "excluded" when it is added to a score or replaces it: −10000, as f16 and bf16 round
/// it, and everything below.
inline constexpr double kMaskFill = -9000;

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

/// A key is kept if all of these conditions hold.
struct MaskTerms {
  int64_t upper = kUnbounded;   ///< key − query ≤ upper
  int64_t lower = -kUnbounded;  ///< key − query ≥ lower
  struct Term {
    Access condition;           ///< i1
    bool keepWhen = true;
    bool constant = false;
  };
  llvm::SmallVector<Term, 0> terms;

  bool empty() const { return upper == kUnbounded && lower == -kUnbounded && terms.empty(); }
  void append(const MaskTerms &other);
};

/// A value that is one of two numbers.
struct TwoValued {
  Access condition;
  double onTrue = 0, onFalse = 0;
};

class MaskReader {
public:
  MaskReader(AxisSpace &axes, mlir::OpBuilder &builder, AxisList query, AxisList key)
      : axes(axes), builder(builder), query(query), key(key) {}

  /// Adds the keys that `condition` = `keepWhen` keeps.
  void read(const Access &condition, bool keepWhen, MaskTerms &terms);

  /// Reads `value`, a term added to scores, as a mask: 0 for kept keys, for others a number of at most kMaskFill, which
  /// is stored in `fill` (the largest of several). Nullopt if it is no such mask.
  std::optional<MaskTerms> readAdditive(const Access &value, double factor, double &fill);

  /// True if every row provably keeps a key.
  bool keepsEveryRow(const MaskTerms &terms);

  /// The same elements without the dimensions (views or slices of extent 1) that they do not vary along.
  Access shrink(Access access);

private:
  struct Affine { // query·i + key·j + constant
    double query = 0, key = 0, constant = 0;
  };
  std::optional<Affine> affine(Access access, unsigned depth = 0);
  std::optional<TwoValued> twoValued(Access access, unsigned depth = 0);
  void readConstant(const Access &constant, bool keepWhen, MaskTerms &terms);
  bool dependsOn(const Access &access, AxisList &found, unsigned &budget);

  AxisSpace &axes;
  mlir::OpBuilder &builder;
  AxisList query, key;
};

/// The number that all elements of `value` equal, found through views and casts; nullopt if they are not all equal.
std::optional<double> splatNumber(mlir::Value value);

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_ATTENTIONMASK_H
