//===- Variants.h - several frontier points in one plan ---------*- C++ -*-===//
//
// A fat plan holds its entries several times, from the variant with most memory and least work to that with least
// memory and most work. A run selects one variant; all give the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_VARIANTS_H
#define TCC_RUNTIME_PLAN_VARIANTS_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <optional>

namespace tcc::plan {

/// Bytes of both arenas of a variant with this number of workers. A plan without variants counts as one.
uint64_t variantBytes(const Plan &plan, uint32_t variant, uint32_t workers);

/// The fastest variant whose two arenas take at most `bytes` with this number of workers, if there is one.
std::optional<uint32_t> fastestVariant(const Plan &plan, uint64_t bytes, uint32_t workers);

/// The variant that takes the least memory with this number of workers.
uint32_t smallestVariant(const Plan &plan, uint32_t workers);

/// The plan with only the entries of one variant.
Plan variantOf(const Plan &plan, uint32_t variant);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_VARIANTS_H
