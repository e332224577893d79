//===- ImageCacheTest.cpp - decoded images in a file -------------------------===//
#include "runtime/data/ImageCache.h"
#include "runtime/data/Loader.h"
#include "support/OwnFiles.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <algorithm>
#include <csignal>
#include <sys/resource.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// 12 images of different sizes; scaled, then cropped and flipped at random.
class ImageCache : public FolderTest {
protected:
  void SetUp() override {
    FolderTest::SetUp();
    for (int i = 0; i < 12; ++i)
      write(imageName(i), png(20 + uint32_t(i), 18 + uint32_t(i) % 5));
  }
  static std::string imageName(int i) {
    return "d/" + std::string(i % 2 ? "a/" : "b/") + std::to_string(100 + i) + ".png";
  }
  DatasetOptions options(const std::string &resize = "16", bool cached = true) {
    DatasetOptions options;
    options.training = true;
    options.settings["transform"] = "tables = [{ kind = 'resize', size = " + resize +
                                    " }, { kind = 'random_crop', size = 12 }, "
                                    "{ kind = 'horizontal_flip' }, { kind = 'normalise', mean = 0.5, std = 0.25 }]";
    if (cached)
      options.settings["cache"] = at("cache");
    options.note = [this](const Message &message) { notes.push_back(message.line()); };
    return options;
  }
  /// The bits of all samples of two epochs.
  std::vector<float> bits(const Dataset &data) {
    const Column &images = *data.find("image");
    std::vector<float> all;
    for (uint64_t epoch = 0; epoch < 2; ++epoch)
      for (uint64_t i = 0; i < images.samples(); ++i) {
        std::vector<float> one(images.sampleBytes() / sizeof(float));
        Status status = images.draw(i, Draw{7, epoch, 0}, reinterpret_cast<std::byte *>(one.data()));
        EXPECT_TRUE(status.ok()) << status.message();
        all.insert(all.end(), one.begin(), one.end());
      }
    return all;
  }
  std::vector<float> opened(const DatasetOptions &with) {
    notes.clear();
    auto data = openDataset(at("d"), with);
    EXPECT_TRUE(data.ok()) << data.message();
    return data ? bits(*data) : std::vector<float>();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto &entry : std::filesystem::directory_iterator(at("cache")))
      all.push_back(entry.path().string());
    return all;
  }
  std::vector<std::string> notes;
};
} // namespace

TEST_F(ImageCache, WrittenOnceAndTheSameBits) {
  const std::vector<float> plain = opened(options("16", false));
  EXPECT_EQ(opened(options()), plain) << "written";
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("12 images are in " + at("cache")), std::string::npos) << notes[0];
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(opened(options()), plain) << "found again";
  EXPECT_TRUE(notes.empty());
  // The cache file is found by the images' content, not by their path.
  std::filesystem::rename(at("d"), at("elsewhere"));
  auto moved = openDataset(at("elsewhere"), options());
  ASSERT_TRUE(moved.ok()) << moved.message();
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(bits(*moved), plain);
}

TEST_F(ImageCache, HoldsWhatIsBeforeTheFirstRandomTransform) {
  // Samples come from the cache file: images that change later are not read again.
  opened(options());
  auto data = openDataset(at("d"), options());
  ASSERT_TRUE(data.ok());
  const std::vector<float> before = bits(*data);
  for (int i = 0; i < 12; ++i)
    write(imageName(i), "no image");
  EXPECT_EQ(bits(*data), before);
}

TEST_F(ImageCache, OtherContentOrTransformsAreAnotherFile) {
  opened(options());
  const std::vector<float> plain = opened(options("[14, 15]", false));
  EXPECT_EQ(opened(options("[14, 15]")), plain);
  EXPECT_EQ(files().size(), 2u) << "another size";
  write(imageName(3), png(40, 40));
  const std::vector<float> changed = opened(options("16", false));
  EXPECT_EQ(opened(options()), changed);
  EXPECT_EQ(files().size(), 3u) << "another image";
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(ImageCache, ABrokenFileIsWrittenAnewWithOneLine) {
  const std::vector<float> plain = opened(options("16", false));
  opened(options());
  const std::string path = files().front(), whole = *readFile(path);
  for (size_t cut : {size_t(0), size_t(10), whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, cut);
    EXPECT_EQ(opened(options()), plain);
    ASSERT_EQ(notes.size(), 1u) << cut;
    EXPECT_NE(notes[0].find("written anew"), std::string::npos) << notes[0];
    EXPECT_EQ(*readFile(path), whole) << "the same bytes again";
  }
  // Every byte is checked, those of a sample when it is read. A file without our mark is not replaced.
  for (size_t place = 0; place < whole.size(); place += 97) {
    std::string broken = whole;
    broken[place] = char(broken[place] ^ 1);
    std::ofstream(path, std::ios::binary) << broken;
    EXPECT_EQ(opened(options()), plain) << place;
    opened(options());
    EXPECT_EQ(*readFile(path), place < kImagesMark.size() ? broken : whole) << place;
  }
}

TEST_F(ImageCache, ADamagedImageStaysAnErrorOfItsSample) {
  write(imageName(5), "no image");
  auto data = openDataset(at("d"), options());
  ASSERT_TRUE(data.ok()) << data.message();
  const Column &images = *data->find("image");
  std::vector<std::byte> bytes(images.sampleBytes());
  int failed = 0;
  for (uint64_t i = 0; i < images.samples(); ++i)
    if (Status status = images.read(i, bytes.data()); !status.ok()) {
      ++failed;
      EXPECT_NE(status.message().find("105.png"), std::string::npos) << status.message();
    }
  EXPECT_EQ(failed, 1);
}

TEST_F(ImageCache, AFullDiskGoesOnWithoutIt) {
  const std::vector<float> plain = opened(options("16", false));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<float> without = opened(options());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(without, plain);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("images are decoded each time"), std::string::npos) << notes[0];
  EXPECT_TRUE(files().empty()) << "nothing is left behind";
}

/// A column without a hash of its content has no unique file name: it could find the file of another column with as
/// many samples.
TEST_F(ImageCache, AColumnWithoutAHashIsNeverCached) {
  class Unhashed : public Column {
  public:
    explicit Unhashed(std::unique_ptr<Column> given) : Column(given->name(), given->type()), base(std::move(given)) {}
    Status read(uint64_t index, std::byte *to) const override { return base->read(index, to); }
    ImageShape imageShape() const override { return base->imageShape(); }
    Status readImage(uint64_t index, Image &image) const override { return base->readImage(index, image); }

  private:
    std::unique_ptr<Column> base;
  };
  DatasetOptions with = options();
  with.settings.clear();
  auto data = openDataset(at("d"), with);
  ASSERT_TRUE(data.ok()) << data.message();
  auto image = std::find_if(data->columns.begin(), data->columns.end(), [](auto &column) { return column->name() == "image"; });
  CachedPart part;
  part.base = std::make_unique<Unhashed>(std::move(*image));
  part.shape = part.base->imageShape();
  notes.clear();
  auto made = cacheImages(std::move(part), at("cache"), with);
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_FALSE(std::filesystem::exists(at("cache")));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("no compressed images"), std::string::npos) << notes[0];
}

TEST_F(ImageCache, WithoutTransformsAndForOtherData) {
  std::filesystem::remove_all(at("d"));
  for (int i = 0; i < 4; ++i)
    write(imageName(i), png(9, 7));
  DatasetOptions with = options();
  with.settings.erase("transform");
  DatasetOptions without = with;
  without.settings.erase("cache");
  const std::vector<float> plain = opened(without);
  EXPECT_EQ(opened(with), plain);
  EXPECT_EQ(files().size(), 1u);
  const std::vector<float> values = {1, 2};
  const std::vector<Tensor> tensors = {tensorOf("x", plan::F32, {1, 2}, values)};
  ASSERT_TRUE(writeSafetensors(at("x.safetensors"), tensors).ok());
  notes.clear();
  ASSERT_TRUE(openDataset(at("x.safetensors"), with).ok());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("nothing is cached"), std::string::npos);
}

/// A loader of 1, 2 and 8 threads reads the same batches from the cache, also from the middle of an epoch of shuffled
/// files.
TEST_F(ImageCache, TheSameBatchesWithAnyNumberOfThreadsAndAfterAResume) {
  const plan::Entry entry = entryOf(4, {{"image", plan::F32, {4, 3, 12, 12}, 0}});
  auto batches = [&](bool cached, unsigned workers, uint64_t from) {
    auto data = openDataset(at("d"), options("16", cached));
    EXPECT_TRUE(data.ok()) << data.message();
    auto reader = BatchReader::bind(entry, *data, {});
    EXPECT_TRUE(reader.ok()) << reader.message();
    Sampler sampler(12, 12, 4, SampleOrder::Windowed, 5, LastBatch::Drop);
    sampler.setWindow({5, 3, 4}, 6);
    Loader loader({&*reader}, sampler, 5, from / 3, from % 3, workers);
    std::vector<std::vector<float>> all;
    for (uint64_t number = from; number < 9; ++number) {
      std::vector<float> images(4 * 3 * 12 * 12);
      std::vector<uint64_t> indices;
      std::vector<std::span<std::byte>> given = {std::as_writable_bytes(std::span(images))};
      EXPECT_TRUE(loader.take(indices, given).ok());
      all.push_back(images);
    }
    return all;
  };
  const auto expected = batches(false, 1, 0);
  for (unsigned workers : {1u, 2u, 8u}) {
    EXPECT_EQ(batches(true, workers, 0), expected) << workers;
    const auto rest = batches(true, workers, 4);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + 4)) << workers;
  }
}
