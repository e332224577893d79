//===- Cards.h - data sheets of NVIDIA's cards ------------------*- C++ -*-===//
//
// Memory and peak rates of cards by their data sheets. `--memory-budget 60%` is a share of this memory. Reports and
// profiles compute least times from the rates, and expected ones from the shares of them that cards reach (Rates.h).
// The compiler scales rates that no card of an architecture has shown by them (compiler/target/cuda/CudaModel.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_CARDS_CARDS_H
#define TCC_RUNTIME_CUDA_CARDS_CARDS_H

#include <cstdint>
#include <span>
#include <string_view>

namespace tcc::nvidia {

struct Card {
  std::string_view name;         ///< as --device-memory takes it: "h200"
  std::string_view title;        ///< "H200 SXM"
  std::string_view driverName;   ///< cuDeviceGetName's: "NVIDIA H200"
  std::string_view architecture; ///< "sm_90"
  uint64_t memoryBytes;          ///< the data sheet's gigabytes as 10⁹ bytes: a little less than the driver reports
  double bytesPerSecond;         ///< of memory
  double f32, tf32, bf16;        ///< operations per second, without sparsity, sums in f32
  int processors;                ///< streaming multiprocessors
  std::string_view source;
};

/// All known whole cards. Among the cards of one architecture, the most common one in data centres comes first.
std::span<const Card> cards();

/// Slices of them by MIG, as instances with one compute instance: named "h100-3g.40gb". Memory is that of the name,
/// rates are the documented fractions of the card's.
std::span<const Card> slices();

/// The card or slice of a name, upper or lower case; null if there is none.
const Card *findCard(std::string_view name);

/// The card of this name in the driver (cuDeviceGetName); null for an unknown one.
const Card *findCardOfDriver(std::string_view driverName);

/// The default card of an architecture: the first of `cards()`; null for an unknown architecture.
const Card *usualCard(std::string_view architecture);

} // namespace tcc::nvidia

#endif // TCC_RUNTIME_CUDA_CARDS_CARDS_H
