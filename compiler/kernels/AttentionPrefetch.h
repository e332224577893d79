//===- AttentionPrefetch.h - rows that are soon read or written -*- C++ -*-===//
#ifndef TCC_KERNELS_ATTENTIONPREFETCH_H
#define TCC_KERNELS_ATTENTIONPREFETCH_H

#include "compiler/kernels/AttentionBlock.h"

namespace tcc::train {

/// Asks memory for rows beside products: rows at a distance are no stream that the hardware prefetcher recognises, and
/// all at once would be waited for while nothing is multiplied.
class AttentionPrefetch {
public:
  AttentionPrefetch(AttentionCode &code, AttentionBlock &block) : c(code), block(block), e(code.e) {}

  /// Rows of an operand that are soon read, or of a result that are soon written.
  struct Rows {
    MatrixView rows;
    int64_t count, features; ///< all of these rows are the tensor's own
  };
  /// At most `most` rows of a batch and head, the first of them near `first`.
  Rows rows(MatrixView::Place place, int number, mlir::Value ofBatch, mlir::Value ofHead, mlir::Value first,
            int64_t most);

  /// Where a product (BlockEmitter::Product::beside) is, in parts of its result.
  struct Share {
    mlir::Value part;
    int64_t parts;
  };
  /// The result has at most so many rows and columns.
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
