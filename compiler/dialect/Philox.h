//===- Philox.h - random ops and the counter-based generator ----*- C++ -*-===//
//
// support/Philox.h is the generator; this file computes the ids of random ops.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_PHILOX_H
#define TCC_DIALECT_PHILOX_H

#include "support/Philox.h"

#include <string_view>

namespace tcc::train {

using tcc::kPhiloxKeySteps;
using tcc::kPhiloxMultipliers;
using tcc::kPhiloxRounds;
using tcc::philox;

/// The id of a random op: FNV-1a of its ONNX node's name, the op's ordinal among ops of that name, and the node's own
/// seed. A run's results depend on it, so it must never change.
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
