//===- EmitEntry.h - an entry function as a plan's entry --------*- C++ -*-===//
#ifndef TCC_EMIT_EMITENTRY_H
#define TCC_EMIT_EMITENTRY_H

#include "runtime/plan/PlanFile.h"
#include "support/Status.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace tcc::codegen {
class KernelSet;
}
namespace tcc::target {
class Target;
}

namespace tcc::emit {

/// Writes an entry function that went through plan-memory: its buffers with offsets and lives, its instructions, its
/// inputs and outputs, and its sizes; with `sizesOnly` only the sizes. Adds its kernels to `kernels`. `variables`: the
/// index of each variable in `plan`, by name. Errors: internal ones.
Status emitEntry(mlir::func::FuncOp function, codegen::KernelSet &kernels, const target::Target &target,
                 const std::map<std::string, uint32_t> &variables, const plan::Plan &plan, bool sizesOnly,
                 plan::Entry &entry);

} // namespace tcc::emit

#endif // TCC_EMIT_EMITENTRY_H
