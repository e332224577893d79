//===- ObjectCode.h - kernels as machine code -------------------*- C++ -*-===//
//
// Lowers modules of kernels through LLVM for one machine level: to objects, linked into one shared object without
// imports, or to PTX, joined to one text (KernelSet.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_OBJECTCODE_H
#define TCC_CODEGEN_OBJECTCODE_H

#include "compiler/target/CodeModel.h"
#include "support/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace tcc {
class Profile;
}

namespace tcc::codegen {

/// Loads the dialects that lowering needs; from then on several modules of one context may be lowered at once.
void prepareLowering(mlir::MLIRContext &context);

/// Lowers a module of kernels (scf, arith, math, vector and LLVM dialects) to a relocatable object for a
/// processor, or to its part of a PTX text for warps. `name` names it in messages. May be called from several threads,
/// each with its own module.
Expected<std::string> compileToObject(mlir::ModuleOp module, const std::string &name, const target::CodeModel &model,
                                            Profile *profile = nullptr);

/// Links objects into a shared object in memory. A symbol that is still undefined is an error: kernels call nothing.
Expected<std::string> linkShared(const std::vector<std::string> &objects);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_OBJECTCODE_H
