//===- TransformedColumnTest.cpp - data.transform on columns and batches ---===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <numeric>
#include <set>
#include <thread>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class TransformedColumns : public FolderTest {
protected:
  /// Opens the data set with these tables of transforms.
  Expected<Dataset> open(const std::string &path, const std::string &tables, bool training = true) {
    DatasetOptions options;
    options.settings["transform"] = "tables = [" + tables + "]";
    options.training = training;
    return openDataset(at(path), options);
  }
  std::vector<float> drawn(const Dataset &data, uint64_t sample, const Draw &draw) {
    const Column &image = *data.find("image");
    std::vector<float> values(image.sampleBytes() / 4);
    Status status = image.draw(sample, draw, reinterpret_cast<std::byte *>(values.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
  /// Four 1 × 4 × 4 images of the bytes 0 to 63, and their labels.
  void writeSquares() {
    std::string pixels(64, '\0');
    std::iota(pixels.begin(), pixels.end(), '\0');
    write("s-images-idx3-ubyte", idx({4, 4, 4}, pixels));
    write("s-labels-idx1-ubyte", idx({4}, std::string("\0\1\2\1", 4)));
  }
};
const char kCrop[] = "{ kind = 'random_crop', size = 4, padding = 2 }, { kind = 'horizontal_flip' }";
} // namespace

TEST_F(TransformedColumns, ImagesOfAllSizesBecomeOne) {
  write("d/a/1.png", png(9, 5));
  write("d/a/2.png", png(4, 7));
  auto data = open("d", "{ kind = 'resize', size = 6 }, { kind = 'center_crop', size = [4, 3] }");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("image")->type()), "f32[2x3x4x3]");
  for (uint64_t sample : {0, 1})
    EXPECT_NEAR(readSample<float>(*data->find("image"), sample)[30], 7 / 255.0f, 1e-6) << "blue is 7 everywhere";
  auto sizes = open("d", "{ kind = 'resize', size = 6 }");
  ASSERT_TRUE(sizes.ok());
  std::vector<std::byte> space(sizes->find("image")->sampleBytes());
  EXPECT_TRUE(sizes->find("image")->read(0, space.data()).ok());
  expectError(sizes->find("image")->read(1, space.data()), {"2.png", "6x10", "10x6", "crop"});
  auto small = open("d", "{ kind = 'random_crop', size = 8 }");
  expectError(small->find("image")->read(0, space.data()), {"1.png", "9x5", "8x8", "padding"});
}

TEST_F(TransformedColumns, MasksMoveWithTheirImages) {
  // Two images of 6 × 6 pixels, each equal to its mask.
  std::string pixels(72, '\0');
  std::iota(pixels.begin(), pixels.end(), '\1');
  write("d/image.npy", npy("|u1", "(2, 1, 6, 6)", pixels));
  write("d/mask.npy", npy("|u1", "(2, 6, 6)", pixels));
  const std::string tables =
      "{ kind = 'random_crop', size = 4, padding = 1, fill = 255, mask = 'mask' }, "
      "{ kind = 'horizontal_flip', mask = 'mask' }, { kind = 'affine', degrees = 90, mask = 'mask' }";
  auto data = open("d", tables);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("mask")->type()), "u8[2x4x4]");
  std::set<std::vector<uint8_t>> seen;
  for (uint64_t epoch = 0; epoch < 8; ++epoch) {
    std::vector<uint8_t> image(16), mask(16);
    ASSERT_TRUE(data->find("image")->draw(1, {3, epoch}, reinterpret_cast<std::byte *>(image.data())).ok());
    ASSERT_TRUE(data->find("mask")->draw(1, {3, epoch}, reinterpret_cast<std::byte *>(mask.data())).ok());
    for (size_t i = 0; i < 16; ++i)
      EXPECT_EQ(mask[i], image[i] == 255 ? 0 : image[i]) << "pixel " << i << " of epoch " << epoch;
    seen.insert(mask);
  }
  EXPECT_GT(seen.size(), 6u);
  expectError(open("d", "{ kind = 'horizontal_flip', mask = 'masks' }"),
              {"data.transform 1", "no column 'masks'", "'mask'"});
  expectError(open("d", "{ kind = 'horizontal_flip', mask = 'image' }"), {"mask", "is the column itself"});
  expectError(open("d", "{ kind = 'color_jitter', mask = 'mask' }"), {"color_jitter", "mask"});
  expectError(open("d", "{ kind = 'pad', padding = 1 }, { kind = 'horizontal_flip', mask = 'mask' }"),
              {"one size", "8x8", "6x6"});
}

TEST_F(TransformedColumns, ViewsOfAColumnDrawAnew) {
  writeSquares();
  auto data = open("s", kCrop);
  ASSERT_TRUE(data.ok()) << data.message();
  const Draw draw{7, 3};
  EXPECT_EQ(drawn(*data, 1, draw.ofView(0)), drawn(*data, 1, draw));
  int others = 0;
  for (uint32_t view = 1; view < 9; ++view)
    others += drawn(*data, 1, draw.ofView(view)) != drawn(*data, 1, draw);
  EXPECT_GT(others, 6);
}

TEST_F(TransformedColumns, EachClassHasHeldOutSamples) {
  for (const char *folder : {"d/a/", "d/b/", "d/c/"})
    for (int i = 0; i < 6; ++i)
      write(folder + std::to_string(i) + ".png", png(2, 2));
  std::vector<int> counts;
  for (auto part : {DatasetOptions::Part::Head, DatasetOptions::Part::Tail}) {
    DatasetOptions options;
    options.part = part;
    options.evalSplit = 1.0 / 3;
    auto data = openDataset(at("d"), options);
    ASSERT_TRUE(data.ok()) << data.message();
    const Column &label = *data->find("label"), &image = *data->find("image");
    std::vector<int> of(3);
    std::set<std::string> places;
    for (uint64_t i = 0; i < label.samples(); ++i) {
      ++of[size_t(readSample<int64_t>(label, i)[0])];
      places.insert(image.place(i));
    }
    EXPECT_EQ(places.size(), label.samples());
    counts.insert(counts.end(), of.begin(), of.end());
  }
  EXPECT_EQ(counts, (std::vector<int>{4, 4, 4, 2, 2, 2}));
}

TEST_F(TransformedColumns, ValuesFollowFromSeedEpochAndSampleAlone) {
  writeSquares();
  auto data = open("s", kCrop);
  ASSERT_TRUE(data.ok()) << data.message();
  const std::vector<float> one = drawn(*data, 1, {7, 3});
  auto again = open("s", kCrop);
  EXPECT_EQ(drawn(*again, 1, {7, 3}), one) << "opened again";
  int others = 0;
  for (uint64_t i = 0; i < 8; ++i)
    others += (drawn(*data, 1, {7, 4 + i}) != one) + (drawn(*data, 1, {8 + i, 3}) != one) +
              (drawn(*data, 1, {7, 3, 1 + i}) != one);
  EXPECT_GT(others, 18) << "of 24 other epochs, seeds and repeats";
  // Draws are the same on any thread and in any order.
  std::vector<std::vector<float>> alone, together(64);
  for (uint64_t i = 0; i < 64; ++i)
    alone.push_back(drawn(*data, i % 4, {7, i / 4}));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 64; i-- > 0;)
        if (i % 8 == t)
          together[i] = drawn(*data, i % 4, {7, i / 4});
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(together, alone);
}

TEST_F(TransformedColumns, TrainingAndEvaluationDiffer) {
  writeSquares();
  const std::string tables = std::string(kCrop) + ", { kind = 'vertical_flip', p = 1, on = 'both' }";
  auto training = open("s", tables), evaluation = open("s", tables, false);
  std::vector<float> plain(16);
  for (size_t i = 0; i < 16; ++i)
    plain[i] = float(4 * (3 - i / 4) + i % 4) / 255.0f;
  EXPECT_EQ(drawn(*evaluation, 0, {1, 1}), plain) << "flipped, not cropped";
  int same = 0;
  for (uint64_t epoch = 0; epoch < 100; ++epoch)
    same += drawn(*training, 0, {1, epoch}) == plain;
  EXPECT_LT(same, 10) << "of 100: one of 25 places, half of them flipped";
}

TEST_F(TransformedColumns, NormaliseAndScale) {
  write("d/a/1.png", png(2, 2));
  auto data = open("d", "{ kind = 'normalise', mean = [0, 0, 0.5], std = [1, 1, 0.25] }");
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<float> values = readSample<float>(*data->find("image"), 0);
  EXPECT_FLOAT_EQ(values[1], 10 / 255.0f);
  EXPECT_FLOAT_EQ(values[8], (7 / 255.0f - 0.5f) / 0.25f);
  auto scaled = open("d", "{ kind = 'to_float', divide = 1 }, { kind = 'scale', factor = 2, offset = -1 }");
  EXPECT_FLOAT_EQ(readSample<float>(*scaled->find("image"), 0)[1], 19);
}

TEST_F(TransformedColumns, WhatCannotBeApplied) {
  write("d/a/1.png", png(2, 2));
  auto refuse = [&](const char *tables, std::initializer_list<std::string> says) { expectError(open("d", tables), says); };
  refuse("{ column = 'picture', kind = 'normalise', mean = 0, std = 1 }", {"data.transform 1 (normalise)", "'picture'", "'image'"});
  refuse("{ column = 'label', kind = 'horizontal_flip' }", {"'label'", "i64", "f32 and u8"});
  refuse("{ kind = 'normalise', mean = [1, 2], std = 1 }", {"mean has 2 numbers", "3 channels"});
  refuse("{ kind = 'normalise', mean = 0, std = 1 }, { kind = 'resize', size = 2 }",
         {"data.transform 2 (resize)", "f32 here", "before `normalise`"});
  refuse("{ kind = 'one_hot', column = 'image', classes = 3 }", {"one_hot", "one integer a sample"});
}

TEST_F(TransformedColumns, StoredTensorsAreImagesToo) {
  std::vector<uint8_t> bytes(2 * 3 * 4 * 4, 5);
  std::vector<float> floats(2 * 3 * 4 * 4, 0.5f), rows(2 * 6, 3);
  ASSERT_TRUE(writeSafetensors(at("d.safetensors"), {tensorOf("image", plan::U8, {2, 3, 4, 4}, bytes),
                                                     tensorOf("float", plan::F32, {2, 3, 4, 4}, floats),
                                                     tensorOf("rows", plan::F32, {2, 6}, rows)})
                  .ok());
  auto data = open("d.safetensors", "{ kind = 'resize', size = [2, 5] }, { column = 'float', kind = 'center_crop', size = 2 }, "
                                    "{ column = 'rows', kind = 'normalise', mean = 1, std = 4 }");
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("image")->type()), "u8[2x3x2x5]");
  EXPECT_EQ(readSample<uint8_t>(*data->find("image"), 1), std::vector<uint8_t>(30, 5));
  EXPECT_EQ(readSample<float>(*data->find("float"), 1), std::vector<float>(12, 0.5f));
  EXPECT_EQ(readSample<float>(*data->find("rows"), 1), std::vector<float>(6, 0.5f));
  expectError(open("d.safetensors", "{ column = 'rows', kind = 'horizontal_flip' }"), {"rows", "[samples, channels, height, width]"});
  expectError(open("d.safetensors", "{ column = 'float', kind = 'resize', size = 2 }"), {"'float'", "bytes"});
}

TEST_F(TransformedColumns, MixedBatchesHaveMixedTargets) {
  writeSquares();
  const std::string labels = "{ kind = 'one_hot', classes = 3, smoothing = 0.3 }, ";
  auto batchOf = [&](const std::string &tables, uint64_t number) {
    auto data = open("s", tables);
    EXPECT_TRUE(data.ok()) << data.message();
    auto reader = BatchReader::bind(entryOf(4, {{"image", plan::F32, {4, 1, 4, 4}, 0}, {"label", plan::F32, {4, 3}, 0}}), *data, {});
    EXPECT_TRUE(reader.ok()) << reader.message();
    std::vector<float> images(64), targets(12);
    std::vector<uint64_t> samples = {0, 1, 2, 3};
    std::vector<std::span<std::byte>> given = {std::as_writable_bytes(std::span(images)), std::as_writable_bytes(std::span(targets))};
    EXPECT_TRUE(reader->fill(samples, false, given, {{5, 0}, number}).ok());
    return std::pair(images, targets);
  };
  const auto [plainImages, plainTargets] = batchOf(labels, 0);
  EXPECT_FLOAT_EQ(plainTargets[0], 0.8f);
  EXPECT_FLOAT_EQ(plainTargets[1], 0.1f);
  const auto [mixedImages, mixedTargets] = batchOf(labels + "{ kind = 'mixup' }", 0);
  // Sample 1 has pixels 16 higher than sample 0 and another label, so that the share of the mix shows in both.
  const float share = 1 - (plainImages[16] - mixedImages[16]) * 255 / 16;
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  EXPECT_NEAR(mixedTargets[3 + 1], share * 0.8f + (1 - share) * 0.1f, 1e-5);
  EXPECT_NEAR(mixedTargets[3 + 0], share * 0.1f + (1 - share) * 0.8f, 1e-5);
  EXPECT_NEAR(mixedImages[0], share * plainImages[0] + (1 - share) * plainImages[48], 1e-6) << "the first with the last";
  EXPECT_NE(batchOf(labels + "{ kind = 'mixup' }", 1).first, mixedImages) << "another batch, another share";
  int cut = 0;
  for (uint64_t number = 0; number < 20; ++number) {
    const auto [images, targets] = batchOf(labels + "{ kind = 'cutmix' }", number);
    int own = 0;
    for (size_t i = 0; i < 16; ++i)
      own += images[16 + i] == plainImages[16 + i];
    EXPECT_NEAR(targets[3 + 1], own / 16.0 * 0.8 + (1 - own / 16.0) * 0.1, 1e-5) << own << " of 16 pixels are its own";
    cut += own < 16;
  }
  EXPECT_GT(cut, 5);
}

TEST_F(TransformedColumns, MixesNeedProbabilities) {
  writeSquares();
  auto data = open("s", "{ kind = 'mixup' }");
  ASSERT_TRUE(data.ok());
  expectError(BatchReader::bind(entryOf(4, {{"image", plan::F32, {4, 1, 4, 4}, 0}, {"label", plan::I64, {4}, 0}}), *data, {}),
              {"data.transform 1 (mixup)", "'label'", "one_hot", "probabilities"});
  auto outside = open("s", "{ kind = 'one_hot', classes = 2 }");
  std::vector<float> space(2);
  expectError(outside->find("label")->read(2, reinterpret_cast<std::byte *>(space.data())), {"sample 2", "label 2", "0 to 1"});
}
