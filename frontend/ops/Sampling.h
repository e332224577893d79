//===- Sampling.h - importers that read elements at computed places -*- C++ -*-===//
//
// Resizes, padding with the tensor's own elements, regions and grids are all weighted sums of elements: along one axis
// by a table known at compile time, or over all spatial axes at positions that depend on data.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_OPS_SAMPLING_H
#define TCC_FRONTEND_OPS_SAMPLING_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// An element that an output reads, and its weight.
struct Tap {
  int64_t index;
  double weight;
};
/// For each output along an axis, the elements that it reads.
using TapTable = std::vector<std::vector<Tap>>;

/// Applies `table` along axis `dim` of `x`. Integers and booleans are interpolated in f32, unless each output is a
/// single element.
mlir::Value resample(NodeImport &n, mlir::Value x, int64_t dim, const TapTable &table);

/// The type in which positions and weights are computed for elements of this type.
inline mlir::Type weightType(NodeImport &n, mlir::Type element) {
  return element.isF64() ? element : mlir::Type(n.builder.getF32Type());
}

/// The taps of one spatial axis: [.., t, ..] indices of i32, −1 for no element, and their weights.
struct AxisTaps {
  train::Expr index, weight;
};

/// Combines the taps of all axes, which broadcast: row-major indices into a tensor of `extents` (−1 if one axis has
/// −1), and products of weights.
AxisTaps combined(llvm::ArrayRef<AxisTaps> axes, llvm::ArrayRef<int64_t> extents);

/// The two elements beside `position`, each weighted by the distance of the other; elements outside [0, extent) are
/// left out. They are along a new axis `dim` of extent 2.
AxisTaps linearTaps(const train::Expr &position, int64_t extent, int64_t dim);

/// result[b, c, p] = Σ_t weights[b, t, p]·x[b, c, indices[b, t, p]].
mlir::Value sample(NodeImport &n, mlir::Value x, const AxisTaps &taps);

/// Clamps x to [`low`, `high`], with gradient 0 outside; NaN becomes `low`.
train::Expr clampFlat(const train::Expr &x, double low, double high);

/// Values one after another along `dim`.
train::Expr concatenated(llvm::ArrayRef<train::Expr> parts, int64_t dim);

/// A tensor of f64 or f32 (as `element` says) with these values.
mlir::Value floats(NodeImport &n, llvm::ArrayRef<int64_t> shape, mlir::Type element, llvm::ArrayRef<double> values);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_SAMPLING_H
