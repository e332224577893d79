//===- StateWrites.h - which instructions change which variables ---------===//
#ifndef TCC_RUNTIME_PLAN_STATEWRITES_H
#define TCC_RUNTIME_PLAN_STATEWRITES_H

#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <vector>

namespace tcc::plan {

/// The variables (indices into Plan.variables) that an instruction of the entry writes, each once.
std::vector<uint32_t> changedVariables(const Entry &entry, const Instruction &instruction);

/// The instruction writes a parameter, an optimizer's state or an average.
bool changesWeights(const Plan &plan, const Entry &entry, const Instruction &instruction);

/// All variables in the order in which entries first change them; those that no entry changes are last.
std::vector<uint32_t> inOrderOfChange(const Plan &plan);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_STATEWRITES_H
