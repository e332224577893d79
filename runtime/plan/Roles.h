//===- Roles.h - roles of variables as words -----------------------------===//
#ifndef TCC_RUNTIME_PLAN_ROLES_H
#define TCC_RUNTIME_PLAN_ROLES_H

#include "runtime/plan/plan.pb.h"

#include <optional>
#include <string_view>

namespace tcc::plan {

/// "parameter", "frozen", …; "unknown" for a value that this version does not know.
std::string_view roleName(VariableRole role);

/// The inverse.
std::optional<VariableRole> roleFromName(std::string_view name);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_ROLES_H
