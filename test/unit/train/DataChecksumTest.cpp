//===- DataChecksumTest.cpp - do ranks read the same data? -----------------===//
#include "runtime/train/DataChecksum.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// A column of zeros, except sample `odd`. Counts the reads.
class Handed : public Column {
public:
  Handed(uint64_t samples, bool computed, uint64_t odd) : Column("x", typeOf(samples)), computed(computed), odd(odd) {}
  Status read(uint64_t index, std::byte *destination) const override {
    ++reads;
    const float value = index == odd ? 1 : 0;
    std::memcpy(destination, &value, sizeof(value));
    return Status();
  }
  bool isComputed() const override { return computed; }

  mutable uint64_t reads = 0;

private:
  static plan::TensorType typeOf(uint64_t samples) {
    plan::TensorType type;
    type.set_dtype(plan::F32);
    type.add_dims(static_cast<int64_t>(samples));
    return type;
  }
  bool computed;
  uint64_t odd;
};

constexpr uint64_t kNone = UINT64_MAX;

uint64_t sumOf(const Column &column) { return dataChecksum({{"x", &column}}); }
} // namespace

TEST(DataChecksum, SeesEachValueInMemory) {
  constexpr int64_t kValues = 1 << 16;
  auto column = [](int64_t odd) {
    std::vector<float> values(kValues);
    if (odd >= 0)
      values[static_cast<size_t>(odd)] = 1;
    return ownedColumn("x", plan::F32, {kValues / 4, 4}, std::move(values));
  };
  const uint64_t sum = sumOf(*column(-1));
  EXPECT_EQ(sum, sumOf(*column(-1))) << "of a copy";
  for (int64_t odd = 1; odd < kValues; odd += 997)
    EXPECT_NE(sum, sumOf(*column(odd))) << odd;
}

TEST(DataChecksum, ReadsABoundedNumberOfSamples) {
  for (const auto &[samples, computed, most] :
       {std::tuple(uint64_t(1000), true, uint64_t(64)), std::tuple(uint64_t(70'000), false, uint64_t(65'536))}) {
    Handed plain(samples, computed, kNone);
    const uint64_t sum = sumOf(plain);
    EXPECT_EQ(plain.reads, most);
    EXPECT_EQ(sum, sumOf(Handed(samples, computed, kNone)));
    for (const uint64_t seen : {uint64_t(0), samples - 1})
      EXPECT_NE(sum, sumOf(Handed(samples, computed, seen))) << samples << ", " << seen;
  }
  // With few samples, all are read.
  const uint64_t sum = sumOf(Handed(64, true, kNone));
  for (uint64_t odd = 0; odd < 64; ++odd)
    EXPECT_NE(sum, sumOf(Handed(64, true, odd))) << odd;
}
