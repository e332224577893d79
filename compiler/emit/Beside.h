//===- Beside.h - overlap collectives with later instructions ---*- C++ -*-===//
#ifndef TCC_COMPILER_EMIT_BESIDE_H
#define TCC_COMPILER_EMIT_BESIDE_H

#include "runtime/plan/plan.pb.h"

namespace tcc::emit {

/// Overlaps each collective of a finished entry with the instructions that follow it, up to the first one that touches
/// a result of it. No buffer moves or lives longer: a collective copies its sources when it begins or works in place,
/// and a reduce-scatter ends before its sources die or are overwritten.
void letCollectivesRunBeside(plan::Entry &entry);

} // namespace tcc::emit

#endif // TCC_COMPILER_EMIT_BESIDE_H
