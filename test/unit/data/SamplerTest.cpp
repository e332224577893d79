//===- SamplerTest.cpp - orders are complete, different, and the same every time -===//
#include "runtime/data/Sampler.h"
#include "runtime/data/ShapeChoice.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/Epochs.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

TEST(Permutation, IsOneForEverySize) {
  for (uint64_t count : {1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1000}) {
    Permutation permutation(count, 42);
    std::set<uint64_t> images;
    for (uint64_t i = 0; i < count; ++i)
      images.insert(permutation(i));
    EXPECT_EQ(images.size(), count);
    EXPECT_LT(*images.rbegin(), count);
  }
}

TEST(Sampler, ShuffleReadsEverySampleOnce) {
  Sampler sampler(64, 64, 8, SampleOrder::Shuffled, 1, LastBatch::Drop);
  std::vector<uint64_t> order = epochOf(sampler, 0);
  EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), 64u);
  EXPECT_NE(order, epochOf(sampler, 1)) << "another epoch, another order";
  EXPECT_EQ(order, epochOf(Sampler(64, 64, 8, SampleOrder::Shuffled, 1, LastBatch::Drop), 0));
  EXPECT_NE(order, epochOf(Sampler(64, 64, 8, SampleOrder::Shuffled, 2, LastBatch::Drop), 0))
      << "another seed, another order";
}

/// Users have trained with this order: changing it would change results that users compare.
TEST(Sampler, TheAlgorithmIsFrozen) {
  EXPECT_EQ(mixBits(0x9e3779b97f4a7c15ull), 0xe220a8397b1dcdafull); // SplitMix64's first output from state 0
  Sampler sampler(10, 10, 10, SampleOrder::Shuffled, 7, LastBatch::Drop);
  std::vector<uint64_t> first = epochOf(sampler, 0), again = epochOf(sampler, 0);
  EXPECT_EQ(first, again);
  EXPECT_EQ(first, (std::vector<uint64_t>{5, 6, 2, 7, 8, 0, 3, 4, 1, 9}));
}

TEST(Sampler, OrderedStartsOverAtTheEnd) {
  Sampler sampler(10, 10, 4, SampleOrder::Ordered, 1, LastBatch::Drop);
  EXPECT_EQ(epochOf(sampler, 0), (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}))
      << "the last, shorter batch is dropped";
  EXPECT_EQ(epochOf(sampler, 5), epochOf(sampler, 0));
}

TEST(Sampler, PaddedEpochEndsWithAShorterBatch) {
  Sampler sampler(10, 10, 4, SampleOrder::Ordered, 1, LastBatch::Pad);
  EXPECT_EQ(sampler.batchesPerEpoch(), 3u);
  std::vector<uint64_t> indices;
  sampler.batchOf(0, 2, indices);
  EXPECT_EQ(indices, (std::vector<uint64_t>{8, 9}));
}

TEST(Sampler, TooFewSamplesMakeNoBatch) {
  EXPECT_EQ(Sampler(3, 3, 4, SampleOrder::Shuffled, 1, LastBatch::Drop).batchesPerEpoch(), 0u);
  EXPECT_EQ(Sampler(3, 3, 4, SampleOrder::Shuffled, 1, LastBatch::Pad).batchesPerEpoch(), 1u);
}

TEST(Sampler, RandomDrawsSpreadOverAllStarts) {
  Sampler sampler(1000, 10000, 100, SampleOrder::Random, 3, LastBatch::Drop);
  std::vector<uint64_t> draws = epochOf(sampler, 0);
  ASSERT_EQ(draws.size(), 10000u);
  double mean = std::accumulate(draws.begin(), draws.end(), 0.0) / 10000;
  EXPECT_NEAR(mean, 499.5, 12); // four standard errors of a uniform draw
  EXPECT_LT(*std::max_element(draws.begin(), draws.end()), 1000u);
  EXPECT_GT(std::set<uint64_t>(draws.begin(), draws.end()).size(), 990u);
  EXPECT_NE(draws, epochOf(sampler, 1));
}

TEST(Sampler, WeightsSayHowOftenASampleIsDrawn) {
  auto sums = cumulativeWeights(std::vector<double>{1, 0, 3, 0});
  ASSERT_TRUE(sums.ok()) << sums.message();
  Sampler sampler(4, 40000, 100, SampleOrder::Random, 3, LastBatch::Drop, *sums);
  EXPECT_TRUE(sampler.repeats());
  std::vector<uint64_t> order = epochOf(sampler, 0);
  const auto ofLast = std::count(order.begin(), order.end(), 2u);
  EXPECT_EQ(ofLast + std::count(order.begin(), order.end(), 0u), 40000) << "a weight of 0 is never drawn";
  EXPECT_NEAR(static_cast<double>(ofLast), 30000, 4 * 87) << "four deviations";
  EXPECT_NE(order, epochOf(sampler, 1));
  EXPECT_FALSE(cumulativeWeights(std::vector<double>{0, 0}).ok());
  EXPECT_FALSE(cumulativeWeights(std::vector<double>{1, -1}).ok());
}

TEST(Sampler, RanksShareTheBatchesOfOneRankWithALargerBatch) {
  for (SampleOrder order : {SampleOrder::Ordered, SampleOrder::Shuffled, SampleOrder::Random}) {
    constexpr uint64_t kRanks = 3, kBatch = 4, kSamples = 50;
    const Sampler whole(kSamples, kSamples, kBatch * kRanks, order, 9, LastBatch::Drop);
    for (uint64_t number = 0; number < whole.batchesPerEpoch(); ++number) {
      std::vector<uint64_t> expected, joined, own;
      whole.batchOf(2, number, expected);
      for (uint64_t rank = 0; rank < kRanks; ++rank) {
        Sampler part(kSamples, kSamples, kBatch, order, 9, LastBatch::Drop);
        part.setRanks(rank, kRanks);
        ASSERT_EQ(part.batchesPerEpoch(), whole.batchesPerEpoch());
        EXPECT_EQ(part.dropped(), 2u);
        part.batchOf(2, number, own);
        EXPECT_EQ(own.size(), kBatch);
        joined.insert(joined.end(), own.begin(), own.end());
      }
      EXPECT_EQ(joined, expected);
    }
  }
}

TEST(Sampler, OneRankReadsTheWindowsOfSeveralInTurn) {
  constexpr uint64_t kRanks = 4, kBatch = 2, kSamples = 60, kWindow = 3; // 7 global batches: windows of 3, 3 and 1
  auto ofRank = [&](uint64_t rank) {
    Sampler part(kSamples, kSamples, kBatch, SampleOrder::Shuffled, 9, LastBatch::Drop);
    part.setRanks(rank, kRanks);
    return part;
  };
  Sampler share = ofRank(2);
  share.setShare(2, kWindow);
  EXPECT_EQ(share.readsPerEpoch(), 14u);
  for (uint64_t origin : {0, 1}) { // 1: a resumed run may begin in the middle of an earlier run's window
    share.beginAt(5, origin);
    uint64_t read = origin * 2;
    for (uint64_t begin = origin; begin < 7; begin += kWindow)
      for (uint64_t rank : {2, 3})
        for (uint64_t number = begin; number < std::min<uint64_t>(begin + kWindow, 7); ++number, ++read) {
          std::vector<uint64_t> expected, own;
          ofRank(rank).batchOf(5, number, expected);
          share.batchOf(5, read, own);
          EXPECT_EQ(own, expected) << "read " << read;
          EXPECT_EQ(share.drawNumber(5, read), ofRank(rank).drawNumber(5, number));
        }
    EXPECT_EQ(read, 14u);
  }
  std::vector<uint64_t> expected, own;
  ofRank(3).batchOf(6, 0, expected);
  share.batchOf(6, kWindow, own);
  EXPECT_EQ(own, expected) << "another epoch begins at its first batch";
}

TEST(Sampler, EveryRankHasAPartOfAPaddedEnd) {
  auto lastOf = [](uint64_t samples, uint64_t rank) {
    Sampler part(samples, samples, 4, SampleOrder::Ordered, 1, LastBatch::Pad);
    part.setRanks(rank, 3);
    std::vector<uint64_t> own;
    part.batchOf(0, part.batchesPerEpoch() - 1, own);
    EXPECT_EQ(part.globalSamples(0, part.batchesPerEpoch() - 1), samples % 12 < 3 ? 12 : samples % 12);
    EXPECT_EQ(part.dropped(), samples % 12 < 3 ? samples % 12 : 0);
    return own;
  };
  EXPECT_EQ(lastOf(12 + 7, 0), (std::vector<uint64_t>{12, 13}));
  EXPECT_EQ(lastOf(12 + 7, 1), (std::vector<uint64_t>{14, 15}));
  EXPECT_EQ(lastOf(12 + 7, 2), (std::vector<uint64_t>{16, 17, 18}));
  // Two samples are too few for three ranks, so that they are dropped.
  EXPECT_EQ(lastOf(12 + 2, 2), (std::vector<uint64_t>{8, 9, 10, 11}));
}

namespace {
/// Readers of samples of random sizes, for an entry in shapes of these heights, widths and batches.
struct SizedSamples {
  SizedSamples(const std::vector<std::array<int64_t, 2>> &sizes, const std::vector<std::array<int64_t, 2>> &frames,
               const std::vector<uint64_t> &batches) {
    std::vector<int64_t> shapes;
    size_t elements = 0;
    for (const auto &[height, width] : sizes) {
      shapes.insert(shapes.end(), {height, width});
      elements += static_cast<size_t>(height * width);
    }
    std::vector<std::unique_ptr<Column>> columns;
    columns.push_back(
        ownedColumn<float>("x", plan::F32, {static_cast<int64_t>(elements)}, std::vector<float>(elements)));
    columns.push_back(
        ownedColumn<int64_t>("x.shapes", plan::I64, {static_cast<int64_t>(sizes.size()), 2}, std::move(shapes)));
    dataset = openDatasetColumns("memory", std::move(columns), {}).take();
    BindOptions options;
    options.raggedInputs = {{"x", {0, 1}}};
    for (size_t shape = 0; shape < frames.size(); ++shape) {
      const auto batch = static_cast<int64_t>(batches[shape]);
      const plan::Entry entry = entryOf(batch, {{"x", plan::F32, {batch, frames[shape][0], frames[shape][1]}, 0}});
      readers.push_back(std::make_unique<BatchReader>(BatchReader::bind(entry, dataset, options).take()));
    }
  }
  Dataset dataset;
  std::vector<std::unique_ptr<BatchReader>> readers;
};
} // namespace

/// Batches of several shapes: random numbers of samples, shapes, batches and ranks, smaller batches for the last
/// samples, and each rule for these. In half of the trials the shapes follow from sizes in two axes.
TEST(Sampler, EveryShapesSamplesAreSeenOnce) {
  for (uint64_t trial = 0; trial < 600; ++trial) {
    auto draw = [&, state = mixBits(trial + 1)](uint64_t most) mutable { return (state = mixBits(state + 1)) % most; };
    const uint64_t samples = 1 + draw(200), count = 1 + draw(4), ranks = 1 + draw(3);
    const LastBatch last = std::array{LastBatch::Drop, LastBatch::Pad, LastBatch::Exact}[draw(3)];
    const SampleOrder order = draw(2) ? SampleOrder::Shuffled : SampleOrder::Ordered;
    std::vector<uint8_t> shapes(samples);
    for (uint8_t &shape : shapes)
      shape = static_cast<uint8_t>(draw(count));
    std::vector<uint64_t> batches(count), lengthOf(count);
    std::iota(lengthOf.begin(), lengthOf.end(), uint64_t(0));
    for (uint64_t &batch : batches)
      batch = 1 + draw(6);
    std::vector<std::vector<uint8_t>> smaller(count);
    for (uint64_t shape = 0; shape < count; ++shape)
      for (uint64_t more = draw(3); more > 0 && batches[shape] > 1; --more) {
        smaller[shape].push_back(static_cast<uint8_t>(batches.size()));
        lengthOf.push_back(shape);
        batches.push_back(1 + draw(batches[shape] - 1));
      }
    smaller.resize(batches.size());
    if (trial % 2) {
      // Distinct heights and widths, of which the last shape has the largest, so that each sample has a shape.
      std::vector<std::array<int64_t, 2>> frames(batches.size()), sizes(samples);
      for (uint64_t shape = 0; shape < count; ++shape)
        frames[shape] = {static_cast<int64_t>(1 + draw(6) + 6 * (shape + 1 == count)),
                         static_cast<int64_t>(1 + 6 * shape + draw(6))};
      for (size_t shape = count; shape < frames.size(); ++shape)
        frames[shape] = frames[lengthOf[shape]];
      for (auto &size : sizes)
        for (size_t axis : {0, 1})
          size[axis] = static_cast<int64_t>(1 + draw(static_cast<uint64_t>(frames[count - 1][axis])));
      const SizedSamples sized(sizes, frames, batches);
      shapes = shapesOfSamples(sized.readers);
      smaller = smallerBatches(sized.readers);
      for (uint64_t sample = 0; sample < samples; ++sample) {
        auto holds = [&](size_t shape) {
          return sizes[sample][0] <= frames[shape][0] && sizes[sample][1] <= frames[shape][1];
        };
        ASSERT_LT(shapes[sample], count) << "the largest batch of its size";
        EXPECT_TRUE(holds(shapes[sample]));
        for (size_t other = 0; other < count; ++other)
          EXPECT_TRUE(!holds(other) ||
                      frames[other][0] * frames[other][1] >= frames[shapes[sample]][0] * frames[shapes[sample]][1])
              << "a smaller shape holds sample " << sample;
      }
    }
    std::vector<Sampler> parts;
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      parts.emplace_back(samples, samples, 7, order, trial, last);
      parts.back().setShapes(shapes, batches, smaller);
      parts.back().setRanks(rank, ranks);
    }
    std::vector<uint64_t> own, global;
    for (uint64_t epoch : {0, 1}) {
      std::set<uint64_t> seen;
      for (uint64_t number = 0; number < parts[0].batchesPerEpoch(); ++number) {
        const size_t shape = parts[0].shapeOf(epoch, number);
        std::vector<uint64_t> joined;
        for (const Sampler &part : parts) {
          EXPECT_EQ(part.shapeOf(epoch, number), shape) << "all ranks take the same shape";
          part.batchOf(epoch, number, own);
          EXPECT_LE(own.size(), batches[shape]);
          EXPECT_GE(own.size(), last == LastBatch::Pad ? 1 : batches[shape]) << "every rank has a sample";
          joined.insert(joined.end(), own.begin(), own.end());
        }
        parts[0].globalBatchOf(epoch, number, global);
        EXPECT_EQ(joined, global);
        EXPECT_EQ(parts[0].globalSamples(epoch, number), global.size());
        if (last == LastBatch::Pad) // no smaller shape would have held them
          for (uint8_t other : smaller[lengthOf[shape]])
            EXPECT_TRUE(batches[other] * ranks < global.size() || batches[other] >= batches[shape]);
        for (uint64_t sample : global) {
          EXPECT_EQ(shapes[sample], lengthOf[shape]);
          EXPECT_TRUE(seen.insert(sample).second) << "sample " << sample << " twice";
        }
      }
      EXPECT_EQ(seen.size() + parts[0].dropped(), samples);
      for (uint64_t shape = 0; shape < count; ++shape) {
        uint64_t all = 0, left = 0;
        for (uint64_t sample = 0; sample < samples; ++sample)
          if (shapes[sample] == shape)
            ++all, left += !seen.contains(sample);
        const uint64_t rest = all % (batches[shape] * ranks), ofRank = rest / ranks;
        const bool held =
            ofRank > 0 && std::ranges::any_of(smaller[shape], [&](uint8_t other) { return batches[other] == ofRank; });
        EXPECT_EQ(left, last == LastBatch::Drop  ? rest
                        : last == LastBatch::Pad ? (rest >= ranks ? 0 : rest)
                                                 : (held ? rest % ranks : rest));
        if (last == LastBatch::Exact) {
          EXPECT_EQ(parts[0].unheld()[shape], held ? 0 : ofRank);
        }
      }
    }
  }
}

/// A batch stands where its last sample does in the epoch's order.
TEST(Sampler, ShapesMix) {
  Sampler sampler(8, 8, 2, SampleOrder::Ordered, 1, LastBatch::Pad);
  sampler.setShapes({0, 1, 0, 1, 1, 1, 0, 0}, {2, 3}, {{}, {}});
  std::vector<std::vector<uint64_t>> batches(sampler.batchesPerEpoch());
  for (uint64_t i = 0; i < batches.size(); ++i)
    sampler.batchOf(0, i, batches[i]);
  EXPECT_EQ(batches, (std::vector<std::vector<uint64_t>>{{0, 2}, {1, 3, 4}, {6, 7}, {5}}));
}
