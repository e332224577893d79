//===- Slices.h - boxes of tensors ---------------------------------------===//
#ifndef TCC_RUNTIME_STATE_SLICES_H
#define TCC_RUNTIME_STATE_SLICES_H

#include "runtime/state/Manifest.h"

#include <span>

namespace tcc::runtime {

/// True if a slice is a range of the elements of a tensor of `shape` in row-major order, instead of a box of its axes.
bool isFlat(const TensorSlice &slice, const std::vector<uint64_t> &shape);

/// Copies a slice's elements, dense and row-major in `from`, to their positions in a tensor of `shape`.
void copySlice(const TensorSlice &slice, std::span<const std::byte> from, const std::vector<uint64_t> &shape,
               uint64_t elementBytes, std::byte *to);

/// The type of a slice of a tensor.
plan::TensorType sliceType(const plan::TensorType &whole, const TensorSlice &slice);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_SLICES_H
