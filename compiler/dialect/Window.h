//===- Window.h - sliding windows -------------------------------*- C++ -*-===//
//
// The common part of convolutions and pooling. Output q and offset k of a window read input q·stride − pad +
// k·dilation.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_WINDOW_H
#define TCC_DIALECT_WINDOW_H

#include "compiler/dialect/Lane.h"
#include "compiler/dialect/TrainDialect.h"

#include <algorithm>

namespace tcc::train {

/// Reorders N, C, spatial to N, spatial, C; and back.
template <typename T> llvm::SmallVector<T> toChannelsLast(llvm::ArrayRef<T> dims) {
  llvm::SmallVector<T> result(dims);
  std::rotate(result.begin() + 1, result.begin() + 2, result.end());
  return result;
}
template <typename T> llvm::SmallVector<T> toChannelsFirst(llvm::ArrayRef<T> dims) {
  llvm::SmallVector<T> result(dims);
  std::rotate(result.begin() + 1, result.end() - 1, result.end());
  return result;
}

/// A window over spatial dimensions.
struct Window {
  llvm::ArrayRef<int64_t> strides, dilations, pads;

  size_t rank() const { return strides.size(); }
  /// The input that output `q` reads at offset `k`, in dimension d.
  int64_t input(size_t d, int64_t q, int64_t k) const { return q * strides[d] - pads[d] + k * dilations[d]; }
  /// The same in all dimensions; false if the input is outside `extents`.
  bool input(llvm::ArrayRef<int64_t> q, llvm::ArrayRef<int64_t> k, llvm::ArrayRef<int64_t> extents,
             llvm::SmallVectorImpl<int64_t> &in) const;
};

/// Coordinates of a window's element, and an i1 that it exists (null: always).
struct WindowElement {
  llvm::SmallVector<Coord> coords;
  mlir::Value inside;
};
/// Inputs that outputs `q` read at offsets `k` (i64 loop counters); kernel extents bound the offsets.
WindowElement inputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> q, mlir::ValueRange k,
                       llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> inputs, llvm::ArrayRef<int64_t> outputs);
/// The reverse: outputs whose windows have the inputs `in` at offset `k`.
WindowElement outputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> in, mlir::ValueRange k,
                        llvm::ArrayRef<int64_t> outputs);

/// A window that contains an input.
struct HoldingWindow {
  llvm::SmallVector<Coord> coords;  ///< of the window; if the window does not exist, of an existing one
  llvm::SmallVector<Coord> offsets; ///< of the input in it
  mlir::Value inside;               ///< whether there is one: an i1 for all lanes if `uniform`, else for each lane
  bool uniform;
};
/// The most windows that can contain an input, in each dimension: with a stride above 1 fewer than the kernel's extent.
llvm::SmallVector<int64_t> mostWindowsOfInput(const Window &window, llvm::ArrayRef<int64_t> kernel);
/// Window `number` (i64 loop counters) of those that contain the inputs `in`. Offsets of inputs ascend with the number.
HoldingWindow windowOfInput(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> in,
                            mlir::ValueRange number, llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> outputs);

/// coord, clamped to [0, size − 1].
Coord clampCoord(ElementBuilder &builder, const Coord &coord, int64_t size);
/// Row-major number of an element in its window, an i32 per lane.
mlir::Value offsetInWindow(ElementBuilder &builder, llvm::ArrayRef<Coord> offsets, llvm::ArrayRef<int64_t> kernel);

/// Operand at `coords` where `inside` (null: everywhere), else `otherwise`.
mlir::Value operandInside(ElementBuilder &builder, unsigned operand, llvm::ArrayRef<Coord> coords, mlir::Value inside,
                          mlir::Value otherwise);

/// Loops over `extents`, outermost first, carrying `inits`.
llvm::SmallVector<mlir::Value>
loopNest(ElementBuilder &builder, llvm::ArrayRef<int64_t> extents, mlir::ValueRange inits,
         llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange counters, mlir::ValueRange carried)> body);

/// The same, but short loops are unrolled, with constant counters.
llvm::SmallVector<mlir::Value> unrolledNest(
    ElementBuilder &builder, llvm::ArrayRef<int64_t> extents, mlir::ValueRange inits,
    llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange counters, mlir::ValueRange carried)> body);

/// acc + x·y: fused for floats.
inline mlir::Value multiplyAdd(ElementBuilder &builder, mlir::Value x, mlir::Value y, mlir::Value accumulator) {
  Lane left(builder, x), right(builder, y), sum(builder, accumulator);
  return left.isFloat() ? left.fma(right, sum) : sum + left * right;
}

/// The same where `inside` (null: everywhere), else acc: an infinite weight outside the input must not give NaN.
inline mlir::Value multiplyAddInside(ElementBuilder &builder, mlir::Value x, mlir::Value y, mlir::Value accumulator,
                                     mlir::Value inside) {
  mlir::Value sum = multiplyAdd(builder, x, y, accumulator);
  return inside ? mlir::arith::SelectOp::create(builder.builder, builder.loc, inside, sum, accumulator).getResult()
                : sum;
}

} // namespace tcc::train

#endif // TCC_DIALECT_WINDOW_H
