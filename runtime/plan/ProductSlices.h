//===- ProductSlices.h - slices of a product on a card ----------*- C++ -*-===//
//
// A cuBLASLt product whose rows go to a kernel is computed in slices of tile_m rows. Each slice is stored at the start
// of the instruction's scratch, before the library's workspace, until the kernel has read it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_PRODUCTSLICES_H
#define TCC_RUNTIME_PLAN_PRODUCTSLICES_H

#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/plan.pb.h"

#include <cstdint>

namespace tcc::plan {

/// The row stride of gelu's input matrix must be a multiple of this many elements (cublasLtMatmulDescAttributes_t,
/// EPILOGUE_AUX_LD).
inline constexpr int64_t kBlasAuxiliaryElements = 8;

/// The type of C.
inline DType resultType(const MatmulCall &call) {
  return call.result_dtype() == DTYPE_NONE ? call.dtype() : call.result_dtype();
}

inline bool hasSlices(const MatmulCall &call) {
  return call.implementation() == MatmulCall::BLAS && call.has_row_kernel();
}

/// Bytes of a row of C, which is F32.
inline uint64_t sliceRowBytes(const MatmulCall &call) { return 4 * static_cast<uint64_t>(call.n()); }

/// Bytes of scratch that a slice takes, rounded up to the alignment of the workspace behind it.
inline uint64_t sliceBytes(const MatmulCall &call) {
  const uint64_t bytes = static_cast<uint64_t>(call.tile_m()) * sliceRowBytes(call);
  return (bytes + kLibraryWorkspaceAlignment - 1) / kLibraryWorkspaceAlignment * kLibraryWorkspaceAlignment;
}

/// Like all functions here, it accepts unverified plans.
inline int64_t sliceCount(const MatmulCall &call) { return call.tile_m() > 0 ? (call.m() - 1) / call.tile_m() + 1 : 0; }

/// Launches on a card: with slices, a product and a kernel for each; else one.
inline int64_t launchesOf(const Instruction &instruction) {
  return instruction.has_matmul() && hasSlices(instruction.matmul()) ? 2 * sliceCount(instruction.matmul()) : 1;
}

/// The kernel's tiles in one slice; 0 if a slice is not a whole number of tiles. The signature's tile_bytes are those
/// of the smallest group of tiles that ends at the end of a row.
inline int64_t sliceTiles(const MatmulCall &call, const KernelSignature &kernel) {
  if (kernel.operands_size() == 0)
    return 0;
  const uint64_t group = kernel.operands(0).tile_bytes(), all = kernel.operands(0).bytes();
  const uint64_t slice = static_cast<uint64_t>(call.tile_m()) * sliceRowBytes(call);
  if (group == 0 || all == 0 || slice % group != 0)
    return 0;
  const uint64_t groups = (all - 1) / group + 1, tiles = static_cast<uint64_t>(kernel.tiles());
  return tiles % groups == 0 ? static_cast<int64_t>(slice / group * (tiles / groups)) : 0;
}

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_PRODUCTSLICES_H
