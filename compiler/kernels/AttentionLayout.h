//===- AttentionLayout.h - scratch of attention's kernels -------*- C++ -*-===//
//
// Decisions that follow from shapes and types alone: the suitable machine instructions, and the offsets in a tile's
// scratch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONLAYOUT_H
#define TCC_KERNELS_ATTENTIONLAYOUT_H

#include "compiler/dialect/Attention.h"

namespace tcc::train {

/// Which dimensions of scores a bias or mask depends on.
enum class ScoreTermForm {
  kNone,
  kKeys,    ///< the same for all queries: one element a row
  kQueries, ///< the same for all keys: one vector for all rows
  kFull,    ///< transposed into the scratch, block by block
};
ScoreTermForm scoreTermForm(llvm::ArrayRef<int64_t> shape);

/// True if products of pairs (LoopBuilder::addPairs) can make these scores: rows of bf16 are whole words.
bool suitsPairs(const AttentionShape &s, mlir::Type element);

/// Whether a row's `features` elements are contiguous, as the kernels' vectors need (a broadcast row has one element),
/// and rows that may be read in pairs are whole words. The same at all machine levels; f16 counts if warps read it
/// (`wordRows`, names::kWordRows).
bool isRowWise(const AttentionShape &s, mlir::Type element, const StridedLayout &layout, int64_t features,
               bool wordRows);

template <typename OpTy> mlir::Type productTypeOf(OpTy op, bool multipliesPairs) {
  AttentionShape s = attentionShapeOf(op);
  mlir::Type element = elementTypeOf(op.getQuery());
  return multipliesPairs && suitsPairs(s, element) ? element : s.sumType;
}

/// Offsets in the scratch, in elements of the sums' type, each at a multiple of 64 bytes.
struct AttentionLayout {
  /// Queries of a block: lanes() divides it on every machine level.
  static constexpr int64_t kBlockQueries = 64;

  AttentionLayout(const AttentionShape &s, mlir::Type element, int64_t mostKeys, bool pairs);

  int64_t take(int64_t elements) {
    int64_t offset = used;
    used += (elements * elementBytes + 63) / 64 * 64 / elementBytes;
    return offset;
  }
  int64_t bytes() const { return used * elementBytes; }

  bool isNarrow;     ///< elements have 16 bits
  bool pairs;        ///< elements are multiplied in pairs; else narrow blocks are widened into the scratch
  int64_t blockKeys; ///< a multiple of the rows of a product
  int64_t bias = 0, mask = 0;

private:
  int64_t elementBytes, used = 0;
};

/// Bytes of scratch for a layout of this shape.
template <typename Layout, typename... Arguments>
int64_t mostBytes(const AttentionShape &s, mlir::Type element, Arguments... arguments) {
  // The maximum over machine levels, so that the scratch of a plan does not depend on them.
  return std::max(Layout(s, element, false, arguments...).bytes(),
                  Layout(s, element, suitsPairs(s, element), arguments...).bytes());
}

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONLAYOUT_H
