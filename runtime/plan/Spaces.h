//===- Spaces.h - the memory spaces of a plan -------------------*- C++ -*-===//
//
// A plan names the arenas that trun allocates, each with its size and alignment: `resident` and `transient`, and, where
// some of a device's memory is kept on the host, `host_resident` and `host_transient`.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SPACES_H
#define TCC_RUNTIME_PLAN_SPACES_H

#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <array>
#include <cstdint>
#include <string>

namespace tcc::plan {

/// Bytes of a space with max_workers; 0 if the plan has no space of this index.
inline uint64_t spaceBytes(const Plan &plan, int space) {
  return space >= 0 && space < plan.spaces_size() ? plan.spaces(space).bytes() : 0;
}

/// For messages: "resident".
inline std::string spaceName(const Plan &plan, int space) {
  return space >= 0 && space < plan.spaces_size() ? plan.spaces(space).name() : std::to_string(space);
}

/// The names of all spaces, by number.
inline constexpr std::array<const char *, 4> kSpaceNames = {"resident", "transient", "host_resident", "host_transient"};

/// True for a space in the memory of the host, while the plan's device has its own.
constexpr bool isOnHost(int space) { return space == HOST_RESIDENT || space == HOST_TRANSIENT; }

/// True for a space of state, which all entries share.
constexpr bool holdsState(int space) { return space == RESIDENT || space == HOST_RESIDENT; }

/// Bytes of host memory that the plan keeps for its device.
inline uint64_t hostBytes(const Plan &plan) {
  return spaceBytes(plan, HOST_RESIDENT) + spaceBytes(plan, HOST_TRANSIENT);
}

/// Sets the size of a space. Adds the first two if the plan has none, and the others when one of them gets bytes.
inline void setSpaceBytes(Plan &plan, Arena space, uint64_t bytes) {
  if (isOnHost(space) && bytes == 0 && plan.spaces_size() <= HOST_RESIDENT)
    return;
  while (plan.spaces_size() <= (isOnHost(space) ? HOST_TRANSIENT : TRANSIENT)) {
    MemorySpace &added = *plan.add_spaces();
    added.set_name(kSpaceNames[static_cast<size_t>(plan.spaces_size() - 1)]);
    added.set_alignment(kAlignmentBytes);
  }
  plan.mutable_spaces(space)->set_bytes(bytes);
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SPACES_H
