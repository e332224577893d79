//===- Joined.h - kernels that share a launch -------------------*- C++ -*-===//
#ifndef TCC_DIALECT_JOINED_H
#define TCC_DIALECT_JOINED_H

#include "compiler/dialect/TrainDialect.h"

#define GET_OP_CLASSES
#include "compiler/dialect/JoinedOps.h.inc"

namespace tcc::train::names {
/// i64, on kernels for grids: threads that share a tile. Kernels that share a launch have blocks of one size.
inline constexpr llvm::StringLiteral kTileThreads = "train.tile_threads";
} // namespace tcc::train::names

#endif // TCC_DIALECT_JOINED_H
