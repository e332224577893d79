//===- SharedBodies.h - one body for alike kernels --------------*- C++ -*-===//
#ifndef TCC_CODEGEN_SHAREDBODIES_H
#define TCC_CODEGEN_SHAREDBODIES_H

#include "mlir/IR/BuiltinOps.h"

namespace tcc::codegen {

/// Gives kernels for workers whose bodies differ in integer constants alone one body, which takes these constants as
/// arguments: the kernels of a sequence of 128 and of one of 512 differ in strides and ends of loops. A body is most of
/// a kernel's code, and nearly all of its time in LLVM. Results keep their bits, since no arithmetic of numbers with a
/// fraction changes. Bodies stay apart where a variable in place of a constant would cost time: as a divisor in an
/// innermost loop, or as the end of one that is short.
///
/// Returns the number of bodies that were replaced by another kernel's.
unsigned shareBodies(mlir::ModuleOp module);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_SHAREDBODIES_H
