//===- DynamicMap.h - numbers in [−1, 1] as codes of 8 bits -----*- C++ -*-===//
//
// The dynamic data type of Dettmers, "8-bit Approximations for Parallelism in Deep Learning", arXiv:1511.04561, as
// bitsandbytes' create_dynamic_map makes it: seven decades, each with twice as many evenly spaced numbers as the one
// below it, 0 and 1. A tensor is stored in blocks of consecutive elements, each with its largest magnitude in f32; an
// element's value is the number of its code times that magnitude (Dettmers et al., "8-bit Optimizers via Block-wise
// Quantization", arXiv:2110.02861). optimizer.moments = "8bit" stores an optimizer's state so, and adapter.nested the
// scales of a base in 4 bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_DYNAMICMAP_H
#define TCC_RUNTIME_PLAN_DYNAMICMAP_H

#include <array>
#include <cstddef>
#include <cstdint>

namespace tcc::plan {

/// Elements that share a magnitude.
inline constexpr int64_t kDynamicBlock = 256;

/// Codes of numbers in [−1, 1], or of those in [0, 1] with twice as many in each decade.
enum class DynamicKind : uint8_t { Signed, Unsigned };

/// The numbers by code, ascending.
const std::array<float, 256> &dynamicNumbers(DynamicKind kind);
/// Code c + 1 begins above threshold c, the middle between the numbers of c and c + 1.
const std::array<float, 255> &dynamicThresholds(DynamicKind kind);
/// The code of the nearest number; of two equally near ones the lower.
uint8_t dynamicCode(DynamicKind kind, float number);

/// The most by which a number between two others is rounded.
float dynamicRounding(DynamicKind kind);

/// Before its code is looked up, a value is multiplied by 1 / its block's magnitude, of which at least this is taken:
/// blocks of zeros have none.
inline constexpr float kLeastDynamicMagnitude = 1e-38F;

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_DYNAMICMAP_H
