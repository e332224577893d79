//===- ColumnSums.h - kernels of rows that also sum columns -----*- C++ -*-===//
//
// The gradient of a norm reduces each row of a tensor, writes a row of the result, and adds both up over the rows for
// the gradients of scale and shift. Such a region has reductions of rows and reductions of columns over one shape:
//
//   %r = reduce sum %x [2] : 64x512x768 -> 64x512x1      of rows
//   %c = reduce sum %y [1] : 64x512x768 -> 64x1x768      of columns; %y may need %r
//
// Its kernel walks over the rows of a part (one of the 64 here) in their order, and keeps the columns' sums meanwhile.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_COLUMNSUMS_H
#define TCC_DIALECT_COLUMNSUMS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// The reductions of columns in such a region, in their order. Empty if the region has another form: all reductions
/// have to be over one shape, those of rows over its last dimension longer than 1 alone, those of columns over the same
/// other dimensions; and neither a reduction nor a value of an element or a row may depend on a column's sum.
llvm::SmallVector<ReduceOp> columnSumsOf(FusedOp fused);

} // namespace tcc::train

#endif // TCC_DIALECT_COLUMNSUMS_H
