//===- KernelSignature.h - the memory that a kernel may touch ---*- C++ -*-===//
#ifndef TCC_CODEGEN_KERNELSIGNATURE_H
#define TCC_CODEGEN_KERNELSIGNATURE_H

#include "compiler/codegen/KernelEmitter.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::codegen {

/// The memory that a region's generated code may touch: its operands, to the extent of their types and in the order of
/// the kernel's pointers, the scratch of its loops, and the operand pairs whose pointers may be equal.
plan::KernelSignature signatureOf(train::FusedOp fused, llvm::StringRef symbol, const KernelWork &work);

/// The signatures of kernels that share a launch, concatenated.
plan::KernelSignature signatureOf(llvm::ArrayRef<train::FusedOp> members, llvm::StringRef symbol,
                                  const KernelWork &work);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELSIGNATURE_H
