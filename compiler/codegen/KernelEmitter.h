//===- KernelEmitter.h - emits a fused region as a function -----*- C++ -*-===//
//
// Emits one kernel into a module: functions of the LLVM dialect whose bodies use scf, arith, math and vector. It
// requests elements from the outputs backwards; each op's body (Fusible) requests its operands. An element computed for
// the same coordinates in an enclosing loop is reused. On a CPU workers call the function with ranges of tiles; on a
// GPU it is a kernel whose warps take tiles.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_KERNELEMITTER_H
#define TCC_CODEGEN_KERNELEMITTER_H

#include "compiler/codegen/IterationSpace.h"
#include "compiler/target/CodeModel.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace tcc::codegen {

/// Emits `fused` as `symbol` at the end of `module`, for a processor. Failure after a diagnostic.
mlir::LogicalResult emitKernel(train::FusedOp fused, llvm::StringRef symbol, mlir::ModuleOp module,
                               const target::CodeModel &model);

/// Consecutive kernels of a launch with equal code; `fused` is one of them.
struct JoinedProgram {
  train::FusedOp fused;
  int64_t count = 1;
};

/// Emits kernels that share a launch as `symbol` at the end of `module`, for a GPU. Failure after a diagnostic.
mlir::LogicalResult emitJoined(llvm::ArrayRef<JoinedProgram> programs, llvm::StringRef symbol, mlir::ModuleOp module,
                               const target::CodeModel &model);

/// Merges dimensions that a kernel may loop over as one, in place: the inner types of `fused` change, those of its
/// operands and results do not. Regions with the same access patterns become equal.
void mergeDims(train::FusedOp fused);

/// How a kernel's work is cut. The grid is 0 except for warps.
struct KernelWork {
  int64_t tiles = 0;
  uint32_t tileThreads = 0; ///< threads that share a tile
  uint32_t gridBlocks = 0, gridThreads = 0; ///< of one slice behind a product
  int64_t groupElements = 0; ///< IterationSpace::groupElements
  bool waits = false; ///< threads of a block synchronise between passes over their row
  bool walks = false; ///< threads keep sums of columns in registers
};

/// The work of a kernel without emitting it.
KernelWork workOf(train::FusedOp fused, const target::CodeModel &model);
/// The same for a kernel that shares a launch of blocks of `blockThreads` threads.
KernelWork workOf(train::FusedOp fused, const target::CodeModel &model, uint32_t blockThreads);

/// The work of all kernels that share a launch: a tile is the work of one block. If threads of several warps share a
/// tile of one of the kernels, these are the threads of a block.
KernelWork workOf(llvm::ArrayRef<JoinedProgram> programs, const target::CodeModel &model);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELEMITTER_H
