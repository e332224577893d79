//===- AttentionEmitter.h - IR for one block of attention scores --*- C++ -*-===//
//
// The shared part of attention's kernel and its gradient's. Scores are computed transposed, keys in rows and queries in
// lanes: then keys and values are read in place, one broadcast element after another, the softmax's maxima and sums
// are vectors, and only the queries are transposed, once for all keys.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONEMITTER_H
#define TCC_KERNELS_ATTENTIONEMITTER_H

#include "compiler/dialect/Attention.h"
#include "compiler/kernels/BlockProduct.h"

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

/// Features side by side, and rows of whole words where they are read in pairs: the same at all machine levels.
bool isRowWise(const AttentionShape &s, mlir::Type element, const StridedLayout &layout);

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

class AttentionEmitter {
protected:
  static constexpr int64_t kBlockQueries = AttentionLayout::kBlockQueries;

  AttentionEmitter(LoopBuilder &loops, const AttentionShape &shape, const AttentionLayout &layout);

  /// A block's scores of one vector of queries.
  struct Vector {
    mlir::Value first;   ///< number of its first query
    mlir::Value offset;  ///< that within the block
    mlir::Value active;  ///< lanes that are queries
    mlir::Value rowEnd;  ///< keys from the block's first on that some query sees, rounded up to whole registers' rows
    mlir::Value freeEnd; ///< those that all of its queries see
    mlir::Value halfEnd; ///< causal: what the first half of its queries sees ends before; whole registers' rows, too
  };

  Lane lane(mlir::Value value) { return Lane(math, value); }
  Lane number(double value) { return Lane(math, math.splat(math.constant(s.sumType, value))); }
  MatrixView scratch(int64_t offset, int64_t rowStride, int64_t columnStride = 1) {
    return {MatrixView::kScratch, 0, e.index(offset), rowStride, columnStride};
  }
  /// Words of two bf16 in the scratch.
  MatrixView words(int64_t offset, int64_t rowStride, int64_t columnStride = 1) {
    return {MatrixView::kScratch, 0, e.index(offset), rowStride, columnStride, true};
  }
  static MatrixView operandAt(int number, mlir::Value base, int64_t rowStride) {
    return {MatrixView::kOperand, unsigned(number), base, rowStride, 1};
  }
  static MatrixView resultAt(int number, mlir::Value base, int64_t rowStride) {
    return {MatrixView::kResult, unsigned(number), base, rowStride, 1};
  }
  /// Rows from `first` on of this batch and a head, at the operand's strides.
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofHead, mlir::Value first) {
    return rowsOf(place, number, batch, ofHead, first);
  }
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first);
  Lane load(int64_t scratchOffset, mlir::Value index);
  void store(int64_t scratchOffset, mlir::Value index, mlir::Value value);

  /// Chooses batch and head of the queries, and with it the keys' head.
  void setHead(mlir::Value newBatch, mlir::Value newHead);
  mlir::Value keyHeadOf(mlir::Value ofHead) { return s.groupSize() == 1 ? ofHead : e.divide(ofHead, s.groupSize()); }
  /// Chooses the block of queries.
  void setQueries(mlir::Value first);
  /// Chooses the block of keys, and brings its part of bias and mask to the scratch.
  void setKeys(mlir::Value first);
  /// Keys that some query before `end` sees.
  mlir::Value keysSeenBefore(mlir::Value end);
  /// Steps of a product over so many features, queries or keys.
  int64_t steps(int64_t count) const { return at.pairs ? (count + 1) / 2 : count; }
  mlir::Value steps(mlir::Value count) { return at.pairs ? e.divide(e.plus(count, 1), 2) : count; }
  /// The rows of the block of queries, or keys, in an operand.
  MatrixView queryRows(int operand) { return rowsOf(MatrixView::kOperand, operand, head, queryFirst); }
  MatrixView keyRows(int operand) { return rowsOf(MatrixView::kOperand, operand, keyHead, keyFirst); }
  /// Rows of an operand that are soon read, or of a result that are soon written, to be prefetched: rows at a distance
  /// are no stream that the hardware prefetcher recognises.
  struct RowsAhead {
    MatrixView rows;
    int64_t count, features; ///< all of these rows are the tensor's own
  };
  /// At most `most` rows of a batch and head, the first of them near `first`.
  RowsAhead rowsAhead(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first,
                      int64_t most);
  /// Where a product (BlockEmitter::Product::beside) is, in parts of its result.
  struct Share {
    mlir::Value part;
    int64_t parts;
  };
  /// The result has at most so many rows and columns.
  Share shareOf(mlir::Value row, int64_t rows, mlir::Value column, int64_t columns);
  /// Prefetches this share of the rows: all at once would wait for memory while nothing is multiplied.
  void askFor(const RowsAhead &ahead, const Share &share);
  /// The matrix as a factor whose columns are summed over: itself, or widened in the scratch.
  MatrixView widened(const MatrixView &matrix, int64_t copyOffset, mlir::Value rowEnd, int64_t columnCount);
  /// The same for one whose rows are summed over: for products of pairs, those of neighbouring rows in the scratch.
  /// `odd`: rowEnd may be.
  MatrixView alongRows(const MatrixView &matrix, int64_t copyOffset, mlir::Value rowEnd, bool odd, int64_t columnCount);
  /// Rows of the block of queries, transposed into the scratch: one panel [feature][lane] for each vector of queries.
  void transposeQueries(const MatrixView &from, int64_t to, int64_t features);
  MatrixView panel(int64_t offset, const Vector &v, int64_t features);
  /// The panel as transposeQueries made it.
  MatrixView operandPanel(int64_t offset, const Vector &v, int64_t features);

  /// Each vector of the block's queries: without keys, and with the block's keys.
  void eachVectorOfQueries(llvm::function_ref<void(Vector)> body);
  void eachVector(llvm::function_ref<void(const Vector &)> body);
  /// A block of scores, or of their gradients: rows' products with the vector's panel. Where only the second half of
  /// the queries sees a row, the first half of its lanes is not written.
  /// Rows before `finishEnd` (null: all that are written whole) are what `finish` makes of the sums.
  void multiplyRows(const MatrixView &rows, const MatrixView &panel, const MatrixView &to, const Vector &v,
                    int64_t features, llvm::function_ref<void(mlir::Value row, mlir::Value column)> beside = nullptr,
                    mlir::Value finishEnd = nullptr,
                    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value sum)> finish = nullptr);
  /// The lanes of the second half of a vector's queries, from a row on.
  MatrixView secondHalf(MatrixView lanes, mlir::Value firstRow);
  /// Loops over the rows of a vector's scores, carrying `inits`; `body` is told whether it must exclude lanes.
  llvm::SmallVector<mlir::Value>
  eachRow(const Vector &v, mlir::ValueRange inits,
          llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value row, bool diagonal, mlir::ValueRange)> body);

  /// The scores of row `row` from the product's sums; −∞ where excluded. `slope`, if given, is set to the score's
  /// derivative by the scaled product, where the shape hasSlopes().
  Lane score(Lane product, const Vector &v, mlir::Value row, bool diagonal, std::optional<Lane> *slope = nullptr);
  /// i1: lanes from number `first` on.
  Lane lanesFrom(mlir::Value first);
  /// i1: the weights of row `row` that dropout keeps.
  Lane kept(const Vector &v, mlir::Value row);
  /// The result of score(), scaled.
  Lane scaled(Lane score);
  /// e^(scaled(score) − base − rest).
  Lane expAbove(Lane score, Lane base, std::optional<Lane> rest = std::nullopt);
  /// e^x; 0 where that is below the normal numbers (also for −∞), NaN stays.
  Lane exp(Lane x);

  /// Number of this head's first query among those of all heads.
  mlir::Value queryBase();

  const AttentionShape &s;
  const AttentionLayout &at;
  LoopBuilder &loops;
  mlir::OpBuilder &b;
  mlir::Location loc;
  BlockEmitter e;
  LaneArithmetic math;
  /// score() leaves the scale to expAbove, which multiplies and subtracts in one step: which scores are excluded or the
  /// largest does not depend on it.
  const bool scalesLate;
  mlir::Value batch, head, keyHead;
  mlir::Value queryFirst, queryEnd; ///< of the block; the end is that of the sequence at most
  mlir::Value keyFirst, keyEnd;     ///< of the block; the end is that of the keys which its queries see at most

private:
  struct Term {
    int operand;
    llvm::ArrayRef<int64_t> shape;
    int64_t offset; ///< in the scratch
    ScoreTermForm form;
  };
  MatrixView termMatrix(const Term &term);
  void bringTerm(const Term &term);
  Lane termAt(const Term &term, const Vector &v, mlir::Value row);
  /// i1: the lanes of row `row` that the mask keeps.
  Lane shown(const Vector &v, mlir::Value row);

  Term bias, mask;
  llvm::SmallVector<Lane> randomWords;
};

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONEMITTER_H
