//===- MutationTest.cpp - thousands of damaged files of each format ------===//
//
// A small file of each format is changed at random: bytes and numbers overwritten, pieces cut out, repeated or moved.
// Each result is read to the end, or refused with a message that starts with its name. The seed is fixed. Run it under
// sanitizers, which find what no assertion would.
//
//===----------------------------------------------------------------------===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include "runtime/data/Inspect.h"

#include <random>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
constexpr int kCases = 1500; // mutations of each file

class Mutator {
public:
  explicit Mutator(uint64_t seed) : random(seed) {}

  std::string operator()(std::string bytes) {
    for (uint64_t times = 1 + below(4); times > 0 && !bytes.empty(); --times)
      change(bytes);
    return bytes;
  }

private:
  uint64_t below(uint64_t bound) { return random() % bound; }

  void change(std::string &bytes) {
    size_t at = below(bytes.size()), length = std::min<size_t>(1 + below(16), bytes.size() - at);
    switch (below(8)) {
    case 0: // one bit
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
      break;
    case 1:
      bytes[at] = static_cast<char>(below(256));
      break;
    case 2: { // a number that is special in headers, little or big endian
      static constexpr uint64_t kNumbers[] = {0,      1,          0x7f,       0xff,       0x7fff,
                                              0xffff, 0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull};
      uint64_t number = kNumbers[below(std::size(kNumbers))];
      size_t width = size_t(1) << below(4);
      bool big = below(2);
      for (size_t i = 0; i < width && at + i < bytes.size(); ++i)
        bytes[at + i] = static_cast<char>(number >> 8 * (big ? width - 1 - i : i));
      break;
    }
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(below(bytes.size()), bytes.substr(at, length));
      break;
    case 5:
      bytes.resize(at);
      break;
    case 6: { // a digit of a text
      size_t digit = bytes.find_first_of("0123456789", at);
      if (digit != std::string::npos)
        bytes[digit] = static_cast<char>('0' + below(10));
      break;
    }
    default: { // a token of a text
      static constexpr const char *kTokens[] = {
          "-1", "99999999999999999999", "nan", "[", "{", "\"", "'", ",", "(", ")", "\n", "1e400", "\xff", "null"};
      bytes.insert(at, kTokens[below(std::size(kTokens))]);
    }
    }
  }
  std::mt19937_64 random;
};

class Mutations : public FolderTest {
protected:
  /// Opens and reads all mutations of `good`; returns the number of those that could be opened.
  int sweep(const std::string &name, const std::string &good, DatasetOptions options = {}) {
    options.memoryBytes = uint64_t(64) << 20;
    options.windowLength = 3;
    Mutator mutate(20);
    int opened = 0;
    for (int i = 0; i < kCases; ++i) {
      auto data = openDatasetBytes(at(name), mutate(good), options);
      if (!data.ok()) {
        EXPECT_TRUE(data.message().find(folder) != std::string::npos) << data.message();
        continue;
      }
      ++opened;
      uint64_t samples = 0;
      for (const auto &column : data->columns)
        samples = std::max(samples, column->sampleBytes() ? column->samples() : 0);
      if (samples < 100000)
        (void)inspectData(*data, {}, [](const DamagedSample &) {});
    }
    auto control = openDatasetBytes(at(name), good, options);
    EXPECT_TRUE(control.ok()) << control.message();
    return opened;
  }
};
} // namespace

TEST_F(Mutations, Safetensors) {
  std::string good = safetensors(R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                                 R"("y":{"dtype":"I64","shape":[2],"data_offsets":[16,32]}})",
                                 std::string(32, 1));
  EXPECT_GT(sweep("d.safetensors", good), 0);
}

TEST_F(Mutations, Npy) { EXPECT_GT(sweep("d.npy", npy("<f4", "(2, 3)", std::string(24, 1))), 0); }

TEST_F(Mutations, Npz) {
  EXPECT_GT(sweep("d.npz", archiveBytes(ArchiveKind::Zip, {{"x.npy", npy("<f4", "(2, 3)", std::string(24, 1))},
                                                           {"y.npy", npy("<i8", "(2,)", std::string(16, 1))}})),
            0);
}

TEST_F(Mutations, Idx) {
  write("t-labels-idx1-ubyte", idx({2}, "\1\2"));
  std::string images = idx({2, 2, 3}, "abcdefghijkl");
  EXPECT_GT(sweep("t-images-idx3-ubyte", images), 0);
  EXPECT_GE(sweep("t-images-idx3-ubyte", gzipBytes(images)), 0);
}

TEST_F(Mutations, Cifar) {
  std::string record(3073, 5);
  sweep("data_batch_1.bin", record + record);
}

TEST_F(Mutations, Csv) { EXPECT_GT(sweep("d.csv", "x.0,x.1,\"label\"\n1.5,2,0\n-3,4e1,1\n"), 0); }

TEST_F(Mutations, Tokens) {
  EXPECT_GT(sweep("d.bin", std::string(60, 3)), 0);
  EXPECT_GT(sweep("d.txt", "The quick brown fox – naïve, 東京 – jumps."), 0);
}

TEST_F(Mutations, ImageTars) {
  std::vector<std::pair<std::string, std::string>> members = {{"a/1.png", png(5, 4)}, {"b/2.jpg", jpeg(5, 4, 9)}};
  EXPECT_GT(sweep("d.tar", archiveBytes(ArchiveKind::Tar, members)), 0);
  EXPECT_GE(sweep("d.tar", archiveBytes(ArchiveKind::TarGzip, members)), 0);
}

TEST_F(Mutations, Images) {
  // The images' own bytes, each in a sound tar.
  Mutator mutate(21);
  for (const auto &[name, good] : {std::pair<std::string, std::string>("1.png", png(5, 4)),
                                   {"1.jpg", jpeg(5, 4, 9)},
                                   {"2.jpg", jpeg(16, 9, 9, /*progressive=*/true)}})
    for (int i = 0; i < kCases; ++i) {
      DatasetOptions options;
      options.memoryBytes = uint64_t(64) << 20;
      auto data = openDatasetBytes(at("d.tar"), archiveBytes(ArchiveKind::Tar, {{"a/" + name, mutate(good)}}), options);
      if (data.ok()) {
        (void)inspectData(*data, {}, [](const DamagedSample &) {});
      } else {
        EXPECT_NE(data.message().find("d.tar"), std::string::npos) << data.message();
      }
    }
}
