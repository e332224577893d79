//===- AttentionPrefetch.h - prefetch rows during products ------*- C++ -*-===//
#ifndef TCC_KERNELS_ATTENTIONPREFETCH_H
#define TCC_KERNELS_ATTENTIONPREFETCH_H

#include "compiler/kernels/AttentionBlock.h"

namespace tcc::train {

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
  /// At most `most` rows of a batch and head from `first` on, or before it at the end.
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

#endif // TCC_KERNELS_ATTENTIONPREFETCH_H
