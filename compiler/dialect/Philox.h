//===- Philox.h - the counter-based generator -------------------*- C++ -*-===//
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3. Ten
// rounds of two 32 × 32 → 64 bit products each turn a counter of four words into four words that look independent of
// it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_PHILOX_H
#define TCC_DIALECT_PHILOX_H

#include <array>
#include <cstdint>
#include <string_view>

namespace tcc::train {

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

/// The id of a random op: FNV-1a of its ONNX node's name, the op's ordinal among those of that name, and the node's own
/// seed. Part of what a run's results depend on: it never changes.
inline int64_t randomId(std::string_view name, uint64_t ordinal, uint64_t seed = 0) {
  uint64_t hash = 0xcbf29ce484222325;
  auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (char c : name)
    add(uint8_t(c));
  for (uint64_t number : {ordinal, seed})
    for (int shift = 0; shift < 64; shift += 8)
      add(uint8_t(number >> shift));
  return int64_t(hash);
}

} // namespace tcc::train

#endif // TCC_DIALECT_PHILOX_H
