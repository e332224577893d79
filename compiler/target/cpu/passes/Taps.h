//===- Taps.h - which elements the taps of a convolution reach --*- C++ -*-===//
//
// A tap, an element of the kernel along an axis, reads the input at a fixed distance from the output's element. If that
// distance is a large part of the axis, the tap reads padding for many outputs: it reaches only some outputs, or none.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CPU_PASSES_TAPS_H
#define TCC_COMPILER_TARGET_CPU_PASSES_TAPS_H

#include "compiler/dialect/Builders.h"
#include "compiler/dialect/TrainDialect.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace tcc::train {

/// Multiply-adds that take as long as copying one element.
inline constexpr double kCopiedElement = 32;

/// A convolution along one axis.
struct TapAxis {
  int64_t input, output, kernel, stride, dilation, pad;

  /// Index of the input element that tap `tap` reads for output 0; negative: padding before the input.
  int64_t offset(int64_t tap) const { return tap * dilation - pad; }
  /// Outputs [first, end) for which the tap reads an element of the input.
  std::pair<int64_t, int64_t> reached(int64_t tap) const {
    int64_t first = offset(tap) < 0 ? llvm::divideCeil(-offset(tap), stride) : 0;
    int64_t end = input > offset(tap) ? llvm::divideCeil(input - offset(tap), stride) : 0;
    return {std::min(first, output), std::max(std::min(end, output), std::min(first, output))};
  }
  bool reaches(int64_t tap) const { return reached(tap).first < reached(tap).second; }
  /// Share of a direct convolution's multiplications that read the input, not padding.
  double share() const {
    int64_t all = 0;
    for (int64_t tap = 0; tap < kernel; ++tap)
      all += reached(tap).second - reached(tap).first;
    return double(all) / double(kernel * output);
  }
};

/// The axes of a channels-last convolution or one of its gradients; `input` and `output` are those of the convolution.
template <typename OpTy>
llvm::SmallVector<TapAxis> tapAxesOf(OpTy op, mlir::Value input, mlir::Value output, mlir::Value weight) {
  llvm::SmallVector<TapAxis> axes;
  for (size_t axis = 0; axis < op.getStrides().size(); ++axis)
    axes.push_back({shapeOf(input)[axis + 1], shapeOf(output)[axis + 1], shapeOf(weight)[axis + 2],
                    op.getStrides()[axis], op.getDilations()[axis], op.getPadsBegin()[axis]});
  return axes;
}
inline llvm::SmallVector<TapAxis> tapAxesOf(ConvOp op) {
  return tapAxesOf(op, op.getInput(), op.getResult(), op.getWeight());
}
inline llvm::SmallVector<TapAxis> tapAxesOf(ConvInputGradOp op) {
  return tapAxesOf(op, op.getResult(), op.getGrad(), op.getWeight());
}
inline llvm::SmallVector<TapAxis> tapAxesOf(ConvWeightGradOp op) {
  return tapAxesOf(op, op.getInput(), op.getGrad(), op.getResult());
}

} // namespace tcc::train

#endif // TCC_COMPILER_TARGET_CPU_PASSES_TAPS_H
