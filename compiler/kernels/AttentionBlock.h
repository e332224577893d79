//===- AttentionBlock.h - blocks of queries and keys ------------*- C++ -*-===//
//
// A kernel processes blocks of scores: some queries and some keys of a head. Scores are computed transposed, keys in
// rows and queries in lanes: keys and values are read in place and broadcast element by element, the softmax's maxima
// and sums are vectors, and only the queries are transposed, once for all keys.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONBLOCK_H
#define TCC_KERNELS_ATTENTIONBLOCK_H

#include "compiler/dialect/Attention.h"
#include "compiler/kernels/BlockProduct.h"
#include "compiler/kernels/ScoreFormula.h"

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

/// True if a row's `features` elements are contiguous, as the kernels' vectors need (a broadcast row has one element),
/// and if rows that may be read in pairs are whole words: bf16 at all machine levels, f16 if warps read it (`wordRows`,
/// names::kWordRows).
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

/// Helpers shared by the parts of a kernel to emit IR: its shape, scratch, numbers and lanes.
struct AttentionCode {
  static constexpr int64_t kBlockQueries = AttentionLayout::kBlockQueries;

  AttentionCode(LoopBuilder &loops, const AttentionShape &shape, const AttentionLayout &layout)
      : s(shape), layout(layout), loops(loops), b(loops.builder), loc(loops.loc), e(loops, shape.sumType),
        math(loops, e.lanes()) {}

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
  /// The vector at scratchOffset + index of the scratch.
  Lane load(int64_t scratchOffset, mlir::Value index);
  void store(int64_t scratchOffset, mlir::Value index, mlir::Value value);
  /// Steps of a product over `count` features, queries or keys.
  int64_t steps(int64_t count) const { return layout.pairs ? (count + 1) / 2 : count; }
  mlir::Value steps(mlir::Value count) { return layout.pairs ? e.divide(e.plus(count, 1), 2) : count; }
  /// i1: lanes from number `first` on.
  Lane lanesFrom(mlir::Value first);

  const AttentionShape &s;
  const AttentionLayout &layout;
  LoopBuilder &loops;
  mlir::OpBuilder &b;
  mlir::Location loc;
  BlockEmitter e;
  LaneArithmetic math;
};

/// One vector of queries, and the range of the block's keys that they see.
struct QueryVector {
  mlir::Value first;   ///< number of its first query
  mlir::Value offset;  ///< of that query in the block
  mlir::Value active;  ///< number of lanes that are queries
  mlir::Value rowEnd;  ///< number of the block's first keys that some query sees, rounded up to a product's rows()
  mlir::Value freeEnd; ///< number of the block's first keys that all queries see
  mlir::Value halfEnd; ///< causal: end of the keys that the first half of the queries sees, rounded up to rows()
};

/// The current batch, head and blocks of queries and keys of the emitted code.
class AttentionBlock {
public:
  explicit AttentionBlock(AttentionCode &code) : c(code), s(code.s), e(code.e) {}

  /// Sets batch and head of the queries, and the keys' head with it.
  void setHead(mlir::Value newBatch, mlir::Value newHead);
  /// Sets the block of queries.
  void setQueries(mlir::Value first);
  /// Sets the block of keys.
  void setKeys(mlir::Value first);

  /// Ends the keys of this batch before those that are only padding: AttentionScores::shownEnd(). Null: none are.
  void endKeysAt(mlir::Value end) { shownEnd = end; }
  bool endsAtPadding() const { return bool(shownEnd); }

  mlir::Value keyHeadOf(mlir::Value ofHead) { return s.groupSize() == 1 ? ofHead : e.divide(ofHead, s.groupSize()); }
  /// Keys that some query before `end` sees, and that are not only padding.
  mlir::Value keysSeenBefore(mlir::Value end);
  /// The end of the keys that are not only padding.
  mlir::Value keysShown() { return shownEnd ? shownEnd : e.index(s.keys); }
  /// Index of this head's first query among the queries of all heads.
  mlir::Value queryBase() { return e.times(e.plus(e.times(batch, s.heads), head), s.queries); }

  /// Rows from `first` on of a batch and a head, at the operand's strides.
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first);
  /// The same in this batch.
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofHead, mlir::Value first) {
    return rowsOf(place, number, batch, ofHead, first);
  }
  /// The rows of the block of queries, or keys, in an operand.
  MatrixView queryRows(int operand) { return rowsOf(MatrixView::kOperand, operand, head, queryFirst); }
  MatrixView keyRows(int operand) { return rowsOf(MatrixView::kOperand, operand, keyHead, keyFirst); }

  /// Runs `body` for each vector of the block's queries: without key ranges, and with those of the block.
  void eachVectorOfQueries(llvm::function_ref<void(QueryVector)> body);
  void eachVector(llvm::function_ref<void(const QueryVector &)> body);
  /// Loops over the rows of a vector's scores, carrying `inits`; `body` is told whether it must exclude lanes.
  llvm::SmallVector<mlir::Value>
  eachRow(const QueryVector &v, mlir::ValueRange inits,
          llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value row, bool diagonal, mlir::ValueRange)> body);

  mlir::Value batch, head, keyHead;
  mlir::Value queryFirst, queryEnd; ///< of the block; the end is clamped to the sequence
  mlir::Value keyFirst, keyEnd;     ///< of the block; the end is clamped to the keys that its queries see

private:
  AttentionCode &c;
  const AttentionShape &s;
  BlockEmitter &e;
  mlir::Value shownEnd; ///< null: s.keys
};

/// Prepares rows of operands for products: unchanged, widened, in pairs or transposed. Emits the products that make a
/// block of scores, or of their gradients.
class AttentionFactors {
public:
  AttentionFactors(AttentionCode &code, AttentionBlock &block) : c(code), block(block), e(code.e) {}

  /// The matrix as a factor of a product that sums over its columns: itself, or widened in the scratch.
  MatrixView widened(const MatrixView &matrix, int64_t copyOffset, mlir::Value rowEnd, int64_t columnCount);
  /// The same for a product that sums over its rows: products of pairs get words of neighbouring rows in the scratch.
  /// `odd`: rowEnd may be odd.
  MatrixView alongRows(const MatrixView &matrix, int64_t copyOffset, mlir::Value rowEnd, bool odd, int64_t columnCount);
  /// Rows of the block of queries, transposed into the scratch: one panel [feature][lane] for each vector of queries.
  void transposeQueries(const MatrixView &from, int64_t to, int64_t features);
  MatrixView panel(int64_t offset, const QueryVector &v, int64_t features);
  /// The panel of a vector of queries that transposeQueries made.
  MatrixView operandPanel(int64_t offset, const QueryVector &v, int64_t features);
  /// The lanes of the second half of a vector's queries, from a row on.
  MatrixView secondHalf(MatrixView lanes, mlir::Value firstRow);

  /// Computes a block of scores, or of their gradients: products of rows with the vector's panel. Does not write the
  /// first half of a row's lanes if only the second half of the queries sees the row.
  /// Applies `finish` to the sums of rows before `finishEnd` (null: of all rows that are written whole).
  void multiplyRows(const MatrixView &rows, const MatrixView &panel, const MatrixView &to, const QueryVector &v,
                    int64_t features, llvm::function_ref<void(mlir::Value row, mlir::Value column)> beside = nullptr,
                    mlir::Value finishEnd = nullptr,
                    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value sum)> finish = nullptr);

private:
  AttentionCode &c;
  AttentionBlock &block;
  BlockEmitter &e;
};

/// Emits scores and weights from products of queries and keys: scale, cap, bias, masks, the exponential and dropout.
class AttentionScores {
public:
  AttentionScores(AttentionCode &code, AttentionBlock &block);

  /// Transposes the part of full biases and masks for the block's current queries and keys into the scratch.
  void bringTerms();

  /// The scores of row `row` from the product's sums; −∞ where excluded. `slope`, if given, is set to the score's
  /// derivative by the scaled product, where the shape hasSlopes().
  Lane score(Lane product, const QueryVector &v, mlir::Value row, bool diagonal, std::optional<Lane> *slope = nullptr);
  /// i1: the weights of row `row` that dropout keeps.
  Lane kept(const QueryVector &v, mlir::Value row);
  /// The end of the block's batch: behind the last key that a bias or mask for all queries shows. Weights of later keys
  /// are 0 exactly, so the bits are those without it. Null: there is no such bias or mask.
  mlir::Value shownEnd();

  const ScoreFormula formula;

private:
  /// A bias or mask.
  struct Term {
    int operand;
    llvm::ArrayRef<int64_t> shape;
    int64_t offset; ///< in the scratch
    ScoreTermForm form;
  };
  MatrixView matrixOf(const Term &term);
  void bring(const Term &term);
  Lane at(const Term &term, const QueryVector &v, mlir::Value row);
  /// i1: the lanes of row `row` that the mask keeps.
  Lane shown(const QueryVector &v, mlir::Value row);

  AttentionCode &c;
  AttentionBlock &block;
  Term bias, mask;
  llvm::SmallVector<Lane> randomWords;
};

/// Prefetches rows during products: the hardware prefetcher does not recognise strided rows as a stream, and reading
/// them all at once would stall the products.
class AttentionPrefetch {
public:
  AttentionPrefetch(AttentionCode &code, AttentionBlock &block) : c(code), block(block), e(code.e) {}

  /// Rows of an operand that are soon read, or of a result that are soon written.
  struct Rows {
    MatrixView rows;
    int64_t count, features; ///< these rows are inside the tensor
  };
  /// At most `most` rows of a batch and head from `first` on; near the end of the tensor, the last rows.
  Rows rows(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first,
            int64_t most);

  /// The progress of a product (BlockEmitter::Product::beside): block `part` of its `parts` blocks of registers.
  struct Share {
    mlir::Value part;
    int64_t parts;
  };
  /// At a row and column of a result that has at most `rows` rows and `columns` columns.
  Share share(mlir::Value row, int64_t rows, mlir::Value column, int64_t columns);

  /// Prefetches this share of the rows.
  void ask(const Rows &ahead, const Share &share);

private:
  AttentionCode &c;
  AttentionBlock &block;
  BlockEmitter &e;
};

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONBLOCK_H
