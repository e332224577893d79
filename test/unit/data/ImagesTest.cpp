//===- ImagesTest.cpp - class folders, tars, IDX, CIFAR -------------------===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Images : public FolderTest {
protected:
  std::string tar(const std::string &name, const std::vector<std::pair<std::string, std::string>> &members) {
    return write(name, archiveBytes(ArchiveKind::Tar, members));
  }
};
} // namespace

TEST_F(Images, ClassFolders) {
  write("d/zebra/1.png", png(3, 2));
  write("d/ant/2.JPG", jpeg(3, 2, 51));
  write("d/ant/readme.txt", "no image");
  auto data = openDataset(at("d"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->classes, (std::vector<std::string>{"ant", "zebra"}));
  EXPECT_EQ(plan::typeName(data->find("image")->type()), "f32[2x3x2x3]");
  EXPECT_EQ(readSample<int64_t>(*data->find("label"), 1), std::vector<int64_t>{1});
  std::vector<float> zebra = readSample<float>(*data->find("image"), 1);
  EXPECT_FLOAT_EQ(zebra[1], 10 / 255.0f) << "red of (1, 0)";
  EXPECT_FLOAT_EQ(zebra[6 + 3], 20 / 255.0f) << "green of (0, 1)";
  EXPECT_FLOAT_EQ(zebra[12], 7 / 255.0f) << "blue";
  EXPECT_NEAR(readSample<float>(*data->find("image"), 0)[7], 51 / 255.0f, 1.5 / 255);
}

TEST_F(Images, WithoutClassesTheyHaveNoLabels) {
  write("d/2.png", png(3, 2));
  write("d/10.JPG", jpeg(3, 2, 51));
  for (const char *path : {"d", "d/2.png"}) {
    auto data = openDataset(at(path), {});
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_EQ(data->find("label"), nullptr);
    EXPECT_TRUE(data->classes.empty());
    const Column &images = *data->find("image");
    EXPECT_FLOAT_EQ(readSample<float>(images, images.samples() - 1)[1], 10 / 255.0f) << "in the order of their names";
  }
}

TEST_F(Images, Tar) {
  auto data =
      openDataset(tar("d.tar", {{"./b/1.png", png(2, 2)}, {"./a/1.png", png(2, 2)}, {"./a/0.png", png(2, 2)}}), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(readSample<int64_t>(*data->find("label"), 2), std::vector<int64_t>{1});
  EXPECT_FLOAT_EQ(readSample<float>(*data->find("image"), 0)[1], 10 / 255.0f);
  auto whole = readFile(at("d.tar"));
  expectError(openDataset(write("cut.tar", whole->substr(0, 1100)), {}), {"cut.tar", "truncated"});
  expectError(openDataset(write("text.tar", std::string(2000, 'x')), {}), {"text.tar"});
}

TEST_F(Images, Faults) {
  write("d/a/1.png", png(2, 2));
  write("d/a/2.png", png(3, 2));
  auto data = openDataset(at("d"), {});
  ASSERT_TRUE(data.ok());
  std::vector<std::byte> space(data->find("image")->sampleBytes());
  expectError(data->find("image")->read(1, space.data()), {"2.png", "3x2", "2x2"});
  write("d/a/2.png", "these are words");
  expectError(data->find("image")->read(1, space.data()), {"2.png", "neither JPEG nor PNG"});
  write("d/a/2.png", png(2, 2).substr(0, 40));
  expectError(data->find("image")->read(1, space.data()), {"2.png", "damaged PNG"});
  std::string grey = jpeg(64, 64, 9);
  // Opening reads headers only: a truncated image is an error when its sample is read.
  write("e/a/1.jpg", grey.substr(0, grey.size() - 8));
  auto cut = openDataset(at("e"), {});
  ASSERT_TRUE(cut.ok()) << cut.message();
  space.resize(cut->find("image")->sampleBytes());
  expectError(cut->find("image")->read(0, space.data()), {"1.jpg", "damaged JPEG"});
  std::filesystem::create_directories(at("none/a"));
  expectError(openDataset(at("none"), {}), {"none", ".png"});
}

TEST_F(Images, Idx) {
  write("m/train-images-idx3-ubyte",
        idx({2, 2, 3}, std::string("\x00\x33\x66\x99\xcc\xff", 6) + std::string(6, '\x11')));
  write("m/train-labels-idx1-ubyte", idx({2}, std::string("\x07\x03", 2)));
  for (const char *path : {"m", "m/train", "m/train-images-idx3-ubyte"}) {
    auto data = openDataset(at(path), {});
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_EQ(plan::typeName(data->find("image")->type()), "f32[2x1x2x3]");
    EXPECT_EQ(readSample<float>(*data->find("image"), 0), (std::vector<float>{0, .2f, .4f, .6f, .8f, 1}));
    EXPECT_EQ(readSample<int64_t>(*data->find("label"), 0), std::vector<int64_t>{7});
  }
}

TEST_F(Images, IdxFaults) {
  std::string images = write("a-images-idx3-ubyte", idx({2, 1, 1}, "xy"));
  expectError(openDataset(images, {}), {"a-labels-idx1-ubyte", "no such file"});
  write("a-labels-idx1-ubyte", idx({3}, "abc"));
  expectError(openDataset(images, {}), {"3 labels", "2 images"});
  write("a-labels-idx1-ubyte", idx({2}, "a"));
  expectError(openDataset(images, {}), {"a-labels-idx1-ubyte", "truncated"});
  write("a-images-idx3-ubyte", "words, just words");
  expectError(openDataset(images, {}), {"not an IDX file"});
}

TEST_F(Images, CompressedIdx) {
  write("t-images-idx3-ubyte.gz", gzipBytes(idx({1, 1, 1}, "\xff")));
  write("t-labels-idx1-ubyte.gz", gzipBytes(idx({1}, "\x01")));
  auto data = openDataset(at("t"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(readSample<float>(*data->find("image"), 0), std::vector<float>{1});
}

TEST_F(Images, Cifar) {
  std::string record =
      std::string(1, '\x05') + std::string(1024, '\x00') + std::string(1024, '\x33') + std::string(1024, '\xff');
  write("c/data_batch_1.bin", record);
  write("c/data_batch_2.bin", record);
  auto data = openDataset(at("c"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("image")->type()), "f32[2x3x32x32]");
  EXPECT_FLOAT_EQ(readSample<float>(*data->find("image"), 1)[1024], 0.2f);
  EXPECT_EQ(readSample<int64_t>(*data->find("label"), 1), std::vector<int64_t>{5});
  DatasetOptions hundred;
  hundred.settings["format"] = "cifar100";
  auto fine = openDataset(write("train.bin", std::string(1, '\x02') + record), hundred);
  ASSERT_TRUE(fine.ok()) << fine.message();
  EXPECT_EQ(readSample<int64_t>(*fine->find("label"), 0), std::vector<int64_t>{5}) << "the fine label";
  expectError(openDataset(write("data_batch_3.bin", record.substr(1)), {}), {"data_batch_3.bin", "3073"});
}
