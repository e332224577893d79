//===- Random.h - a random generator, the same on every platform --*- C++ -*-===//
//
// SplitMix64 (Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_RANDOM_H
#define TCC_PLANNING_RANDOM_H

#include <cstdint>

namespace tcc::planning {

class RandomBits {
public:
  explicit RandomBits(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += kStep);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Number `place` of the sequence of seed 0.
  static uint64_t at(uint64_t place) { return RandomBits(place * kStep).next(); }

private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t state;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_RANDOM_H
