//===- StridedLayout.h - strides of tensors that alias parts of others --*- C++ -*-===//
//
// Loops that address elements by strides can absorb ops that only move elements (transposes, slices, reshapes,
// concatenations): the layout of one side of such an op follows from that of the other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_STRIDEDLAYOUT_H
#define TCC_DIALECT_STRIDEDLAYOUT_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// Row-major without gaps. Dimensions of extent 1 have stride 0 in all layouts.
StridedLayout denseLayout(llvm::ArrayRef<int64_t> shape);

/// True if every element of a tensor of `shape` is inside memory of `elements` elements.
bool isInside(const StridedLayout &layout, llvm::ArrayRef<int64_t> shape, int64_t elements);

/// The layout of a movement's result inside its only operand, for reading it there; nothing if strides cannot express
/// it.
std::optional<StridedLayout> layoutOfResult(mlir::Operation *movement, const StridedLayout &operand);
/// The layout of operand `number` inside a movement's result, for writing it there; nothing if strides cannot express
/// it, or if an element has no copy or several.
std::optional<StridedLayout> layoutOfOperand(mlir::Operation *movement, unsigned number, const StridedLayout &result);

/// The memory of a LoopKernel's operand or result: an argument of its region, or a value that the region yields.
struct PlacedTensor {
  unsigned number; ///< of the argument, or of the yielded value
  StridedLayout layout;
};
std::optional<PlacedTensor> placeOfOperand(LoopKernel kernel, unsigned operand);
std::optional<PlacedTensor> placeOfResult(LoopKernel kernel, unsigned result);

} // namespace tcc::train

#endif // TCC_DIALECT_STRIDEDLAYOUT_H
