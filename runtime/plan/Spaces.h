//===- Spaces.h - the memory spaces of a plan -------------------*- C++ -*-===//
//
// A plan names the arenas that trun allocates, each with its size and alignment: `resident` and `transient` today.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_SPACES_H
#define TCC_RUNTIME_PLAN_SPACES_H

#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

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

/// Sets the size of a space that every plan has.
inline void setSpaceBytes(Plan &plan, Arena space, uint64_t bytes) {
  static constexpr const char *kNames[] = {"resident", "transient"};
  while (plan.spaces_size() <= TRANSIENT) {
    MemorySpace &added = *plan.add_spaces();
    added.set_name(kNames[plan.spaces_size() - 1]);
    added.set_alignment(kAlignmentBytes);
  }
  plan.mutable_spaces(space)->set_bytes(bytes);
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_SPACES_H
