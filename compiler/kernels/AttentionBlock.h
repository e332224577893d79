//===- AttentionBlock.h - where an attention kernel is ----------*- C++ -*-===//
//
// A kernel walks through blocks of scores: those of some queries and keys of a head. Scores are computed transposed,
// keys in rows and queries in lanes: then keys and values are read in place, one broadcast element after another, the
// softmax's maxima and sums are vectors, and only the queries are transposed, once for all keys.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONBLOCK_H
#define TCC_KERNELS_ATTENTIONBLOCK_H

#include "compiler/kernels/AttentionLayout.h"
#include "compiler/kernels/BlockProduct.h"

namespace tcc::train {

/// What the parts of a kernel write IR with: its shape, its scratch, numbers and lanes.
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
  /// A vector at an offset of the scratch and an index from there.
  Lane load(int64_t scratchOffset, mlir::Value index);
  void store(int64_t scratchOffset, mlir::Value index, mlir::Value value);
  /// Steps of a product over so many features, queries or keys.
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

/// A block's scores of one vector of queries.
struct QueryVector {
  mlir::Value first;   ///< number of its first query
  mlir::Value offset;  ///< that within the block
  mlir::Value active;  ///< lanes that are queries
  mlir::Value rowEnd;  ///< keys from the block's first on that some query sees, rounded up to whole registers' rows
  mlir::Value freeEnd; ///< those that all of its queries see
  mlir::Value halfEnd; ///< causal: what the first half of its queries sees ends before; whole registers' rows, too
};

/// The batch, head and block of queries and keys that the code which is written next is about.
class AttentionBlock {
public:
  explicit AttentionBlock(AttentionCode &code) : c(code), s(code.s), e(code.e) {}

  /// Chooses batch and head of the queries, and with it the keys' head.
  void setHead(mlir::Value newBatch, mlir::Value newHead);
  /// Chooses the block of queries.
  void setQueries(mlir::Value first);
  /// Chooses the block of keys.
  void setKeys(mlir::Value first);

  mlir::Value keyHeadOf(mlir::Value ofHead) { return s.groupSize() == 1 ? ofHead : e.divide(ofHead, s.groupSize()); }
  /// Keys that some query before `end` sees.
  mlir::Value keysSeenBefore(mlir::Value end);
  /// Number of this head's first query among those of all heads.
  mlir::Value queryBase() { return e.times(e.plus(e.times(batch, s.heads), head), s.queries); }

  /// Rows from `first` on of a batch and a head, at the operand's strides.
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first);
  /// Of this batch.
  MatrixView rowsOf(MatrixView::Place place, int number, mlir::Value ofHead, mlir::Value first) {
    return rowsOf(place, number, batch, ofHead, first);
  }
  /// The rows of the block of queries, or keys, in an operand.
  MatrixView queryRows(int operand) { return rowsOf(MatrixView::kOperand, operand, head, queryFirst); }
  MatrixView keyRows(int operand) { return rowsOf(MatrixView::kOperand, operand, keyHead, keyFirst); }

  /// Each vector of the block's queries: without keys, and with the block's keys.
  void eachVectorOfQueries(llvm::function_ref<void(QueryVector)> body);
  void eachVector(llvm::function_ref<void(const QueryVector &)> body);
  /// Loops over the rows of a vector's scores, carrying `inits`; `body` is told whether it must exclude lanes.
  llvm::SmallVector<mlir::Value>
  eachRow(const QueryVector &v, mlir::ValueRange inits,
          llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value row, bool diagonal, mlir::ValueRange)> body);

  mlir::Value batch, head, keyHead;
  mlir::Value queryFirst, queryEnd; ///< of the block; the end is that of the sequence at most
  mlir::Value keyFirst, keyEnd;     ///< of the block; the end is that of the keys which its queries see at most

private:
  AttentionCode &c;
  const AttentionShape &s;
  BlockEmitter &e;
};

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONBLOCK_H
