//===- AttentionMask.h - the meaning of an attention mask -------*- C++ -*-===//
//
// Masks of attention arrive as trees of comparisons, selects, casts and arithmetic on zeros and ones. They are read as a
// conjunction: a band of key − query (from comparisons of ranges, triangles, or constants that turn out to be one), and
// tensors of booleans. A mask of a finite number equals exclusion only in rows that keep some key; the conjunction tells for
// which masks that is proved.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ATTENTION_ATTENTIONMASK_H
#define TCC_PASSES_ATTENTION_ATTENTIONMASK_H

#include "passes/attention/AxisLayout.h"

#include <cstdint>
#include <limits>

namespace tcc::train {

/// Numbers up to this one stand for "excluded" where they are added to a score or take its place: −10000, as f16 and bf16 round
/// it, and everything below.
inline constexpr double kMaskFill = -9000;

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

/// A key is kept where all hold.
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

  /// `value`, added to scores, as a mask: 0 where kept, else a number of at most kMaskFill, which is stored in `fill` (the
  /// largest of several). Nullopt where it is no such mask.
  std::optional<MaskTerms> readAdditive(const Access &value, double factor, double &fill);

  /// True where every row provably keeps a key.
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

/// The number in every element of `value`, looked for behind views and casts; nullopt where there is none.
std::optional<double> splatNumber(mlir::Value value);

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_ATTENTIONMASK_H
