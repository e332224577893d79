//===- WarpShuffle.h - instructions of warps and blocks ---------*- C++ -*-===//
#ifndef TCC_CODEGEN_WARPSHUFFLE_H
#define TCC_CODEGEN_WARPSHUFFLE_H

#include "compiler/dialect/Element.h"

#include "mlir/IR/Builders.h"

namespace tcc::codegen {

/// Thread t gets the value of thread t + `distance`, a scalar of at most 64 bits; the last threads get their own value.
/// All threads of the warp must execute it (PTX ISA, shfl.sync).
mlir::Value shuffleDown(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t distance);

/// Every thread gets the value of the thread of number `thread`, an i32.
mlir::Value shuffleFrom(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, mlir::Value thread);

/// Every thread gets an i32 whose bit t is thread t's `condition`, an i1 (PTX ISA, vote.sync.ballot).
mlir::Value ballot(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value condition);

/// Every thread gets the first one's value.
mlir::Value shuffleFromFirst(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

/// Adds the product of two tiles to one of f32 sums (PTX ISA, mma.m16n8k16, mma.m16n8k8 of TF32), given this thread's
/// four sums and its words of the left and right tile. All threads of the warp must execute it.
llvm::SmallVector<mlir::Value> multiplyTile(mlir::OpBuilder &builder, mlir::Location loc, train::TileNumbers numbers,
                                            mlir::ValueRange sums, mlir::ValueRange left, mlir::ValueRange right);

/// Two f32, rounded to bf16 or f16 (nearest even), as the halves of an i32.
mlir::Value roundToWord(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value lower, mlir::Value upper,
                        bool toF16 = false);

/// An f32 rounded to TF32, ties away from zero, as an i32 (PTX ISA, cvt.rna.tf32.f32).
mlir::Value roundToTf32(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

/// The upper or lower halves of two i32 as one i32; the first one's is the lower half.
mlir::Value halvesOf(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value first, mlir::Value second, bool upper);

/// Waits for all threads of the block, and orders their accesses to shared memory (PTX ISA, barrier).
void meetBlock(mlir::OpBuilder &builder, mlir::Location loc);

/// Shared memory of the block, aligned to 16 bytes. All requests of a kernel get the same memory, so its threads must
/// synchronise between two uses.
mlir::Value sharedMemory(mlir::OpBuilder &builder, mlir::Location loc, int64_t bytes);

/// Starts copying 16 bytes of global memory to shared memory, in pieces of `alignment` bytes (4, 8 or 16). Reads only
/// the first `bytes` (an i64, null: all); the others become zeros (PTX ISA, cp.async).
constexpr int64_t kCopyBytes = 16;
void copyAsynchronously(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value to, mlir::Value from,
                        int64_t alignment, mlir::Value bytes);
/// Waits for the copies that this thread started (PTX ISA, cp.async.wait_all).
void awaitCopies(mlir::OpBuilder &builder, mlir::Location loc);

/// A special register of 32 bits ("tid.x", "ctaid.x", "ntid.x", "nctaid.x") as an i64.
mlir::Value specialRegister(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef name);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_WARPSHUFFLE_H
