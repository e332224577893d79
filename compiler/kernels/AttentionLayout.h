//===- AttentionLayout.h - what attention's kernels keep in scratch -*- C++ -*-===//
//
// What follows from shapes and types alone: which machine instructions suit them, and where things lie in a tile's
// scratch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONLAYOUT_H
#define TCC_KERNELS_ATTENTIONLAYOUT_H

#include "compiler/dialect/Attention.h"

namespace tcc::train {

/// How scores depend on a bias or mask.
enum class ScoreTermForm {
  kNone,
  kKeys,    ///< the same for all queries: one element a row
  kQueries, ///< the same for all keys: one vector for all rows
  kFull,    ///< transposed into the scratch, block by block
};
ScoreTermForm scoreTermForm(llvm::ArrayRef<int64_t> shape);

/// True where products of pairs (LoopBuilder::addPairs) can make these scores: rows of bf16 are whole words.
bool suitsPairs(const AttentionShape &s, mlir::Type element);

/// Are a row's `features` elements neighbours, as the kernels' vectors have it (a broadcast row has one element), and
/// rows whole words where they are read in pairs? The same at all machine levels, and of f16 where warps read them
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
  bool pairs;        ///< and are multiplied in pairs; else blocks of them are widened into the scratch
  int64_t blockKeys; ///< a multiple of the rows of a product
  int64_t bias = 0, mask = 0;

private:
  int64_t elementBytes, used = 0;
};

/// The scratch that a layout of this shape takes.
template <typename Layout, typename... Arguments>
int64_t mostBytes(const AttentionShape &s, mlir::Type element, Arguments... arguments) {
  // Of all machine levels: what a plan asks for does not depend on them.
  return std::max(Layout(s, element, false, arguments...).bytes(),
                  Layout(s, element, suitsPairs(s, element), arguments...).bytes());
}

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONLAYOUT_H
