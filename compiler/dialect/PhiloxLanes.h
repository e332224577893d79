//===- PhiloxLanes.h - the counter-based generator in kernels ---*- C++ -*-===//
#ifndef TCC_DIALECT_PHILOXLANES_H
#define TCC_DIALECT_PHILOXLANES_H

#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Philox.h"

namespace tcc::train {

using PhiloxLanes = std::array<Lane, 4>;

/// philox() on lanes: words of 32 bits, each in an i64 whose upper half is 0.
inline PhiloxLanes emitPhilox(PhiloxLanes counter, Lane key0, Lane key1) {
  Lane low = key0.likeInt(0xFFFFFFFF);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Lane first = counter[0] * key0.likeInt(kPhiloxMultipliers[0]),
         second = counter[2] * key0.likeInt(kPhiloxMultipliers[1]);
    counter = {second.shiftRightUnsigned(32) ^ counter[1] ^ key0, second & low,
               first.shiftRightUnsigned(32) ^ counter[3] ^ key1, first & low};
    key0 = (key0 + key0.likeInt(kPhiloxKeySteps[0])) & low;
    key1 = (key1 + key1.likeInt(kPhiloxKeySteps[1])) & low;
  }
  return counter;
}

/// The draw of train.random at `position` (i64): the same with the compile-time constant `id` and the four words that
/// the runtime sets.
inline PhiloxLanes emitPhilox(Lane position, llvm::ArrayRef<Lane> words, uint64_t id) {
  PhiloxLanes counter = {position & position.likeInt(0xFFFFFFFF), position.shiftRightUnsigned(32), words[2], words[3]};
  return emitPhilox(counter, words[0] ^ position.likeInt(int64_t(id & 0xFFFFFFFF)),
                    words[1] ^ position.likeInt(int64_t(id >> 32)));
}

} // namespace tcc::train

#endif // TCC_DIALECT_PHILOXLANES_H
