//===- KernelSignature.h - the memory that a kernel may touch ---*- C++ -*-===//
#ifndef TCC_CODEGEN_KERNELSIGNATURE_H
#define TCC_CODEGEN_KERNELSIGNATURE_H

#include "compiler/dialect/TrainDialect.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::codegen {

/// What the code that emitKernel generates for a region may touch: its operands as far as their types reach, in the
/// order of the kernel's pointers, the scratch of its loops, and the pairs whose pointers the code allows to be equal.
plan::KernelSignature signatureOf(train::FusedOp fused, llvm::StringRef symbol, int64_t tiles);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELSIGNATURE_H
