//===- Variants.cpp -------------------------------------------------------===//
#include "runtime/plan/Variants.h"

namespace tcc::plan {

std::optional<uint32_t> fastestVariant(const Plan &plan, uint64_t bytes) {
  if (plan.variants().empty())
    return plan.resident_bytes() + plan.transient_bytes() <= bytes ? std::optional<uint32_t>(0) : std::nullopt;
  std::optional<uint32_t> best;
  for (int i = 0; i < plan.variants_size(); ++i)
    if (plan.resident_bytes() + plan.variants(i).transient_bytes() <= bytes &&
        (!best || plan.variants(i).cost() < plan.variants(int(*best)).cost()))
      best = uint32_t(i);
  return best;
}

uint32_t smallestVariant(const Plan &plan) {
  int least = 0;
  for (int i = 1; i < plan.variants_size(); ++i)
    if (plan.variants(i).transient_bytes() < plan.variants(least).transient_bytes())
      least = i;
  return uint32_t(least);
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
  if (int(variant) < plan.variants_size())
    one.set_transient_bytes(plan.variants(int(variant)).transient_bytes());
  one.clear_variants();
  return one;
}

} // namespace tcc::plan
