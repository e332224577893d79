//===- Beside.h - what runs while ranks wait for each other -----*- C++ -*-===//
#ifndef TCC_COMPILER_EMIT_BESIDE_H
#define TCC_COMPILER_EMIT_BESIDE_H

#include "runtime/plan/plan.pb.h"

namespace tcc::emit {

/// Lets each collective of a finished entry run beside the instructions that follow it, up to the first one that
/// touches a result of it. No buffer moves and none lives longer: sources are copied, or lie in their results' place,
/// when the collective begins.
void letCollectivesRunBeside(plan::Entry &entry);

} // namespace tcc::emit

#endif // TCC_COMPILER_EMIT_BESIDE_H
