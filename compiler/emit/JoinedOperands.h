//===- JoinedOperands.h - operands of kernels that share a launch -*- C++ -*-===//
#ifndef TCC_EMIT_JOINEDOPERANDS_H
#define TCC_EMIT_JOINEDOPERANDS_H

#include "compiler/dialect/Joined.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::emit {

/// Reorders the operands of an instruction, which lists all reads before all writes, into the order of JoinedKernels.h:
/// kernel by kernel.
void orderByMember(train::JoinedOp joined, plan::Instruction &instruction);

} // namespace tcc::emit

#endif // TCC_EMIT_JOINEDOPERANDS_H
