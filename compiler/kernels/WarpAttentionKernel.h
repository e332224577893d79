//===- WarpAttentionKernel.h - attention and its gradient for warps -*- C++ -*-===//
#ifndef TCC_KERNELS_WARPATTENTIONKERNEL_H
#define TCC_KERNELS_WARPATTENTIONKERNEL_H

#include "compiler/dialect/Attention.h"
#include "compiler/kernels/WarpStage.h"

namespace tcc::train {

/// Warps of a block, which compute a tile together.
constexpr int64_t kAttentionWarps = WarpStage::kWarps;

/// Tiles of these ops if warps compute them; 0 if threads do (LoopKernel::getGroupTileCount).
int64_t warpTilesOf(AttentionOp op);
int64_t warpTilesOf(AttentionGradOp op);
void emitWarpAttention(AttentionOp op, LoopBuilder &loops, mlir::Value tile);
void emitWarpAttentionGrad(AttentionGradOp op, LoopBuilder &loops, mlir::Value tile);

} // namespace tcc::train

#endif // TCC_KERNELS_WARPATTENTIONKERNEL_H
