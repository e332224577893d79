//===- LoopNest.h - the loops of a fused region -----------------*- C++ -*-===//
#ifndef TCC_CODEGEN_LOOPNEST_H
#define TCC_CODEGEN_LOOPNEST_H

#include "compiler/codegen/ElementEmitter.h"
#include "compiler/codegen/IterationSpace.h"

namespace tcc::codegen {

/// Emits the loops that compute tile `tile` (i64) of a region: for vectors, or if `thread` (i64, its number in the
/// warp) is given, for one of the threads that share the tile. All threads of a warp must run it together. The emitter
/// has the memory of the region's arguments; `outputs` is that of its results.
void emitTile(train::FusedOp fused, const IterationSpace &space, ElementEmitter &emitter,
              llvm::ArrayRef<Memory> outputs, mlir::Value tile, mlir::Value thread = nullptr);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_LOOPNEST_H
