//===- Verifier.h - checks that a plan is safe to run ---------------------===//
//
// Checks everything that the executor trusts, from the plan alone and without code of the planner.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_VERIFIER_H
#define TCC_RUNTIME_PLAN_VERIFIER_H

#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace tcc::plan {

/// The plan's errors, at most `limit`; each message names entry, instruction, buffer and ONNX node. Empty for a valid
/// plan. Takes O(n log n) time in the number of buffers and operands.
std::vector<std::string> verifyPlan(const Plan &plan, size_t limit = 100);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_VERIFIER_H
