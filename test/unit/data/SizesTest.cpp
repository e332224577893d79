//===- SizesTest.cpp - samples that differ in several axes -----------------===//
#include "runtime/data/Inspect.h"
#include "runtime/data/Loader.h"
#include "runtime/data/Ragged.h"
#include "runtime/data/ShapeChoice.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <numeric>
#include <random>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Sizes : public FolderTest {
protected:
  /// Images of random sizes in the class folders of "d", and their widths and heights in the order of samples.
  std::vector<std::pair<uint32_t, uint32_t>> writeImages(int count, unsigned seed, uint32_t least = 1,
                                                         uint32_t most = 40) {
    std::mt19937 random(seed);
    std::vector<std::pair<uint32_t, uint32_t>> sizes;
    for (int i = 0; i < count; ++i) {
      auto side = [&] { return least + static_cast<uint32_t>(random() % (most - least + 1)); };
      sizes.emplace_back(side(), side());
      const auto [width, height] = sizes.back();
      const std::string name = "d/a/" + std::to_string(1000 + i);
      if (i % 3 == 0)
        write(name + ".jpg", jpeg(width, height, 9));
      else
        write(name + ".png", png(width, height));
    }
    return sizes;
  }
  Expected<Dataset> open(const std::string &tables, const std::string &cache = "") {
    DatasetOptions options;
    options.training = true;
    if (!tables.empty())
      options.settings["transform"] = "tables = [" + tables + "]";
    if (!cache.empty())
      options.settings["cache"] = cache;
    return openDataset(at("d"), options);
  }
};

/// Two samples of 2 × 3 and of 4 × 1 elements, and labels.
std::vector<std::unique_ptr<Column>> shaped(std::vector<int64_t> shapes = {2, 3, 4, 1}) {
  std::vector<std::unique_ptr<Column>> columns;
  columns.push_back(ownedColumn<float>("x", plan::F32, {10}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  const auto rows = static_cast<int64_t>(shapes.size() / 2);
  columns.push_back(ownedColumn<int64_t>("x.shapes", plan::I64, {rows, 2}, std::move(shapes)));
  columns.push_back(ownedColumn<int64_t>("label", plan::I64, {2}, {1, 0}));
  return columns;
}

std::vector<uint32_t> extentsOf(const Column &column, uint64_t sample) {
  std::vector<uint32_t> extents(static_cast<size_t>(column.type().dims_size()) - 1);
  Status status = column.extentsOf(sample, extents);
  EXPECT_TRUE(status.ok()) << status.message();
  return extents;
}
} // namespace

TEST_F(Sizes, ShapesJoinAColumnOfElements) {
  auto data = openDatasetColumns("memory", shaped(), {});
  ASSERT_TRUE(data.ok()) << data.message();
  ASSERT_EQ(data->columns.size(), 2u) << "the shapes are no column of their own";
  const Column &x = *data->find("x");
  EXPECT_TRUE(x.isSized());
  EXPECT_EQ(plan::typeName(x.type()), "f32[2x2x3]");
  EXPECT_EQ(extentsOf(x, 1), (std::vector<uint32_t>{4, 1}));
  EXPECT_EQ(readSample<float>(x, 0), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::vector<float> space(6);
  expectError(x.read(1, reinterpret_cast<std::byte *>(space.data())),
              {"'x'", "sample 1 is [4, 1]", "[2, 3]", "data.pad.x=0"});
  auto padded = PaddedColumn::create(x, {3, 2}, -1);
  ASSERT_TRUE(padded.ok()) << padded.message();
  EXPECT_EQ(readSample<float>(**padded, 0), (std::vector<float>{1, 2, 4, 5, -1, -1})) << "cut at the right";
  EXPECT_EQ(readSample<float>(**padded, 1), (std::vector<float>{7, -1, 8, -1, 9, -1})) << "cut at the bottom";
  EXPECT_FALSE((*padded)->holds(0));
  EXPECT_EQ((*padded)->keptElements(0), 4u);
  SliceColumn slice(std::move(data->columns[0]), 1, 2);
  EXPECT_EQ(extentsOf(slice, 0), (std::vector<uint32_t>{4, 1}));
}

TEST_F(Sizes, ShapesThatDoNotFitAreRefused) {
  for (const auto &[shapes, text] :
       {std::pair(std::vector<int64_t>{2, 3, 4, 2}, "have 14 elements, 'x' has 10"),
        std::pair(std::vector<int64_t>{2, 3, 1, 1}, "have 7 elements, 'x' has 10"),
        std::pair(std::vector<int64_t>{2, 3, -4, -1}, "sample 1 has the extent -4 in axis 0"),
        std::pair(std::vector<int64_t>{2, 3, int64_t(1) << 62, 8}, "sample 1 has the extent"),
        std::pair(std::vector<int64_t>{11, 1, 0, 0}, "sample 0 has the extent 11 in axis 0")})
    expectError(openDatasetColumns("memory", shaped(shapes), {}), {"'x.shapes'", text});
}

/// A frame has the sample at its beginning in every axis, whatever the extents are.
TEST_F(Sizes, SamplesOfAnyRankArePaddedAndCut) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    const size_t rank = 1 + random() % 4;
    std::vector<uint64_t> own(rank), frame(rank);
    for (size_t axis = 0; axis < rank; ++axis) {
      own[axis] = random() % 5;
      frame[axis] = random() % 3 ? random() % 5 : own[axis];
    }
    auto count = [](const std::vector<uint64_t> &extents) {
      return std::accumulate(extents.begin(), extents.end(), uint64_t(1), std::multiplies<>());
    };
    std::vector<int16_t> sample(count(own)), made(count(frame), 99);
    std::iota(sample.begin(), sample.end(), int16_t(0));
    const int16_t padding = -7;
    writeToFrame(reinterpret_cast<const std::byte *>(sample.data()), own,
                 {frame, std::as_bytes(std::span(&padding, 1))}, reinterpret_cast<std::byte *>(made.data()));
    for (uint64_t at = 0; at < made.size(); ++at) {
      uint64_t rest = at, source = 0, step = 1;
      bool inside = true;
      for (size_t axis = rank; axis-- > 0; rest /= frame[axis]) {
        inside = inside && rest % frame[axis] < own[axis];
        source += rest % frame[axis] * step;
        step *= own[axis];
      }
      ASSERT_EQ(made[at], inside ? sample[source] : padding) << "trial " << trial << ", element " << at;
    }
  }
}

/// The size of every sample after every kind of transform is known before it is decoded, whatever its random numbers.
TEST_F(Sizes, EveryTransformsSizesAreThoseOfItsImages) {
  const auto sizes = writeImages(60, 11, 8);
  std::set<std::string> seen;
  for (const char *tables : {"",
                             "{ kind = 'resize', size = 20 }",
                             "{ kind = 'resize', size = 20, max_size = 31 }",
                             "{ kind = 'resize', size = [9, 17] }",
                             "{ kind = 'center_crop', size = [12, 30] }",
                             "{ kind = 'random_crop', size = 8 }",
                             "{ kind = 'random_crop', size = [50, 44], padding = 3, pad_if_needed = true }",
                             "{ kind = 'random_resized_crop', size = [16, 10] }",
                             "{ kind = 'pad', padding = 3 }",
                             "{ kind = 'pad', padding = [1, 2, 3, 4], padding_mode = 'reflect' }",
                             "{ kind = 'horizontal_flip' }",
                             "{ kind = 'vertical_flip' }",
                             "{ kind = 'rotation', degrees = 90 }",
                             "{ kind = 'affine', degrees = 20, translate = [0.1, 0.2], scale = [0.5, 2], shear = 10 }",
                             "{ kind = 'color_jitter', brightness = 0.4, hue = 0.1 }",
                             "{ kind = 'grayscale', p = 0.5 }",
                             "{ kind = 'rand_augment' }",
                             "{ kind = 'trivial_augment' }",
                             "{ kind = 'random_erasing', p = 1 }",
                             "{ kind = 'cutout', size = 4 }",
                             "{ kind = 'to_float' }",
                             "{ kind = 'scale', factor = 2 }",
                             "{ kind = 'normalise', mean = 0.5, std = 0.25 }",
                             "{ kind = 'pad', padding = [2, 1] }, { kind = 'resize', size = 33, max_size = 48 }, { "
                             "kind = 'horizontal_flip' }, { "
                             "kind = 'normalise', mean = [0.4, 0.5, 0.6], std = 0.25 }",
                             "{ kind = 'resize', size = 30, on = 'train' }, { kind = 'pad', padding = 1 }"}) {
    SCOPED_TRACE(tables);
    for (const char *cache : {"", "cache"}) {
      auto data = open(tables, *cache ? at(cache) : "");
      ASSERT_TRUE(data.ok()) << data.message();
      const Column &image = *data->find("image");
      ASSERT_TRUE(image.isSized());
      for (uint64_t sample = 0; sample < image.samples(); ++sample) {
        const std::vector<uint32_t> extents = extentsOf(image, sample);
        if (*tables == 0) {
          EXPECT_EQ(extents, (std::vector<uint32_t>{3, sizes[sample].second, sizes[sample].first}));
        }
        EXPECT_TRUE(std::ranges::equal(image.sizes().of(sample), extents));
        // A frame that is larger by one in each axis shows the end of the sample: the image has no value of −77.
        const std::vector<uint64_t> frame = {extents[0], extents[1] + 1, extents[2] + 1};
        const float padding = -77;
        std::vector<float> made(frame[0] * frame[1] * frame[2]);
        for (uint64_t epoch : {0, 1, 2}) {
          Status status = image.drawTo(sample, Draw{5, epoch}, {frame, std::as_bytes(std::span(&padding, 1))},
                                       reinterpret_cast<std::byte *>(made.data()));
          ASSERT_TRUE(status.ok()) << status.message();
          for (uint64_t at = 0; at < made.size(); ++at)
            ASSERT_EQ(made[at] == padding, at % frame[2] == extents[2] || at / frame[2] % frame[1] == extents[1])
                << "sample " << sample << ", element " << at;
        }
      }
    }
    std::string kinds = tables;
    for (size_t begin; (begin = kinds.find("kind = '")) != std::string::npos; kinds = kinds.substr(begin + 8))
      seen.insert(kinds.substr(begin + 8, kinds.find('\'', begin + 8) - begin - 8));
  }
  for (const recipe::TransformKind &kind : recipe::transformKinds())
    EXPECT_TRUE(kind.works != recipe::TransformKind::Works::OnImages || seen.contains(kind.name)) << kind.name;
}

/// Each shape of an entry reads the samples that fit it, with the pixels of the images.
TEST_F(Sizes, ImagesArePaddedToTheShapesOfAnEntry) {
  const auto sizes = writeImages(30, 5, 2, 20);
  auto data = open("{ kind = 'normalise', mean = 0.5, std = 0.5 }");
  ASSERT_TRUE(data.ok()) << data.message();
  BindOptions options;
  options.raggedInputs = {{"image", {1, 2}}};
  options.paddedAxes = {{"image", {1, 2}}};
  options.pad = {{"image", 3}};
  std::vector<std::unique_ptr<BatchReader>> readers;
  std::vector<plan::Entry> entries;
  const std::vector<std::pair<int64_t, int64_t>> frames = {{20, 20}, {10, 10}, {20, 10}, {8, 20}};
  for (const auto &[height, width] : frames)
    entries.push_back(entryOf(2, {{"image", plan::F32, {2, 3, height, width}, 0}, {"label", plan::I64, {2}, 0}}));
  for (const plan::Entry &entry : entries) {
    auto reader = BatchReader::bind(entry, *data, options);
    ASSERT_TRUE(reader.ok()) << reader.message();
    readers.push_back(std::make_unique<BatchReader>(reader.take()));
  }
  const std::vector<uint8_t> chosen = shapesOfSamples(readers);
  std::set<uint8_t> used(chosen.begin(), chosen.end());
  EXPECT_EQ(used.size(), 4u);
  for (uint64_t sample = 0; sample < chosen.size(); ++sample) {
    const auto [width, height] = sizes[sample];
    auto holds = [&](size_t shape) { return height <= frames[shape].first && width <= frames[shape].second; };
    auto area = [&](size_t shape) { return frames[shape].first * frames[shape].second; };
    EXPECT_TRUE(holds(chosen[sample]));
    for (size_t other = 0; other < frames.size(); ++other) {
      EXPECT_EQ(readers[other]->holds(sample), holds(other));
      EXPECT_TRUE(!holds(other) || area(other) >= area(chosen[sample]));
    }
    const auto [high, wide] = frames[chosen[sample]];
    std::vector<float> images(2 * 3 * high * wide);
    std::vector<int64_t> labels(2);
    const std::vector<uint64_t> both = {sample, sample};
    const std::array given = {std::as_writable_bytes(std::span(images)), std::as_writable_bytes(std::span(labels))};
    ASSERT_TRUE(readers[chosen[sample]]->fill(both, false, given).ok());
    for (int64_t y = 0; y < high; ++y)
      for (int64_t x = 0; x < wide; ++x)
        if (y >= height || x >= width) {
          ASSERT_EQ(images[y * wide + x], 3);
        } else if (sample % 3 != 0) { // a PNG
          ASSERT_FLOAT_EQ(images[y * wide + x], (float(uint8_t(10 * x)) / 255 - 0.5f) / 0.5f);
        }
  }
  EXPECT_EQ(readers[1]->tokensPerSample(), 0u);
}

TEST_F(Sizes, ACutKeepsAsMuchAsAShapeCan) {
  write("d/a/1.png", png(30, 4));
  write("d/a/2.png", png(4, 30));
  write("d/a/3.png", png(30, 30));
  auto data = open("");
  BindOptions options;
  options.raggedInputs = {{"image", {1, 2}}};
  options.paddedAxes = {{"image", {1, 2}}};
  std::vector<std::unique_ptr<BatchReader>> readers;
  std::vector<plan::Entry> entries;
  for (const auto &[height, width] : {std::pair(20, 10), std::pair(10, 22)})
    entries.push_back(entryOf(1, {{"image", plan::F32, {1, 3, height, width}, 0}}));
  for (const plan::Entry &entry : entries)
    readers.push_back(std::make_unique<BatchReader>(BatchReader::bind(entry, *data, options).take()));
  EXPECT_EQ(shapesOfSamples(readers), (std::vector<uint8_t>{1, 0, 1}));
  const std::string text = readers[0]->describeLarger(2, readers);
  EXPECT_NE(text.find("3.png) has 30x30 pixels, the model's input 'image' takes 10x20 or 22x10 pixels"),
            std::string::npos)
      << text;
}

/// A sample without a readable size is damaged when it is read, as any other.
TEST_F(Sizes, DamagedHeaders) {
  write("d/a/1.png", png(9, 5));
  write("d/a/2.png", "these are words");
  write("d/a/3.png", png(4, 7));
  write("d/a/4.png", png(4, 7).substr(0, 40));
  auto data = open("");
  BindOptions options;
  options.raggedInputs = {{"image", {1, 2}}};
  options.maxBad = 2;
  auto entry = entryOf(2, {{"image", plan::F32, {2, 3, 8, 10}, 0}});
  auto reader = BatchReader::bind(entry, *data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  EXPECT_TRUE(reader->holds(1));
  std::vector<float> images(2 * 3 * 8 * 10);
  const std::array given = {std::as_writable_bytes(std::span(images))};
  std::vector<uint64_t> indices = {1, 3};
  ASSERT_TRUE(reader->fillSound(indices, BatchReader::Damaged::Replace, false, given).ok());
  EXPECT_EQ(indices, (std::vector<uint64_t>{2, 0}));
  std::vector<uint64_t> damaged;
  BatchReader *const readers[] = {&*reader};
  const DataSummary summary =
      inspectData(*data, readers, [&](const DamagedSample &bad) { damaged.push_back(bad.sample); });
  EXPECT_EQ(damaged, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(summary.columns[0].smallest, (std::vector<uint64_t>{3, 5, 4}));
  EXPECT_EQ(summary.columns[0].largest, (std::vector<uint64_t>{3, 7, 9}));
}

/// Without a word about padding, images of several sizes are no samples of one shape.
TEST_F(Sizes, OneShapePadsOnlyWhereItIsTold) {
  write("d/a/1.png", png(9, 5));
  write("d/a/2.png", png(4, 5));
  auto data = open("");
  auto entry = entryOf(1, {{"image", plan::F32, {1, 3, 5, 9}, 0}});
  auto reader = BatchReader::bind(entry, *data, {});
  ASSERT_TRUE(reader.ok()) << reader.message();
  std::vector<float> images(3 * 5 * 9);
  const std::array given = {std::as_writable_bytes(std::span(images))};
  const std::vector<uint64_t> second = {1};
  expectError(reader->fill(second, false, given), {"2.png", "4x5", "9x5"});
  BindOptions options;
  options.pad = {{"image", 0.5}};
  auto padded = BatchReader::bind(entry, *data, options);
  ASSERT_TRUE(padded.ok()) << padded.message();
  ASSERT_TRUE(padded->fill(second, false, given).ok());
  EXPECT_EQ(images[4], 0.5f);
  EXPECT_NE(images[3], 0.5f);
}

/// Masks beside images in a folder or tar: numbers as stored, of grey and palette PNGs, of any depth.
TEST_F(Sizes, MasksBesideImages) {
  const std::vector<unsigned char> numbers = {0, 1, 2, 3, 3, 2, 1, 0, 1, 1, 2, 2};
  const std::string grey = maskPng(4, 3, numbers, 8, false), packed = maskPng(4, 3, numbers, 2, true);
  write("d/1.png", png(4, 3));
  write("d/1.mask.png", grey);
  write("d/2.jpg", jpeg(4, 3, 9));
  write("d/2.mask.png", packed);
  write("d.tar",
        archiveBytes(ArchiveKind::Tar,
                     {{"2.mask.png", packed}, {"1.png", png(4, 3)}, {"1.mask.png", grey}, {"2.jpg", jpeg(4, 3, 9)}}));
  write("c.tar", archiveBytes(ArchiveKind::Tar, {{"2.mask.png", packed},
                                                 {"1.png", png(4, 3)},
                                                 {"1.cls", "5"},
                                                 {"1.mask.png", grey},
                                                 {"2.jpg", jpeg(4, 3, 9)},
                                                 {"2.cls", "6"}}));
  for (const char *path : {"d", "d.tar", "c.tar"}) {
    auto data = openDataset(at(path), {});
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_EQ(data->find("image")->samples(), 2u);
    const Column &mask = *data->find("mask");
    EXPECT_EQ(plan::typeName(mask.type()), "u8[2x3x4]");
    for (uint64_t sample : {0, 1})
      EXPECT_EQ(readSample<unsigned char>(mask, sample), numbers) << path;
    EXPECT_EQ(data->find("label") != nullptr, *path == 'c');
  }
  DatasetOptions options;
  options.training = true;
  options.settings["transform"] = "tables = [{ kind = 'pad', padding = [1, 0], mask = 'mask' }]";
  auto moved = openDataset(at("d"), options);
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_EQ(extentsOf(*moved->find("mask"), 1), (std::vector<uint32_t>{3, 6}));
  EXPECT_EQ(readSample<unsigned char>(*moved->find("mask"), 1),
            (std::vector<unsigned char>{0, 0, 1, 2, 3, 0, 0, 3, 2, 1, 0, 0, 0, 1, 1, 2, 2, 0}));
  write("e/1.png", png(5, 3));
  write("e/1.mask.png", grey);
  auto other = openDataset(at("e"), {});
  ASSERT_TRUE(other.ok()) << other.message();
  std::vector<std::byte> space(64);
  expectError(other->find("mask")->read(0, space.data()),
              {"1.mask.png", "4x3 pixels", "1.png 5x3", "as large as its image"});
  write("e/1.mask.png", png(5, 3));
  expectError(other->find("mask")->read(0, space.data()), {"1.mask.png", "one number a pixel"});
  write("e/1.png", png(4, 3));
  write("e/1.mask.png", grey.substr(0, 60));
  expectError(other->find("mask")->read(0, space.data()), {"1.mask.png", "damaged PNG"});
  write("e/2.png", png(5, 3));
  expectError(openDataset(at("e"), {}), {"2.png", "has no mask", "NAME.mask.png"});
  write("e/2.mask.png", grey);
  write("e/3.mask.png", grey);
  expectError(openDataset(at("e"), {}), {"3.mask.png", "no image of its own"});
}

/// Channels, and axes that are the same in all shapes, are never padded by mistake.
TEST_F(Sizes, OnlyAxesInWhichShapesDifferArePadded) {
  write("d/a/1.png", png(9, 5));
  write("d/a/2.png", png(4, 5));
  auto images = open("");
  BindOptions options;
  options.raggedInputs = {{"image", {1, 2}}};
  options.pad = {{"image", 0}};
  for (int64_t channels : {1, 4}) {
    auto entry = entryOf(1, {{"image", plan::F32, {1, channels, 8, 10}, 0}});
    expectError(BatchReader::bind(entry, *images, options),
                {"'image' is f32[2x3x5x9]", std::to_string(channels) + "x8x10"});
  }
  auto data = openDatasetColumns("memory", shaped(), {});
  ASSERT_TRUE(data.ok()) << data.message();
  options.raggedInputs = {{"x", {0}}};
  options.pad = {};
  auto entry = entryOf(1, {{"x", plan::F32, {1, 4, 3}, 0}});
  expectError(BatchReader::bind(entry, *data, options), {"sample 1 is [4, 1]", "'x' [4, 3]", "axis 1", "data.pad.x=0"});
  options.pad = {{"x", 0}};
  EXPECT_TRUE(BatchReader::bind(entry, *data, options).ok());
}

/// The target of a segmentation has the size of its image, and is padded with the class that the loss ignores.
TEST_F(Sizes, MasksHaveTheSizesOfTheirImages) {
  auto columns = [](int64_t maskHeight) {
    std::vector<std::unique_ptr<Column>> made;
    made.push_back(ownedColumn<uint8_t>("x", plan::U8, {18 + 15}, std::vector<uint8_t>(33, 51)));
    made.push_back(ownedColumn<int64_t>("x.shapes", plan::I64, {2, 3}, {3, 2, 3, 3, 5, 1}));
    made.push_back(ownedColumn<uint8_t>("mask", plan::U8, {6 + maskHeight}, std::vector<uint8_t>(6 + maskHeight, 1)));
    made.push_back(ownedColumn<int64_t>("mask.shapes", plan::I64, {2, 2}, {2, 3, maskHeight, 1}));
    DatasetOptions options;
    options.settings["transform"] = "tables = [{ kind = 'to_float', column = 'x' }]";
    return openDatasetColumns("memory", std::move(made), options);
  };
  auto entry = entryOf(2, {{"x", plan::F32, {2, 3, 5, 3}, 0}, {"mask", plan::I64, {2, 5, 3}, 0}});
  BindOptions options;
  options.target = "mask";
  options.ignoreIndex = -100;
  options.raggedInputs = {{"x", {1, 2}}, {"mask", {0, 1}}};
  auto data = columns(5);
  ASSERT_TRUE(data.ok()) << data.message();
  auto reader = BatchReader::bind(entry, *data, options);
  ASSERT_TRUE(reader.ok()) << reader.message();
  std::vector<float> x(2 * 3 * 15);
  std::vector<int64_t> mask(2 * 15);
  const std::array given = {std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(mask))};
  const std::vector<uint64_t> both = {0, 1};
  ASSERT_TRUE(reader->fill(both, true, given).ok());
  EXPECT_FLOAT_EQ(x[0], 0.2f);
  EXPECT_EQ(x[6], 0) << "below the first image";
  const std::vector<int64_t> expected = {1,    1,    1,    1,    1,    1,    -100, -100, -100, -100,
                                         -100, -100, -100, -100, -100, 1,    -100, -100, 1,    -100,
                                         -100, 1,    -100, -100, 1,    -100, -100, 1,    -100, -100};
  EXPECT_EQ(mask, expected);
  EXPECT_EQ(reader->tokensPerSample(), 15u);
  EXPECT_EQ(reader->tokensOf(0), 6u);
  EXPECT_EQ(reader->tokensOf(1), 5u);
  auto wrong = columns(4);
  expectError(BatchReader::bind(entry, *wrong, options), {"sample 1", "1x5 in column 'x'", "1x4 in column 'mask'"});
}
