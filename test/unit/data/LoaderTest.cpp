//===- LoaderTest.cpp - reading ahead does not change batches ------------===//
#include "runtime/data/Loader.h"
#include "runtime/data/Sampler.h"
#include "runtime/data/Sheet.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <chrono>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Loading : public FolderTest {
protected:
  /// 20 images of two classes, cropped, flipped and mixed; 6 a batch.
  void SetUp() override {
    FolderTest::SetUp();
    for (int i = 0; i < 20; ++i)
      write("d/" + std::string(i % 4 == 0 ? "a/" : "b/") + std::to_string(100 + i) + ".png", png(8, 8 + uint32_t(i) % 3));
  }
  Dataset open(const std::string &more = "") {
    DatasetOptions options;
    options.training = true;
    options.settings["transform"] = "tables = [{ kind = 'random_crop', size = 8, padding = 2 }, { kind = 'color_jitter', "
                                    "brightness = 0.5 }, { kind = 'one_hot', classes = 2 }" + more + "]";
    auto data = openDataset(at("d"), options);
    EXPECT_TRUE(data.ok()) << data.message();
    return data.take();
  }
  static plan::Entry entry() {
    return entryOf(6, {{"image", plan::F32, {6, 3, 8, 8}, 0}, {"label", plan::F32, {6, 2}, 0}});
  }
  /// Memory for one batch.
  struct Given {
    std::vector<float> images = std::vector<float>(6 * 192), labels = std::vector<float>(12);
    std::vector<std::span<std::byte>> spans() {
      return {std::as_writable_bytes(std::span(images)), std::as_writable_bytes(std::span(labels))};
    }
    bool operator==(const Given &) const = default;
  };
  /// Reads `count` batches one after the other without a loader, from (epoch, number) on.
  std::vector<Given> plain(const Dataset &data, const Sampler &sampler, uint64_t count, uint64_t epoch, uint64_t number,
                           uint64_t maxBad = 0, Status *last = nullptr) {
    BindOptions options;
    options.maxBad = maxBad;
    auto reader = BatchReader::bind(entry(), data, options);
    EXPECT_TRUE(reader.ok()) << reader.message();
    std::vector<Given> batches(count);
    std::vector<uint64_t> indices;
    for (Given &batch : batches) {
      sampler.batchOf(epoch, number, indices);
      Status status = reader->fillSound(indices, BatchReader::Damaged::Replace, false, batch.spans(),
                                        {{9, epoch}, number, sampler.repeats()});
      if (last)
        *last = status;
      else
        EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok())
        break;
      if (++number == sampler.batchesPerEpoch())
        number = 0, ++epoch;
    }
    return batches;
  }
  std::vector<Given> loaded(const Dataset &data, const Sampler &sampler, uint64_t count, uint64_t epoch, uint64_t number,
                            unsigned workers, uint64_t maxBad = 0, Status *last = nullptr) {
    BindOptions options;
    options.maxBad = maxBad;
    auto reader = BatchReader::bind(entry(), data, options);
    EXPECT_TRUE(reader.ok()) << reader.message();
    Loader loader({&*reader}, sampler, 9, epoch, number, workers);
    std::vector<Given> batches(count);
    std::vector<uint64_t> indices;
    for (Given &batch : batches) {
      EXPECT_TRUE(loader.isNext(epoch, number));
      Status status = loader.take(indices, batch.spans());
      if (last)
        *last = status;
      else
        EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok())
        break;
      if (++number == sampler.batchesPerEpoch())
        number = 0, ++epoch;
    }
    return batches;
  }
};
} // namespace

TEST_F(Loading, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char *mix : {"", ", { kind = 'mixup_or_cutmix' }"}) {
    const Dataset data = open(mix);
    const Sampler sampler(20, 20, 6, SampleOrder::Shuffled, 9, LastBatch::Drop);
    const std::vector<Given> expected = plain(data, sampler, 12, 0, 0);
    EXPECT_NE(expected[0], expected[3]);
    for (unsigned workers : {1u, 2u, 8u})
      EXPECT_EQ(loaded(data, sampler, 12, 0, 0, workers), expected) << workers << " workers" << mix;
  }
}

TEST_F(Loading, GoesOnInTheMiddleOfAnEpoch) {
  const Dataset data = open(", { kind = 'mixup' }");
  const Sampler sampler(20, 20, 6, SampleOrder::Shuffled, 9, LastBatch::Drop);
  const std::vector<Given> whole = plain(data, sampler, 8, 0, 0), rest = loaded(data, sampler, 3, 1, 2, 2);
  EXPECT_EQ(rest, std::vector<Given>(whole.begin() + 5, whole.end()));
}

TEST_F(Loading, RepeatedSamplesDifferWithinAnEpoch) {
  const Dataset data = open();
  auto weights = sampleWeights(data, /*balanced=*/true, "");
  ASSERT_TRUE(weights.ok()) << weights.message();
  const Sampler sampler(20, 20, 6, SampleOrder::Random, 9, LastBatch::Drop, *weights);
  const std::vector<Given> batches = loaded(data, sampler, 60, 0, 0, 2);
  EXPECT_EQ(batches, plain(data, sampler, 60, 0, 0));
  double first = 0;
  for (const Given &batch : batches)
    for (size_t i = 0; i < 6; ++i)
      first += batch.labels[2 * i];
  EXPECT_NEAR(first / 360, 0.5, 4 * 0.5 / std::sqrt(360)) << "5 of 20 images are of class a";
}

TEST_F(Loading, DamagedSamplesAreReplacedAndCountedInOrder) {
  write("d/a/104.png", "no image");
  write("d/b/107.png", "no image either");
  const Dataset data = open();
  const Sampler sampler(20, 20, 6, SampleOrder::Shuffled, 9, LastBatch::Drop);
  const std::vector<Given> expected = plain(data, sampler, 9, 0, 0, 2);
  for (unsigned workers : {1u, 8u}) {
    EXPECT_EQ(loaded(data, sampler, 9, 0, 0, workers, 2), expected) << workers << " workers";
    for (uint64_t maxBad : {0u, 1u}) {
      Status one, other;
      plain(data, sampler, 9, 0, 0, maxBad, &one);
      loaded(data, sampler, 9, 0, 0, workers, maxBad, &other);
      EXPECT_FALSE(other.ok());
      EXPECT_EQ(other.message(), one.message()) << workers << " workers, max_bad " << maxBad;
    }
  }
}

TEST_F(Loading, WorkersWaitForTraining) {
  /// Counts what is read.
  struct Counting : Column {
    explicit Counting(std::atomic<int> &count) : Column("image", typeOf(plan::F32, {1000, 3, 8, 8})), count(count) {}
    Status read(uint64_t, std::byte *destination) const override {
      std::memset(destination, 0, sampleBytes());
      ++count;
      return Status();
    }
    std::atomic<int> &count;
  };
  std::atomic<int> count = 0;
  Dataset data{.path = "counted", .format = "test"};
  data.columns.push_back(std::make_unique<Counting>(count));
  auto reader = BatchReader::bind(entryOf(6, {{"image", plan::F32, {6, 3, 8, 8}, 0}}), data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  Loader loader({&*reader}, Sampler(1000, 1000, 6, SampleOrder::Ordered, 9, LastBatch::Drop), 9, 0, 0, 4);
  auto settles = [&](int expected) {
    for (int i = 0; i < 2000 && count != expected; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(count, expected);
  };
  settles(18);
  std::vector<float> images(6 * 192);
  std::vector<std::span<std::byte>> given = {std::as_writable_bytes(std::span(images))};
  std::vector<uint64_t> indices;
  ASSERT_TRUE(loader.take(indices, given).ok());
  settles(24);
  EXPECT_EQ(Loader::hostBytes(std::vector<BatchReader *>{&*reader}), 3 * 6 * 192 * 4u);
}

TEST_F(Loading, LimitsAreSpreadOverTheClasses) {
  DatasetOptions options;
  options.limit = 4;
  auto data = openDataset(at("d"), options);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->find("image")->samples(), 4u);
  std::vector<int64_t> labels;
  for (uint64_t i = 0; i < 4; ++i)
    labels.push_back(readSample<int64_t>(*data->find("label"), i)[0]);
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 1, 1, 1})) << "samples 0, 5, 10, 15 of 5 of class a and 15 of class b";
}

TEST_F(Loading, Weights) {
  std::vector<float> values = {1, 2, 3}, negative = {1, -2, 3};
  ASSERT_TRUE(writeSafetensors(at("w.safetensors"), {tensorOf("weight", plan::F32, {3}, values),
                                                     tensorOf("bad", plan::F32, {3}, negative)})
                  .ok());
  auto data = openDataset(at("w.safetensors"), {});
  EXPECT_EQ(*sampleWeights(*data, false, ""), (std::vector<double>{1, 3, 6}));
  expectError(sampleWeights(*data, false, "bad"), {"w.safetensors", "'bad'", "sample 1", "-2"});
  expectError(sampleWeights(*data, true, ""), {"'label'", "'weight'", "data.weights"});
  expectError(sampleWeights(*data, true, "weight"), {"f32[3]", "an integer"});
}

TEST_F(Loading, Sheets) {
  DatasetOptions options;
  options.settings["transform"] = "tables = [{ kind = 'center_crop', size = 8 }, { kind = 'vertical_flip', p = 1 }, "
                                  "{ kind = 'normalise', mean = 5, std = 1 }, { kind = 'mixup' }]";
  ASSERT_TRUE(writeSheet(at("d"), options, {.rows = 2, .columns = 3}, at("sheet.png")).ok());
  // The sheet is a picture of 3 cells by 2, of 64 × 64 with gaps of 2.
  write("sheets/a/s.png", *readFile(at("sheet.png")));
  auto sheet = openDataset(at("sheets"), {});
  ASSERT_TRUE(sheet.ok()) << sheet.message();
  EXPECT_EQ(plan::typeName(sheet->find("image")->type()), "f32[1x3x134x200]");
  const std::vector<float> red = readSample<float>(*sheet->find("image"), 0);
  auto at8 = [&](uint32_t cell, uint32_t y) { return red[134 * 200 + (2 + y * 8 + 4) * 200 + 2 + 66 * cell + 4]; };
  EXPECT_FLOAT_EQ(at8(0, 0), at8(1, 7)) << "green grows with y: the second cell is flipped";
  EXPECT_NE(at8(0, 0), at8(0, 7));
  expectError(writeSheet(at("d"), options, {.column = "label"}, at("x.png")), {"--png", "'label'"});
}
