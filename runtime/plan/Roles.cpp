//===- Roles.cpp - roles of variables as words ---------------------------===//
#include "runtime/plan/Roles.h"
#include "support/PlanNames.h"

#include <utility>

namespace tcc::plan {

static constexpr std::pair<VariableRole, std::string_view> kRoles[] = {{PARAMETER, roles::kParameter},
                                                                       {FROZEN, roles::kFrozen},
                                                                       {CONSTANT, roles::kConstant},
                                                                       {OPTIMIZER, roles::kOptimizer},
                                                                       {ACCUMULATOR, roles::kAccumulator},
                                                                       {EMA, roles::kEma}};

std::string_view roleName(VariableRole role) {
  for (const auto &[known, name] : kRoles)
    if (known == role)
      return name;
  return "unknown";
}

std::optional<VariableRole> roleFromName(std::string_view name) {
  for (const auto &[role, known] : kRoles)
    if (known == name)
      return role;
  return std::nullopt;
}

} // namespace tcc::plan
