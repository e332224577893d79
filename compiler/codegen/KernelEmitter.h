//===- KernelEmitter.h - a fused region as a loop nest ----------*- C++ -*-===//
//
// Emits one kernel into a module: functions of the LLVM dialect whose bodies use scf, arith, math and vector. Elements
// are asked for from the outputs backwards; each op's own body (Fusible) asks for its operands. What was computed for
// the same coordinates in an enclosing loop is reused.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_KERNELEMITTER_H
#define TCC_CODEGEN_KERNELEMITTER_H

#include "compiler/codegen/IterationSpace.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace tcc::codegen {

/// Lanes of every kernel's vectors at a machine level ("cpu:v3", "cpu:v4"): two registers of f32.
int64_t vectorLanes(llvm::StringRef target);
/// True at levels that multiply and add pairs of bf16 at once ("cpu:v4-bf16", "cpu:amx").
bool multipliesPairs(llvm::StringRef target);

/// Emits `fused` as `symbol` at the end of `module`, for the machine level `target`. Returns the number of tiles, or
/// failure after a diagnostic.
mlir::FailureOr<int64_t> emitKernel(train::FusedOp fused, llvm::StringRef symbol, mlir::ModuleOp module,
                                    llvm::StringRef target);

/// Merges the dimensions that a kernel may walk as one, in place: the inner types of `fused` change, its operands' and
/// results' do not. Regions that walk memory alike become equal.
void mergeDims(train::FusedOp fused);

/// Tiles of a kernel without emitting it.
int64_t countTiles(train::FusedOp fused, int64_t lanes);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_KERNELEMITTER_H
