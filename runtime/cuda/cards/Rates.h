//===- Rates.h - what cards reach of their data sheets ----------*- C++ -*-===//
//
// One record for an architecture: the rates by which the compiler decides, and the constants of the expected time
// (tools/common/ExpectedTime.h). Only cards of sm_90 have been measured; the rates of other architectures follow from
// theirs by the data sheets of each architecture's usual card, and the constants are theirs. The fields say which
// measurement a constant rests on (docs/measurements/device-runs.md); docs/measurements/cuda-estimates.md says which
// runs have checked them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_CARDS_RATES_H
#define TCC_RUNTIME_CUDA_CARDS_RATES_H

#include <string_view>

namespace tcc::nvidia {

/// In a second, per 10⁹ a nanosecond.
inline constexpr double kPerNs = 1e9;

struct Rates {
  bool measured = true; ///< on cards of the architecture

  // By which recomputation, order and fusion are decided. Operations and bytes in a second, of the architecture's usual
  // card.
  double call = 60e12;   ///< calls of f32
  double kernel = 10e12; ///< generated kernels
  double memory = 2.5e12;
  double launchNs = 2000;
  /// Products and convolutions of 16-bit factors, and attention on tiles, measured on an H200. f32 factors rounded to
  /// TF32 have half the rate; attention in f32, with three such products for one, a sixth.
  double narrowProduct = 600e12, narrowConvolution = 100e12, tiles = 150e12;
  /// Attention by cuDNN, forward and gradient together.
  double attentionCall = 190e12;

  // Of the expected time. Shares are those of data sheets.

  /// Of the bandwidth: long kernels moved 2.9 of an H100's 3.35 TB/s, 4.1 of an H200's 4.8.
  double memoryShare = 0.86;
  /// Of the issue slots, four for each processor and cycle, as KernelWork counts instructions: gelu by tanh of GPT-2,
  /// 8 × 1024, took 46 µs on an H200 and 47 on an H100, whose memory is slower, so that instructions decided.
  double issueShare = 0.95;
  /// Cycles for which an approximation (2^x, 1/x) of a warp occupies its processor's unit, which computes 16 in a cycle
  /// (CUDA C++ Programming Guide, "Arithmetic Instructions").
  double approximationCycles = 2;
  /// f32 operations that a processor completes in a cycle, from which and from the data sheet its clock follows: two
  /// for each of its lanes.
  double operationsPerCycle = 256;
  /// From the end of a kernel's work to that of the next one: the graph's edge, the first loads, the last blocks. With
  /// 690 fewer launches a step of ResNet-50 took 2 ms less on an H200.
  double launchSeconds = 2.5e-6;

  /// Of products in 16 bits: the rate at which a processor computes a tile of 128 × 256, and that which the power of a
  /// card allows to large products. Products of GPT-2 took 9.3 to 9.5 ms at 8 × 1024, 68 to 69 ms at 64 × 1024.
  double tileShare = 0.84, sustainedShare = 0.77;
  /// Steps of K that the beginning and the end of a tile cost.
  double tileOverheadK = 192;
  /// Products whose call multiplies by gelu's derivative and sums: 153 to 171 TFLOP/s on an H100.
  double geluGradientShare = 0.165;
  /// A convolution as a product of tiles: fitted to ResNet-50, 64 images, on an H100.
  double convolutionShare = 0.5;

  /// Attention in kernels: 76 and 211 µs for GPT-2's layer of 8 × 1024 on an H100.
  double attentionShare = 0.19, attentionGradientShare = 0.165;
  /// Attention by cuDNN, in tiles of `attentionTile` queries and keys: 54 µs forward; the gradient 1308 µs at 64 × 1024
  /// (197 TFLOP/s) and 200 µs at 8 × 1024, from which the fixed part of a call follows.
  double attentionCallShare = 0.28, attentionGradientCallShare = 0.23, attentionGradientCallSeconds = 35e-6;
  double attentionTile = 128;
};

/// Of an architecture ("sm_90"); of an unknown one those of sm_90.
Rates ratesOf(std::string_view architecture);

} // namespace tcc::nvidia

#endif // TCC_RUNTIME_CUDA_CARDS_RATES_H
