//===- Variants.h - several frontier points in one plan ---------*- C++ -*-===//
//
// A fat plan holds its entries several times, from most memory and least work to the other end. Whoever runs it takes
// one variant; all give the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_VARIANTS_H
#define TCC_RUNTIME_PLAN_VARIANTS_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <optional>

namespace tcc::plan {

/// The fastest variant whose two arenas take at most `bytes`; none where none does. A plan without variants is its own.
std::optional<uint32_t> fastestVariant(const Plan &plan, uint64_t bytes);

/// The variant that takes the least memory.
uint32_t smallestVariant(const Plan &plan);

/// The plan with the entries of one variant alone.
Plan variantOf(const Plan &plan, uint32_t variant);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_VARIANTS_H
