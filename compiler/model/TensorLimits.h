//===- TensorLimits.h - the largest tensor of a model -----------*- C++ -*-===//
//
// Checked wherever a shape comes from outside or grows: at import, and by losses that make tables. docs/guide/limits.md
// lists all limits with their tests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_MODEL_TENSORLIMITS_H
#define TCC_COMPILER_MODEL_TENSORLIMITS_H

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <string>

namespace tcc {

/// Bytes of one tensor. Sums over all tensors of a program stay far below 2^63, so nothing behind the importer wraps.
constexpr uint64_t kMostTensorBytes = uint64_t(1) << 40;
/// Dimensions of one tensor; the same limit as numpy's.
constexpr size_t kMostRank = 64;

/// The saturating product of extents, each at least 0.
template <typename Extents> uint64_t saturatingProduct(const Extents &extents) {
  uint64_t product = 1;
  for (int64_t extent : extents)
    if (__builtin_mul_overflow(product, extent < 0 ? uint64_t(0) : uint64_t(extent), &product))
      product = ~uint64_t(0);
  return product;
}

/// Says why no tensor may have this shape; empty if one may. Extents of 0 count as 1, since the strides of an empty
/// tensor must not wrap either.
template <typename Extents> std::string tensorProblem(const Extents &shape, uint64_t elementBytes) {
  if (shape.size() > kMostRank)
    return fmt::format("{} dimensions; at most {} are supported", shape.size(), kMostRank);
  uint64_t bytes = elementBytes;
  for (int64_t extent : shape) {
    if (extent < 0)
      return fmt::format("the extent {}; extents are at least 0", extent);
    if (extent > 0 && __builtin_mul_overflow(bytes, uint64_t(extent), &bytes))
      bytes = ~uint64_t(0);
  }
  if (bytes > kMostTensorBytes)
    return fmt::format("more than {} TiB, the most that one tensor may take", kMostTensorBytes >> 40);
  return {};
}

} // namespace tcc

#endif // TCC_COMPILER_MODEL_TENSORLIMITS_H
