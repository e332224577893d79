//===- CudaModel.h - architectures, grids and rates -------------*- C++ -*-===//
//
// CUDA's architectures as the compiler knows them, and every tuning constant of the target. Constants affect speed and
// scratch, never the values that a plan computes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H
#define TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H

#include "compiler/target/CodeModel.h"
#include "compiler/target/CostModel.h"

#include <array>
#include <string_view>

namespace tcc::target::cuda {

/// An architecture that kernels are compiled for, and the PTX version of its kernels: the oldest that all drivers of
/// CUDA 12 read, or the first that has the architecture (PTX ISA, "Release Notes"). PTX of an architecture also runs on
/// later ones, whose driver compiles it.
struct Architecture {
  /// What "auto" stands for, and why.
  struct Default {
    std::string_view value, evidence;
  };

  std::string_view name; ///< as LLVM and ptxas spell it
  int ptx;               ///< 80: version 8.0
  Default attention, biasedAttention;         ///< of compiler.attention_calls
  Default epilogues, epiloguesOfConvolutions; ///< of compiler.epilogues in 16 bits; in other types "exact"
};

/// What "auto" leaves to cuDNN and cuBLASLt: what cards of the architecture have shown to be faster
/// (docs/measurements/device-runs.md). Of epilogues, "gelu" and "all" took 1.4 and 1.2 ms more than "bias" in the step
/// below.
inline constexpr Architecture::Default kNoCalls{"none", "not measured"}, kExact{"exact", "not measured"};
inline constexpr std::array<Architecture, 6> kArchitectures = {
    {{"sm_80", 80, kNoCalls, kNoCalls, kExact, kExact},
     {"sm_86", 80, kNoCalls, kNoCalls, kExact, kExact},
     {"sm_89", 80, kNoCalls, kNoCalls, kExact, kExact},
     {"sm_90",
      80,
      {"both", "H100: GPT-2 124M, 64 × 1024, 130.7 ms in place of 139.3"},
      kNoCalls,
      {"bias", "H100: GPT-2 124M, 8 × 1024, 18.8 ms in place of 19.3"},
      kExact},
     {"sm_100", 87, kNoCalls, kNoCalls, kExact, kExact},
     {"sm_120", 87, kNoCalls, kNoCalls, kExact, kExact}}};

struct CudaModel {
  /// Blocks of four warps; 2048 of them occupy the 132 processors of an H200, which hold 64 warps each.
  GridModel grid;
  /// Each chunk of logits reads and writes the weights' gradient once more. With chunks of 64 MiB, GPT-2's took a
  /// quarter of a step of 65,536 tokens on an H200.
  int64_t chunkBytes = int64_t(512) << 20;
  /// Most bytes of a slice of rows of a large weight gradient; slices have at least half of it. Such a product has
  /// enough tiles for every processor, and at least half of the gradient needs no memory.
  int64_t sliceBytes = int64_t(32) << 20;
  /// The rows of a large slice are a multiple of this, so that they are whole tiles of the product.
  int64_t sliceRows = 128;
  /// Alignment of matrix rows that tensor cores need for full speed (cuBLAS, "cublasLtMatmul", alignment of A, B, C).
  int64_t productRowBytes = 16;
  /// Rows that keep a card busy. Half as many warps reduce at a time.
  int64_t reductionUnits = 16384;
  /// Workspace of cuBLASLt for sums over parts of K: one f32 result for each part of `partLength`, at most `mostParts`,
  /// and no more bytes than NVIDIA's own default on an H100 (cuBLAS, "cublasSetWorkspace"). Not measured.
  int64_t partLength = 512, mostParts = 16;
  uint64_t mostWorkspaceBytes = uint64_t(32) << 20;
  /// Workspace of cuDNN besides copies of operands: partial sums of a weight gradient, one for each part of so many
  /// pixels up to a number of parts; and a share of the operands' bytes, between two bounds.
  int64_t partPixels = 1024, depthwisePartPixels = 32, mostPixelParts = 512;
  uint64_t slackShare = 8, leastSlackBytes = uint64_t(64) << 10, mostSlackBytes = uint64_t(1) << 20;
  /// Most bytes of score gradients that the library's gradient of attention may store.
  int64_t mostScoreBytes = int64_t(4) << 30;
  /// Without a memory budget, "auto" leaves attention to the library only if its scratch raises the peak of memory by
  /// no more than this share, or than these bytes, which matter on no card. The library's attention gained 3 to 6 % of
  /// a step; an eighth of the memory less for the batch would cost more.
  uint64_t raiseShare = 8, harmlessRaiseBytes = uint64_t(256) << 20;
  /// Rates by which recomputation, order and fusion are decided: those of the architecture's record
  /// (runtime/cuda/cards/Rates.h).
  CostModel nominal{.hostBytesPerNs = 50, // PCIe 5.0, 16 lanes; not measured
                    .recomputeTime = 0};  // no recomputation without a budget: time on a card matters more than memory
  double narrowFlopsPerNs = 0, narrowConvolutionFlopsPerNs = 0, tileFlopsPerNs = 0, attentionCallFlopsPerNs = 0;
};

/// The model with an architecture's rates.
CudaModel modelOf(const Architecture &architecture);

/// The code model of an architecture.
CodeModel codeOf(const Architecture &architecture, const CudaModel &model);

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H
