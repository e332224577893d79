//===- AttentionFactors.h - operands as factors of products -----*- C++ -*-===//
#ifndef TCC_KERNELS_ATTENTIONFACTORS_H
#define TCC_KERNELS_ATTENTIONFACTORS_H

#include "compiler/kernels/AttentionBlock.h"

namespace tcc::train {

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

} // namespace tcc::train

#endif // TCC_KERNELS_ATTENTIONFACTORS_H
