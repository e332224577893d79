//===- Random.h - the random numbers of one sample -------------------------===//
//
// A stream of numbers that is a function of (seed, epoch, sample, repeat, view, transform): word i of it is word i mod
// 4 of Philox with the counter (i ÷ 4, transform and view, sample) under a key that Philox derives from (seed, epoch,
// repeat). No state is shared, so any thread draws the same numbers for a sample, in any order and after a resume.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_RANDOM_H
#define TCC_RUNTIME_DATA_TRANSFORMS_RANDOM_H

#include "support/Philox.h"

#include <cmath>

namespace tcc::runtime {

/// The key of a sample's random numbers.
struct Draw {
  uint64_t seed = 0, epoch = 0;
  uint64_t repeat = 0; ///< distinguishes draws of one sample in one epoch, if the sampler repeats samples
  uint32_t view = 0;   ///< distinguishes inputs that read the same column

  Draw ofView(uint32_t number) const { return {seed, epoch, repeat, number}; }
};

class Random {
public:
  /// `transform` is the number of the transform in the recipe.
  Random(const Draw &draw, uint64_t sample, uint32_t transform)
      : counter{0, transform ^ draw.view << 16, uint32_t(sample), uint32_t(sample >> 32)} {
    const std::array<uint32_t, 4> mixed =
        philox({uint32_t(draw.epoch), uint32_t(draw.epoch >> 32), uint32_t(draw.repeat), uint32_t(draw.repeat >> 32)},
               {uint32_t(draw.seed), uint32_t(draw.seed >> 32)});
    key = {mixed[0], mixed[1]};
  }

  uint32_t bits() {
    if (used == 4) {
      words = philox(counter, key);
      ++counter[0];
      used = 0;
    }
    return words[used++];
  }
  /// Uniform in [0, 1).
  double uniform() { return bits() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in 0 … count − 1.
  uint32_t below(uint32_t count) { return uint32_t(uint64_t(bits()) * count >> 32); }
  bool chance(double probability) { return uniform() < probability; }
  /// Of mean 0 and deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  /// Gamma of this shape and scale 1: Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
  double gamma(double shape) {
    if (shape < 1) {
      const double boost = std::pow(1 - uniform(), 1 / shape);
      return gamma(shape + 1) * boost;
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = 1 + c * x;
      if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v * v * v + 3 * d * std::log(v))
        return d * v * v * v;
    }
  }
  double beta(double alpha) {
    const double first = gamma(alpha), second = gamma(alpha);
    return first + second > 0 ? first / (first + second) : double(first > second);
  }

private:
  std::array<uint32_t, 4> counter, words{};
  std::array<uint32_t, 2> key{};
  unsigned used = 4;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_RANDOM_H
