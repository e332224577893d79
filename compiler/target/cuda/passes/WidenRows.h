//===- WidenRows.h - compute on padded rows instead of sliced ones ---------===//
#ifndef TCC_COMPILER_TARGET_CUDA_PASSES_WIDENROWS_H
#define TCC_COMPILER_TARGET_CUDA_PASSES_WIDENROWS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// `slice` removes the padding at the end of rows (its last dimension): zeros, or NaN in a row that holds a NaN or an
/// infinity. Elementwise ops on the sliced rows compute on whole rows instead, as far as possible: reductions along
/// rows ignore the padding, pads that restore the whole length write zeros into it, and other readers get a slice. Each
/// element keeps its value; a sum along a row may have another tree.
void widenRows(SliceOp slice);

} // namespace tcc::train

#endif // TCC_COMPILER_TARGET_CUDA_PASSES_WIDENROWS_H
