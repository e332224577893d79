//===- Verifier.h - checks that a plan is safe to run ---------------------===//
//
// Checks everything that the executor trusts, from the plan alone and without any code of the planner's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_VERIFIER_H
#define TCC_RUNTIME_PLAN_VERIFIER_H

#include "runtime/plan/plan.pb.h"

#include <string>
#include <vector>

namespace tcc::plan {

/// What is wrong with the plan, one message each, naming entry, instruction, buffer and ONNX node; empty for a good
/// plan. At most `limit` messages are made. Runs in O(n log n) of the number of buffers and operands.
std::vector<std::string> verifyPlan(const Plan &plan, size_t limit = 100);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_VERIFIER_H
