//===- Philox.h - the counter-based generator -------------------*- C++ -*-===//
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3. Ten
// rounds of two 32 × 32 → 64 bit products each turn a counter of four words into four words that look independent of
// it. Compiled kernels (dropout) and the loader (transforms of samples) both draw from it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_PHILOX_H
#define TCC_SUPPORT_PHILOX_H

#include <array>
#include <cstdint>

namespace tcc {

inline constexpr uint32_t kPhiloxMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
inline constexpr uint32_t kPhiloxKeySteps[2] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    uint64_t first = uint64_t(kPhiloxMultipliers[0]) * counter[0],
             second = uint64_t(kPhiloxMultipliers[1]) * counter[2];
    counter = {uint32_t(second >> 32) ^ counter[1] ^ key[0], uint32_t(second),
               uint32_t(first >> 32) ^ counter[3] ^ key[1], uint32_t(first)};
    key = {key[0] + kPhiloxKeySteps[0], key[1] + kPhiloxKeySteps[1]};
  }
  return counter;
}

} // namespace tcc

#endif // TCC_SUPPORT_PHILOX_H
