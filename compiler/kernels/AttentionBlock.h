//===- AttentionBlock.h - blocks of queries and keys ------------*- C++ -*-===//
//
// A kernel processes blocks of scores, of some queries and some keys of a head. Scores are computed transposed, keys in
// rows and queries in lanes: keys and values are read in place and broadcast element by element, the softmax's maxima
// and sums are vectors, and only the queries are transposed, once for all keys.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_ATTENTIONBLOCK_H
#define TCC_KERNELS_ATTENTIONBLOCK_H

#include "compiler/kernels/AttentionLayout.h"
#include "compiler/kernels/BlockProduct.h"

namespace tcc::train {

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

  mlir::Value keyHeadOf(mlir::Value ofHead) { return s.groupSize() == 1 ? ofHead : e.divide(ofHead, s.groupSize()); }
  /// Keys that some query before `end` sees.
  mlir::Value keysSeenBefore(mlir::Value end);
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
};

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONBLOCK_H
