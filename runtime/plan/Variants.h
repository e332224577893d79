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

/// Both arenas of a variant with so many workers. A plan without variants is its own.
uint64_t variantBytes(const Plan &plan, uint32_t variant, uint32_t workers);

/// The fastest variant whose two arenas take at most `bytes` with so many workers; none where none does.
std::optional<uint32_t> fastestVariant(const Plan &plan, uint64_t bytes, uint32_t workers);

/// The variant that takes the least memory with so many workers.
uint32_t smallestVariant(const Plan &plan, uint32_t workers);

/// The plan with the entries of one variant alone.
Plan variantOf(const Plan &plan, uint32_t variant);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_VARIANTS_H
