//===- CudaModel.h - architectures, grids and rates -------------*- C++ -*-===//
//
// What the compiler knows of CUDA's architectures, and every tuning constant of the target. Constants decide speed and
// scratch, never what a plan computes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H
#define TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H

#include "compiler/target/CodeModel.h"
#include "compiler/target/CostModel.h"

#include <array>
#include <string_view>

namespace tcc::target::cuda {

/// An architecture that kernels are made for, and the version of PTX that they are written in: the oldest that all
/// drivers of CUDA 12 read, or the first that has the architecture (PTX ISA, "Release Notes"). PTX of an architecture
/// also runs on later ones, whose driver compiles it.
struct Architecture {
  std::string_view name; ///< as LLVM and ptxas spell it
  int ptx;               ///< 80: version 8.0
};
inline constexpr std::array<Architecture, 6> kArchitectures = {
    {{"sm_80", 80}, {"sm_86", 80}, {"sm_89", 80}, {"sm_90", 80}, {"sm_100", 87}, {"sm_120", 87}}};

struct CudaModel {
  /// Blocks of four warps; 2048 of them occupy the 132 processors of an H200, which hold 64 warps each.
  GridModel grid;
  /// Each chunk of logits reads and writes the weights' gradient once more. With chunks of 64 MiB, GPT-2's took a
  /// quarter of a step of 65,536 tokens on an H200.
  int64_t chunkBytes = int64_t(512) << 20;
  /// Rows of a large weight gradient that are computed at a time, between this and half of it: the product has tiles
  /// enough for every processor, and half of the gradient or more needs no memory.
  int64_t sliceBytes = int64_t(32) << 20;
  /// Rows of a slice are a multiple of this where they are many: tiles of products fit.
  int64_t sliceRows = 128;
  /// Warps that reduce at a time: half of those.
  int64_t reductionUnits = 16384;
  /// What cuBLASLt may take for sums over parts of K: results in f32, one for each part of this length, so many at
  /// most, and no more than NVIDIA's own default on an H100 (cuBLAS, "cublasSetWorkspace"). Not measured.
  int64_t partLength = 512, mostParts = 16;
  uint64_t mostWorkspaceBytes = uint64_t(32) << 20;
  /// What cuDNN may take beside copies of operands: sums of a weight's gradient, one for each part of so many pixels,
  /// at most so many; and a share of the operands' bytes, between two bounds.
  int64_t partPixels = 1024, depthwisePartPixels = 32, mostPixelParts = 512;
  uint64_t slackShare = 8, leastSlackBytes = uint64_t(64) << 10, mostSlackBytes = uint64_t(1) << 20;
  /// Gradients of scores that the library's gradient of attention may store.
  int64_t mostScoreBytes = int64_t(4) << 30;
  /// A nominal card that recomputation and order are weighed by: the bandwidth of an H100 and what generated kernels
  /// reach of its arithmetic. All rates are the same for every architecture, so that plans differ in code alone.
  CostModel nominal{.callFlopsPerNs = 60000,
                    .kernelFlopsPerNs = 10000,
                    .bytesPerNs = 2500,
                    .stateBytesPerNs = 2500,
                    .launchNs = 2000,
                    .recomputeTime = 0}; // who has a card has its memory, and counts the time
  /// As an H200 reaches them (docs/measurements/device-runs.md): products and convolutions of 16-bit factors, attention on
  /// tiles. Of f32 factors rounded to TF32, half; attention in f32 takes three such products for one, a sixth.
  double narrowFlopsPerNs = 600000, narrowConvolutionFlopsPerNs = 100000, tileFlopsPerNs = 150000;
};

/// The code model of an architecture.
CodeModel codeOf(const Architecture &architecture, const CudaModel &model);

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_CUDAMODEL_H
