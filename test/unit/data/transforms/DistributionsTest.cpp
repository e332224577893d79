//===- DistributionsTest.cpp - what random transforms draw -----------------===//
//
// Each test draws many samples and compares their frequencies with the distribution, within four standard deviations.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Mix.h"
#include "test/unit/data/transforms/TransformFixture.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
constexpr int kDraws = 20000;

/// Expects `count` of `draws` to be near probability p.
void expectShare(int count, int draws, double p, const std::string &what) {
  EXPECT_NEAR(count / double(draws), p, 4 * std::sqrt(p * (1 - p) / draws) + 1e-12) << what;
}

/// 0, 1, 2, … along rows.
Image ramp(uint32_t height, uint32_t width) {
  std::vector<uint8_t> bytes(size_t(height) * width);
  std::iota(bytes.begin(), bytes.end(), uint8_t(0));
  return bytesImage(1, height, width, bytes);
}
} // namespace

TEST(Distributions, Uniform) {
  Random random({1, 2}, 3, 4);
  std::map<uint32_t, int> counts;
  double sum = 0, squares = 0, normal = 0, normalSquares = 0;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[random.below(7)];
    const double u = random.uniform(), n = random.normal();
    EXPECT_TRUE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
    normal += n;
    normalSquares += n * n;
  }
  for (uint32_t value = 0; value < 7; ++value)
    expectShare(counts[value], kDraws, 1 / 7.0, "below(7)");
  EXPECT_NEAR(sum / kDraws, 0.5, 4 * std::sqrt(1 / 12.0 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1 / 3.0, 4 * std::sqrt(4 / 45.0 / kDraws));
  EXPECT_NEAR(normal / kDraws, 0, 4 / std::sqrt(kDraws));
  EXPECT_NEAR(normalSquares / kDraws, 1, 4 * std::sqrt(2.0 / kDraws));
}

TEST(Distributions, Beta) {
  for (double alpha : {0.2, 1.0, 3.0}) {
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      Random random({1, 2}, uint64_t(i), 4);
      const double value = random.beta(alpha) - 0.5;
      sum += value;
      squares += value * value;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 4 * variance / std::sqrt(kDraws)) << alpha;
  }
}

TEST(Distributions, FlipsAndCrops) {
  int flipped = 0;
  std::map<uint8_t, int> corners;
  for (int i = 0; i < kDraws; ++i) {
    flipped += transformed(ramp(1, 2), "kind = 'horizontal_flip', p = 0.3", uint64_t(i)).bytes[0] == 1;
    ++corners[transformed(ramp(4, 5), "kind = 'random_crop', size = 3", uint64_t(i)).bytes[0]];
  }
  expectShare(flipped, kDraws, 0.3, "flips");
  EXPECT_EQ(corners.size(), 6u) << "2 × 3 places";
  for (const auto &[corner, count] : corners)
    expectShare(count, kDraws, 1 / 6.0, "corner " + std::to_string(corner));
}

TEST(Distributions, CropsOfPaddedImages) {
  std::set<std::vector<uint8_t>> seen;
  for (uint64_t i = 0; i < 2000; ++i)
    seen.insert(transformed(ramp(3, 3), "kind = 'random_crop', size = 3, padding = 1, fill = 99", i).bytes);
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_TRUE(seen.contains({99, 99, 99, 99, 0, 1, 99, 3, 4})) << "the corner at the top left";
}

TEST(Distributions, ErasedAreas) {
  // Half of the images are erased in a square of a fifth of the area, 9 × 9 of 20 × 20, anywhere.
  const Image black = bytesImage(1, 20, 20, std::vector<uint8_t>(400, 0));
  int erased = 0;
  double top = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Image image = transformed(black, "kind = 'random_erasing', scale = [0.2, 0.2], ratio = [1, 1], value = 1", i);
    const auto area = std::count(image.values.begin(), image.values.end(), 1.0f);
    EXPECT_TRUE(area == 0 || area == 81) << area;
    erased += area != 0;
    if (area != 0)
      top += double((std::find(image.values.begin(), image.values.end(), 1.0f) - image.values.begin()) / 20);
  }
  expectShare(erased, 4000, 0.5, "erased");
  EXPECT_NEAR(top / erased, 5.5, 4 * std::sqrt((144 - 1) / 12.0 / erased)) << "rows 0 to 11";
  const Image noise = transformed(black, "kind = 'random_erasing', p = 1, value = 'random'", 1);
  EXPECT_TRUE(std::any_of(noise.values.begin(), noise.values.end(), [](float v) { return v < 0; }));
}

TEST(Distributions, CutoutIsCutOffAtTheBorder) {
  const Image white = bytesImage(1, 8, 8, std::vector<uint8_t>(64, 255));
  double area = 0;
  long least = 64, most = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Image image = transformed(white, "kind = 'cutout', size = 4", i);
    const long count = std::count(image.bytes.begin(), image.bytes.end(), 0);
    area += double(count);
    least = std::min(least, count);
    most = std::max(most, count);
  }
  // The eight centres give sides of 2, 3, 4, 4, 4, 4, 4 and 3.
  EXPECT_NEAR(area / 4000, 3.5 * 3.5, 4 * 3.5 / std::sqrt(4000));
  EXPECT_EQ(least, 4);
  EXPECT_EQ(most, 16);
}

TEST(Distributions, AugmentationsAreDrawnEvenly) {
  // A flat grey image only shows operations that change levels: both signs of brightness are equally frequent.
  const Image grey = bytesImage(3, 4, 4, std::vector<uint8_t>(48, 100));
  std::map<int, int> levels;
  for (uint64_t i = 0; i < 14000; ++i) {
    const Image image = transformed(grey, "kind = 'rand_augment', num_ops = 1, magnitude = 10, num_magnitude_bins = 31", i);
    ++levels[image.bytes[16 + 5]]; // not at a border, which shears and shifts fill
  }
  expectShare(levels[130], 14000, 1 / 28.0, "brightness 1.3");
  expectShare(levels[70], 14000, 1 / 28.0, "brightness 0.7");
}

TEST(Distributions, ShareOfCutmix) {
  int cut = 0, mixed = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    Random random({0, 0}, i, 1);
    auto mixture = chooseMixture(specOf("kind = 'mixup_or_cutmix', switch = 0.25, p = 0.8"), 8, 8, random);
    cut += mixture && mixture->box;
    mixed += mixture && !mixture->box;
  }
  expectShare(cut, 10000, 0.2, "cutmix");
  expectShare(mixed, 10000, 0.6, "mixup");
}
