//===- ObjectCode.h - kernels as machine code -------------------*- C++ -*-===//
//
// Lowers modules of kernels through LLVM for one machine level and links them into one shared object without imports.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_OBJECTCODE_H
#define TCC_CODEGEN_OBJECTCODE_H

#include "runtime/plan/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace tcc {
class Profile;
}

namespace tcc::codegen {

/// Loads the dialects that lowering needs; from then on several modules of one context may be lowered at once.
void prepareLowering(mlir::MLIRContext &context);

/// Lowers a module of kernels (scf, arith, math, vector and LLVM dialects) to a relocatable object for `target`
/// ("cpu:v3", "cpu:v4"). `name` stands for it in messages. May be called from several threads, with a module each.
plan::Expected<std::string> compileToObject(mlir::ModuleOp module, const std::string &name, const std::string &target,
                                            Profile *profile = nullptr);

/// Links objects into a shared object in memory. A symbol that is still undefined is an error: kernels call nothing.
plan::Expected<std::string> linkShared(const std::vector<std::string> &objects);

/// The best level of this machine: "cpu:v4" or "cpu:v3". Error: a machine below x86-64-v3.
plan::Expected<std::string> machineLevel();

} // namespace tcc::codegen

#endif // TCC_CODEGEN_OBJECTCODE_H
