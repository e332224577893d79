//===- StridedLayout.h - tensors that lie in others -------------*- C++ -*-===//
//
// What moves elements without computing (transposes, slices, reshapes, concatenations) is a matter of strides for loops
// that look their elements up by strides. The layout of one side of such an op follows from that of the other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_STRIDEDLAYOUT_H
#define TCC_DIALECT_STRIDEDLAYOUT_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// Row-major, nothing between elements. Dimensions of extent 1 have stride 0 in all layouts.
StridedLayout denseLayout(llvm::ArrayRef<int64_t> shape);

/// How the result of a movement with one operand lies where its operand does, read there; nothing where strides cannot
/// say it.
std::optional<StridedLayout> layoutOfResult(mlir::Operation *movement, const StridedLayout &operand);
/// How operand `number` of a movement lies where its result does, written there; nothing where strides cannot say it,
/// or where an element has no copy or several.
std::optional<StridedLayout> layoutOfOperand(mlir::Operation *movement, unsigned number, const StridedLayout &result);

/// An operand of a kernel whose loops are its own lies in an argument of its region, a result in what the region
/// yields.
struct PlacedTensor {
  unsigned number; ///< of the argument, or of the yielded value
  StridedLayout layout;
};
std::optional<PlacedTensor> placeOfOperand(LoopKernel kernel, unsigned operand);
std::optional<PlacedTensor> placeOfResult(LoopKernel kernel, unsigned result);

} // namespace tcc::train

#endif // TCC_DIALECT_STRIDEDLAYOUT_H
