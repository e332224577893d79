//===- BlockProduct.h - small matrix products inside kernels ----*- C++ -*-===//
//
// Products and transposes of blocks in cache for ops with loops of their own (LoopKernel). A product keeps a block of
// the result in registers (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008);
// transposes run in registers. Sizes are compiled in; each element is summed in order, by fused multiply-adds.
//
// If the machine level multiplies pairs of bf16, both factors may be words of two elements: a step of the product is
// then a pair of rows or columns (LoopBuilder::addPairs).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_BLOCKPRODUCT_H
#define TCC_KERNELS_BLOCKPRODUCT_H

#include "compiler/dialect/Lane.h"

namespace tcc::train {

/// Arithmetic on lanes inside a kernel whose loops are its own: operands are loaded by its LoopBuilder.
class LaneArithmetic : public ElementBuilder {
public:
  LaneArithmetic(LoopBuilder &loops, int64_t count) : ElementBuilder(loops.builder, loops.loc), count(count) {}
  int64_t lanes() const override { return count; }
  mlir::Value operand(unsigned, llvm::ArrayRef<Coord>) override { return {}; }
  mlir::Value operandIf(unsigned, llvm::ArrayRef<Coord>, mlir::Value, mlir::Value otherwise) override {
    return otherwise;
  }
  llvm::SmallVector<mlir::Value>
  loop(int64_t, int64_t, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)>) override {
    return llvm::SmallVector<mlir::Value>(inits);
  }

private:
  int64_t count;
};

/// The addresses of a matrix: (row, column) at base + row·rowStride + column·columnStride of an operand, a
/// result or the scratch.
struct MatrixView {
  enum Place { kOperand, kResult, kScratch } place;
  unsigned number; ///< of the operand or result
  mlir::Value base;
  int64_t rowStride, columnStride = 1;
  bool words = false; ///< of two bf16: base, strides and indices count words
};

class BlockEmitter {
public:
  /// Computes in `sumType`: f32 or f64.
  BlockEmitter(LoopBuilder &loops, mlir::Type sumType);

  /// Lanes of a vector of two registers: a power of two from 4 to 32 at every machine level.
  int64_t lanes() const { return width; }
  /// Rows of the result that are in registers at a time: a power of two, at most 8 and at most half of the lanes. So
  /// the columns that transposeIn writes beyond the end, up to half of the lanes, complete the last block of rows.
  int64_t rows() const { return height; }
  static constexpr int64_t kLeastLanes = 4, kMostLanes = 32, kMostRows = 8;

  // Indices.
  mlir::Value index(int64_t value) { return loops.index(value); }
  mlir::Value plus(mlir::Value x, mlir::Value y);
  mlir::Value plus(mlir::Value x, int64_t y);
  mlir::Value minus(mlir::Value x, mlir::Value y);
  mlir::Value times(mlir::Value x, int64_t y);
  mlir::Value least(mlir::Value x, mlir::Value y);
  mlir::Value most(mlir::Value x, mlir::Value y);
  /// x, not negative, rounded up to a multiple of y.
  mlir::Value roundUp(mlir::Value x, int64_t y);
  mlir::Value divide(mlir::Value x, int64_t y);
  mlir::Value remainder(mlir::Value x, int64_t y);
  /// `first` if the predicate holds for `left` and `right`, else `second`.
  mlir::Value choose(mlir::arith::CmpIPredicate predicate, mlir::Value left, mlir::Value right, mlir::Value first,
                     mlir::Value second);
  mlir::Value indexOf(const MatrixView &m, mlir::Value row, mlir::Value column);

  void each(mlir::Value lower, mlir::Value upper, int64_t step, llvm::function_ref<void(mlir::Value)> body);
  /// Runs `body` where `condition` (i1) holds.
  void when(mlir::Value condition, llvm::function_ref<void()> body);
  /// Vectors of `count` columns: full ones, then a shorter one, masked by `active` (null: all of its lanes).
  void columns(int64_t count, llvm::function_ref<void(mlir::Value column, int64_t lanes, mlir::Value active)> body);

  /// One element, or several lanes of a row, in the type of sums; words as i32.
  mlir::Value load(const MatrixView &m, mlir::Value index, int64_t count = 1, mlir::Value active = nullptr);
  void store(const MatrixView &m, mlir::Value index, mlir::Value value, mlir::Value active = nullptr);
  mlir::Value splat(mlir::Value scalar, int64_t count);
  mlir::Value zeros(int64_t count);

  /// c = a·b, or c·scale + a·b, for rows [0, rowEnd) of c and `columns` columns. `rowEnd` is a multiple of rows(), or
  /// such a multiple plus `tail` (0: always a multiple). A row of c sums over `depth(row)`: first and last + 1, the
  /// same for all rows of a block of rows().
  struct Product {
    MatrixView a, b, c;
    mlir::Value rowEnd;
    int64_t tail, columns;
    llvm::function_ref<std::pair<mlir::Value, mlir::Value>(mlir::Value row)> depth;
    ///< Counted in words if a and b are words.
    bool accumulate = true;
    mlir::Value scale = {}; ///< of each column, as many as there are lanes; null: 1
    /// Work that may overlap with the sums: emitted once for each of c's blocks of registers, before its sums.
    llvm::function_ref<void(mlir::Value row, mlir::Value column)> beside = nullptr;
    /// The value to store for a vector of sums of a row.
    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value sum)> finish = nullptr;
  };
  void multiply(const Product &p);

  /// to(column, row) = from(row, column) for `rowCount` rows, a multiple of lanes(), from row 0 on, and columns
  /// [columnBegin, columnEnd) of `columnExtent` ones; columnBegin is a multiple of lanes(). Rows from `rowLimit` on
  /// (null: none) are not read and count as 0. May write a few columns beyond columnEnd, up to `columnExtent`.
  void transposeIn(const MatrixView &from, const MatrixView &to, int64_t rowCount, mlir::Value rowLimit,
                   mlir::Value columnBegin, mlir::Value columnEnd, int64_t columnExtent);
  /// to(column, row) = from(row, column) for `rowCount` rows and lanes() columns. Writes only rows below `rowLimit`
  /// (null: all) and columns below `columnLimit` (null: all).
  void transposeOut(const MatrixView &from, const MatrixView &to, int64_t rowCount, mlir::Value rowLimit,
                    mlir::Value columnLimit);
  /// Copies rows [0, rowEnd) with `columnCount` columns.
  void copyRows(const MatrixView &from, const MatrixView &to, mlir::Value rowEnd, int64_t columnCount);
  void zeroRows(const MatrixView &to, mlir::Value rowEnd, int64_t columnCount);

  /// Interleaves two vectors of bf16 (i16): word j holds element j of both.
  mlir::Value paired(mlir::Value low, mlir::Value high);
  /// Interleaves each two rows of `wordCount` words into one row whose word for column j holds element j of both. With
  /// `odd`, rowEnd may be odd; the missing row then counts as 0.
  void pairRows(const MatrixView &from, const MatrixView &to, mlir::Value rowEnd, bool odd, int64_t wordCount);
  /// Runs `body` for rows 0, 2, … below rowEnd, each with its successor, carrying `inits`. With `odd`, rowEnd may be
  /// odd; the last row is then `alone`.
  llvm::SmallVector<mlir::Value>
  eachPair(mlir::Value rowEnd, bool odd, mlir::ValueRange inits,
           llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value row, bool alone, mlir::ValueRange)> body);

private:
  void multiplyRows(const Product &p, mlir::Value row, int64_t count, mlir::Value column, int64_t lanes,
                    mlir::Value active);
  void transposeSquare(llvm::SmallVector<mlir::Value> &rows);

  LoopBuilder &loops;
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type sumType;
  int64_t width, height;
};

} // namespace tcc::train

#endif // TCC_KERNELS_BLOCKPRODUCT_H
