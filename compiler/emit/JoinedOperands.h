//===- JoinedOperands.h - operands of kernels that share a launch -*- C++ -*-===//
#ifndef TCC_EMIT_JOINEDOPERANDS_H
#define TCC_EMIT_JOINEDOPERANDS_H

#include "compiler/dialect/Joined.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::emit {

/// Puts the operands of an instruction, all that are read before all that are written, into the order of
/// JoinedKernels.h: one kernel after the other.
void orderByMember(train::JoinedOp joined, plan::Instruction &instruction);

} // namespace tcc::emit

#endif // TCC_EMIT_JOINEDOPERANDS_H
