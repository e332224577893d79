//===- Sums.h - sums over ranks in a fixed order -------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_SUMS_H
#define TCC_RUNTIME_PARALLEL_SUMS_H

#include "runtime/plan/DType.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tcc::runtime {

/// True for types that sumParts adds: f64, f32, bf16, f16.
bool canSum(plan::DType dtype);

/// `into` becomes the sum of all parts, each `count` elements; it may be one of them. Part i is added to part i − s for
/// s = 1, 2, 4 …, where i is an odd multiple of s: the tree of Communicator::allReduce. 16-bit types are widened to
/// f32, where all additions are, and rounded to nearest, ties to even, once.
void sumParts(std::byte *into, std::span<const std::byte *const> parts, plan::DType dtype, uint64_t count);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SUMS_H
