//===- Variants.cpp - choose one variant of a fat plan --------------------===//
#include "runtime/plan/Variants.h"

#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>

namespace tcc::plan {

uint64_t variantBytes(const Plan &plan, uint32_t variant, uint32_t workers) {
  uint64_t transient = 0;
  for (const Entry &entry : plan.entries())
    if (entry.variant() == variant)
      transient = std::max(transient, transientBytes(entry, workers));
  return transient > UINT64_MAX - spaceBytes(plan, RESIDENT) ? UINT64_MAX : spaceBytes(plan, RESIDENT) + transient;
}

std::optional<uint32_t> fastestVariant(const Plan &plan, uint64_t bytes, uint32_t workers) {
  if (plan.variants().empty())
    return variantBytes(plan, 0, workers) <= bytes ? std::optional<uint32_t>(0) : std::nullopt;
  std::optional<uint32_t> best;
  for (int i = 0; i < plan.variants_size(); ++i)
    if (variantBytes(plan, uint32_t(i), workers) <= bytes &&
        (!best || plan.variants(i).cost() < plan.variants(int(*best)).cost()))
      best = uint32_t(i);
  return best;
}

uint32_t smallestVariant(const Plan &plan, uint32_t workers) {
  uint32_t least = 0;
  for (uint32_t i = 1; i < uint32_t(plan.variants_size()); ++i)
    if (variantBytes(plan, i, workers) < variantBytes(plan, least, workers))
      least = i;
  return least;
}

Plan variantOf(const Plan &plan, uint32_t variant) {
  Plan one = plan;
  int kept = 0;
  for (int i = 0; i < one.entries_size(); ++i)
    if (one.entries(i).variant() == variant) {
      one.mutable_entries()->SwapElements(kept, i);
      one.mutable_entries(kept++)->set_variant(0);
    }
  one.mutable_entries()->DeleteSubrange(kept, one.entries_size() - kept);
  if (int(variant) < plan.variants_size()) {
    setSpaceBytes(one, TRANSIENT, plan.variants(int(variant)).transient_bytes());
    setSpaceBytes(one, HOST_TRANSIENT, plan.variants(int(variant)).host_transient_bytes());
  }
  one.clear_variants();
  return one;
}

} // namespace tcc::plan
