//===- ShardsTest.cpp - several files as one data set, and their order -------===//
#include "runtime/data/Sampler.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/Epochs.h"
#include "test/unit/data/SampleFiles.h"

#include <algorithm>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Shards : public FolderTest {
protected:
  std::string tar(const std::string &name, const std::vector<std::pair<std::string, std::string>> &members,
                  ArchiveKind kind = ArchiveKind::Tar) {
    return write(name, archiveBytes(kind, members));
  }
  /// WebDataset's layout: samples `from` to `to`, sample i with label 10 i.
  std::string web(const std::string &name, int from, int to, ArchiveKind kind = ArchiveKind::Tar) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = from; i < to; ++i) {
      const std::string key = "s" + std::to_string(1000 - i); // not in the order of names
      members.push_back({key + ".jpg", jpeg(4, 4, static_cast<unsigned char>(10 * i))});
      members.push_back({key + ".cls", std::to_string(10 * i) + "\n"});
      members.push_back({key + ".json", "{}"});
    }
    return tar(name, members, kind);
  }
  std::vector<int64_t> labels(const Dataset &data) {
    std::vector<int64_t> all;
    for (uint64_t i = 0; i < data.find("label")->samples(); ++i)
      all.push_back(readSample<int64_t>(*data.find("label"), i)[0]);
    return all;
  }
  std::string safetensorsOf(const std::string &name, std::vector<float> values, const std::string &column = "x") {
    const std::vector<Tensor> tensors = {tensorOf(column, plan::F32, {int64_t(values.size()) / 2, 2}, values)};
    EXPECT_TRUE(writeSafetensors(at(name), tensors).ok());
    return at(name);
  }
};
} // namespace

TEST_F(Shards, WebDatasetsLayoutIsReadInItsOrder) {
  web("train-000.tar", 0, 3);
  web("train-001.tar", 3, 5, ArchiveKind::TarGzip);
  web("train-010.tar", 5, 9);
  for (const char *pattern : {"train-*.tar", "train-{000,001,010}.tar", "train-0[01][01].tar"}) {
    auto data = openDataset(at(pattern), {});
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_EQ(labels(*data), (std::vector<int64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80})) << pattern;
    EXPECT_EQ(data->shards, (std::vector<uint64_t>{3, 2, 4}));
    EXPECT_TRUE(data->classes.empty()) << "labels are numbers of the file";
    for (uint64_t i = 0; i < 9; ++i)
      EXPECT_NEAR(readSample<float>(*data->find("image"), i)[5], double(i) * 10 / 255, 1.5 / 255)
          << "image and label of " << i;
    EXPECT_EQ(data->find("image")->place(3), at("train-001.tar") + ": s997.jpg");
  }
  auto range = openDataset(at("train-{000..001}.tar"), {});
  ASSERT_TRUE(range.ok()) << range.message();
  EXPECT_EQ(labels(*range).size(), 5u);
  // A folder of tars is read like a list of tars.
  web("folder/a.tar", 0, 2);
  web("folder/b.tar", 2, 4);
  auto folder = openDataset(at("folder"), {});
  ASSERT_TRUE(folder.ok()) << folder.message();
  EXPECT_EQ(labels(*folder), (std::vector<int64_t>{0, 10, 20, 30}));
}

TEST_F(Shards, TheScanSaysHowFarItIs) {
  web("a-0.tar", 0, 3);
  web("a-1.tar", 3, 5);
  DatasetOptions options;
  std::vector<std::vector<uint64_t>> heard;
  options.scanning = [&](uint64_t done, uint64_t files, uint64_t samples) { heard.push_back({done, files, samples}); };
  ASSERT_TRUE(openDataset(at("a-*.tar"), options).ok());
  EXPECT_EQ(heard, (std::vector<std::vector<uint64_t>>{{0, 2, 0}, {1, 2, 3}}));
}

TEST_F(Shards, StoredImagesStayInTheMappedFile) {
  auto stored = openDataset(web("a.tar", 0, 4), {}),
       packed = openDataset(web("b.tar.gz", 0, 4, ArchiveKind::TarGzip), {});
  ASSERT_TRUE(stored.ok() && packed.ok()) << stored.message() << packed.message();
  const uint64_t bytes = jpeg(4, 4, 0).size();
  EXPECT_LT(stored->find("image")->hostBytes(), 4 * bytes);
  EXPECT_GT(packed->find("image")->hostBytes(), 4 * bytes);
}

TEST_F(Shards, ClassFoldersOverSeveralTars) {
  tar("x-1.tar", {{"dog/1.png", png(2, 2)}, {"cat/1.png", png(2, 2)}});
  tar("x-2.tar", {{"ant/9.png", png(2, 2)}, {"dog/9.png", png(2, 2)}});
  auto data = openDataset(at("x-?.tar"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->classes, (std::vector<std::string>{"ant", "cat", "dog"})) << "classes of all files";
  EXPECT_EQ(labels(*data), (std::vector<int64_t>{1, 2, 0, 2}));
}

TEST_F(Shards, ArraysAreJoined) {
  safetensorsOf("p-0.safetensors", {1, 2, 3, 4});
  safetensorsOf("p-1.safetensors", {5, 6});
  auto data = openDataset(at("p-*.safetensors"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(plan::typeName(data->find("x")->type()), "f32[3x2]");
  EXPECT_EQ(readSample<float>(*data->find("x"), 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(readSample<float>(*data->find("x"), 2), (std::vector<float>{5, 6}));
  DatasetOptions tail;
  tail.evalSplit = 0.5;
  tail.part = DatasetOptions::Part::Tail;
  auto held = openDataset(at("p-*.safetensors"), tail);
  ASSERT_TRUE(held.ok()) << held.message();
  EXPECT_EQ(held->shards, (std::vector<uint64_t>{1, 1})) << "samples 1 and 2, one of each file";
  safetensorsOf("p-2.safetensors", {5, 6}, "y");
  expectError(openDataset(at("p-*.safetensors"), {}), {"p-2.safetensors", "'x'", "missing"});
}

TEST_F(Shards, WhatIsWrongIsNamed) {
  expectError(openDataset(at("none-*.tar"), {}), {"none-*.tar", "no file has such a name"});
  web("t-0.tar", 0, 2);
  expectError(openDataset(at("t-{0..2}.tar"), {}), {"t-1.tar", "t-{0..2}.tar asks for it"});
  expectError(openDataset(at("t-{0..1}{0..9999999}{0..999999}.tar"), {}), {"t-"});
  tar("u.tar", {{"k.jpg", jpeg(4, 4, 0)}, {"k.cls", "seven"}});
  expectError(openDataset(at("u.tar"), {}), {"u.tar: k.cls", "no whole number"});
  tar("v.tar", {{"k.jpg", jpeg(4, 4, 0)}, {"k.cls", "7"}, {"l.jpg", jpeg(4, 4, 0)}});
  expectError(openDataset(at("v.tar"), {}), {"v.tar: l.jpg", "no label"});
  tar("w.tar", {{"k.jpg", jpeg(4, 4, 0)}});
  expectError(openDataset(at("w.tar"), {}), {"w.tar: k.jpg", "class folder", "KEY.cls"});
  const std::string whole = *readFile(web("z.tar", 0, 4));
  expectError(openDataset(write("cut.tar", whole.substr(0, 2600)), {}), {"cut.tar"});
}

namespace {
Sampler windowedSampler(uint64_t window, uint64_t seed = 3) {
  Sampler sampler(100, 100, 4, SampleOrder::Windowed, seed, LastBatch::Drop);
  sampler.setWindow({30, 0, 20, 50}, window);
  return sampler;
}
/// The index of the file that holds a sample of windowedSampler().
int fileOf(uint64_t sample) { return sample < 30 ? 0 : sample < 50 ? 2 : 3; }
} // namespace

TEST(WindowedOrder, ReadsEachSampleOnceAndAnotherOrderEachEpoch) {
  for (uint64_t window : {1, 7, 10, 100, 1000}) {
    const std::vector<uint64_t> order = epochOf(windowedSampler(window), 0);
    EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), 100u) << window;
    EXPECT_EQ(order, epochOf(windowedSampler(window), 0)) << "the same every time";
    EXPECT_NE(order, epochOf(windowedSampler(window, 4), 0));
    // A sampler can be asked for epochs in any order.
    Sampler sampler = windowedSampler(window);
    EXPECT_NE(epochOf(sampler, 1), order);
    EXPECT_EQ(epochOf(sampler, 0), order);
  }
}

TEST(WindowedOrder, StaysWithinAWindowOfShuffledFiles) {
  // With a window of one sample, files are read one after the other, in an order that differs between epochs.
  std::set<std::vector<int>> orders;
  for (uint64_t epoch = 0; epoch < 40; ++epoch) {
    std::vector<int> files;
    std::vector<uint64_t> order = epochOf(windowedSampler(1), epoch);
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || fileOf(order[i]) != fileOf(order[i - 1]))
        files.push_back(fileOf(order[i]));
      else
        EXPECT_EQ(order[i], order[i - 1] + 1) << "samples of a file in its order";
    }
    EXPECT_EQ(files.size(), 3u);
    orders.insert(files);
  }
  EXPECT_EQ(orders.size(), 6u) << "all orders of three files occur";
  // A larger window permutes runs of that sequence, and moves no sample out of its run.
  const std::vector<uint64_t> plain = epochOf(windowedSampler(1), 5), shuffled = epochOf(windowedSampler(10), 5);
  bool moved = false;
  for (size_t begin = 0; begin < 100; begin += 10) {
    std::set<uint64_t> one(plain.begin() + long(begin), plain.begin() + long(begin) + 10),
        other(shuffled.begin() + long(begin), shuffled.begin() + long(begin) + 10);
    EXPECT_EQ(one, other);
    moved |= !std::equal(plain.begin() + long(begin), plain.begin() + long(begin) + 10, shuffled.begin() + long(begin));
  }
  EXPECT_TRUE(moved);
}
