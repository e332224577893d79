//===- BlockMoments.h - optimizer state in 8 bits ---------------*- C++ -*-===//
//
// optimizer.moments = "8bit" stores a moment in blocks of 256 elements that are consecutive in memory: a byte for each
// element, the code of a number in [−1, 1], and the block's largest magnitude (runtime/plan/DynamicMap.h). An update is
// computed with all values in the shape [blocks, 256], so that the kernel that reads and writes a block also finds its
// largest magnitude, and no moment is in memory in f32.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_OPTIMIZERS_BLOCKMOMENTS_H
#define TCC_PASSES_OPTIMIZERS_BLOCKMOMENTS_H

#include "compiler/dialect/Builders.h"
#include "runtime/plan/DynamicMap.h"

namespace tcc::train {

/// Smaller parameters keep f32 moments, as in bitsandbytes (min_8bit_size).
inline constexpr int64_t kLeastBlockedElements = 4096;

/// The number of blocks of so many elements; the last one may be shorter.
int64_t blocksOf(int64_t elements);
/// `value` in the shape [blocks, 256], with zeros behind its last element.
Expr inBlocks(const Expr &value);
/// The reverse: the first elements of `blocks`, in `shape`.
Expr outOfBlocks(const Expr &blocks, llvm::ArrayRef<int64_t> shape);

/// A moment in memory: codes and f32 magnitudes in any shape.
struct BlockedMoment {
  Expr codes, magnitudes;
};
/// The f32 values, [blocks, 256].
Expr decodeMoment(const BlockedMoment &moment, plan::DynamicKind kind);
/// Codes [blocks, 256] and magnitudes [blocks, 1] of f32 values [blocks, 256].
BlockedMoment encodeMoment(const Expr &values, plan::DynamicKind kind);

} // namespace tcc::train

#endif // TCC_PASSES_OPTIMIZERS_BLOCKMOMENTS_H
