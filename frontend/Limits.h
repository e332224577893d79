//===- Limits.h - limits on models ------------------------------*- C++ -*-===//
//
// A few bytes of a model can ask for any amount of memory or time. Each limit is checked before memory is taken or work
// begins, and the message names it. docs/guide/limits.md lists them all with their tests.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_FRONTEND_LIMITS_H
#define TCC_FRONTEND_LIMITS_H

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <string>

namespace tcc::frontend {

/// Bytes of one tensor. Sums over all tensors of a program stay far below 2^63, so nothing behind the importer wraps.
constexpr uint64_t kMostTensorBytes = uint64_t(1) << 40;
/// Dimensions of one tensor; the same limit as numpy's.
constexpr size_t kMostRank = 64;
/// Nodes of the graph, functions inlined and loops unrolled.
constexpr int64_t kMostNodes = 100'000;
/// Nesting depth of functions, and of graphs.
constexpr size_t kDeepestNesting = 64;
/// Bytes that inlined functions add to the model.
constexpr uint64_t kMostInlinedBytes = uint64_t(256) << 20;
/// Elements of one table that an importer computes: taps of a resize, cosines of a Fourier transform, sizes of windows.
constexpr int64_t kMostTableElements = int64_t(1) << 25;
/// Kernel extents, strides, dilations and pads of a window: products of two of them do not wrap.
constexpr int64_t kMostWindow = int64_t(1) << 30;
/// Steps into which one op is unrolled (tokens of a linear attention).
constexpr int64_t kMostUnrolled = 4096;
/// Bytes of all tables and constants that nodes create; each loop iteration counts.
constexpr uint64_t kMostConstantBytes = uint64_t(1) << 30;
/// Bytes of all sparse tensors in dense form.
constexpr uint64_t kMostDenseBytes = uint64_t(256) << 20;

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

} // namespace tcc::frontend

#endif // TCC_FRONTEND_LIMITS_H
