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

/// Writes the sum of all parts, each of `count` elements, to `into`, which may be one of them. For s = 1, 2, 4 …, part
/// i is added to part i − s where i is an odd multiple of s: the tree of Communicator::allReduce. 16-bit types are
/// widened to f32, added in f32, and rounded once, to nearest, ties to even.
void sumParts(std::byte *into, std::span<const std::byte *const> parts, plan::DType dtype, uint64_t count);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SUMS_H
