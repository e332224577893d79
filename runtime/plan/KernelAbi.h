//===- KernelAbi.h - the contract between generated kernels and the runtime -===//
//
// A generated kernel is a C function in a shared object without imports. It keeps no state and calls nothing. Shapes
// are compiled in; run-time scalars (learning rate, step) arrive in an ordinary buffer, so that a device program can be
// captured once.
//
// A kernel in PTX (CodeObject::PTX) is an entry `symbol(pointer 0, pointer 1, ..., i64 tiles, pointer scratch)` of
// global addresses. A kernel behind a product, which reads its rows in slices (ProductSlices.h), is `symbol(..., i64
// end, pointer scratch, i64 begin)` and runs the tiles [begin, end) of one slice. The grid is one-dimensional, and its
// number of blocks changes no result: of G groups of `tile_threads` threads, group g runs tiles g, g + G, … A group of
// more than a warp is a block. With scratch, thread t of the grid has slot t; a thread without a tile accesses none.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_KERNELABI_H
#define TCC_RUNTIME_PLAN_KERNELABI_H

#include <cstdint>

namespace tcc::plan {

/// Version of the contract below; a plan whose code objects carry another one must be recompiled.
inline constexpr uint32_t kKernelAbiVersion = 1;

/// Version of the plan file's format. Defined here and nowhere else.
inline constexpr uint32_t kPlanFormatVersion = 11;

/// Runs tiles [tileBegin, tileEnd) of a kernel. `pointers` follow the instruction's operands in order; `scratch` is
/// this worker's slot, or null. Tiles may run in any order and on any thread: the result is the same, bit for bit.
using KernelFunction = void (*)(void *const *pointers, int64_t tileBegin, int64_t tileEnd, void *scratch);

/// Threads of a warp: a tile belongs to a warp, to a block of several, or to one thread.
inline constexpr uint32_t kWarpThreads = 32;

/// What CUDA allows on every architecture: threads of a block, blocks of a grid along x, parameters of a kernel.
inline constexpr uint32_t kMostBlockThreads = 1024;
inline constexpr uint32_t kMostGridBlocks = (uint32_t(1) << 31) - 1;

/// The workspace of a CUDA library begins at the first multiple of this in its scratch, which is larger by as much
/// (bytes).
inline constexpr uint64_t kLibraryWorkspaceAlignment = 256;

/// In place of the number of an operand, for kernels that compute a library's call: the start of that workspace, where
/// an earlier kernel of the call has left sums.
inline constexpr int kInScratch = -1;

/// Alignment of arenas, of every buffer in them, and of payloads (bytes): one cache line, one AVX-512 vector.
inline constexpr uint64_t kAlignmentBytes = 64;

/// The most that a memory space's alignment may ask for (bytes): every device starts its arenas at multiples of this.
inline constexpr uint64_t kMostSpaceAlignmentBytes = 256;

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_KERNELABI_H
