//===- Targets.h - one plan for several targets -----------------*- C++ -*-===//
//
// A plan for several targets stores the fields on which all agree once, and for each target the fields that differ:
// entries, generated code, sizes, and whatever else follows from the target. Payloads are stored by content, so all
// targets share the weights. To run the plan, select one target and, if it has several, one variant (Variants.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_TARGETS_H
#define TCC_RUNTIME_PLAN_TARGETS_H

#include "runtime/plan/PlanFile.h"
#include "support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::plan {

/// The parts of a target's name: "cpu" and "v4" of "cpu:v4". A name without ':' is a kind without a level.
inline std::string_view kindOf(std::string_view target) { return target.substr(0, target.find(':')); }
inline std::string_view levelOf(std::string_view target) {
  const size_t colon = target.find(':');
  return colon == std::string_view::npos ? std::string_view() : target.substr(colon + 1);
}

/// The plan's targets in its order: a single one if the plan is not for several.
std::vector<std::string> targetNames(const Plan &plan);

/// The number of a target of this name, to select. Error: the plan has none; the message lists those that it has.
Expected<uint32_t> findTarget(const PlanReader &reader, const std::string &name);

/// The plan for one target alone. Its payloads are those of the whole plan.
Plan targetOf(const Plan &plan, uint32_t target);

/// The bytes of one plan file for all targets of these plans, each of which is for one. Their order does not matter.
/// Error: two are for the same target; they are of different models or recipes; the header would be too large.
Expected<std::string> combineTargets(const std::vector<PlanReader> &plans);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_TARGETS_H
