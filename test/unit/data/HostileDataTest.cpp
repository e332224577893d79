//===- HostileDataTest.cpp - headers that lie, bombs, paths that block ---===//
//
// Every case runs with only kMemory more address space than the process already has, so that sizes which a header
// claims must not be allocated.
//
//===----------------------------------------------------------------------===//
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include "runtime/data/Inspect.h"
#include "runtime/plan/PlanFile.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
constexpr uint64_t kMemory = uint64_t(256) << 20;

/// Opens data from memory with little address space left. Not limited under sanitizers, which reserve too much of it.
Expected<Dataset> openInLittleMemory(const std::string &name, const std::string &bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return openDatasetBytes(name, bytes, {});
#else
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  rlimit limit = before;
  limit.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + kMemory;
  setrlimit(RLIMIT_AS, &limit);
  auto result = openDatasetBytes(name, bytes, {});
  setrlimit(RLIMIT_AS, &before);
  return result;
#endif
}

/// A big-endian number in the bytes of a PNG or JPEG header.
void putBig(std::string &bytes, size_t at, uint32_t value, size_t width) {
  for (size_t i = 0; i < width; ++i)
    bytes[at + i] = static_cast<char>(value >> 8 * (width - 1 - i));
}

uint32_t crcOf(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

std::string hugePng(uint32_t width, uint32_t height) {
  std::string bytes = png(2, 2);
  putBig(bytes, 16, width, 4);
  putBig(bytes, 20, height, 4);
  putBig(bytes, 29, crcOf(std::string_view(bytes).substr(12, 17)), 4);
  return bytes;
}

std::string hugeJpeg(uint32_t width, uint32_t height) {
  std::string bytes = jpeg(8, 8, 9);
  size_t frame = bytes.find("\xff\xc0");
  putBig(bytes, frame + 5, height, 2);
  putBig(bytes, frame + 7, width, 2);
  return bytes;
}

class Hostile : public FolderTest {};
} // namespace

TEST_F(Hostile, ImageDimensions) {
  for (const auto &[name, image] :
       {std::pair("1.png", hugePng(900000, 900000)), std::pair("1.jpg", hugeJpeg(65500, 65500))})
    expectError(openInLittleMemory("d.tar", archiveBytes(ArchiveKind::Tar, {{std::string("a/") + name, image}})),
                {"d.tar: a/1.", "pixels", "178956970"});
  // A later image is compared with the first before it is decoded.
  write("d/a/1.png", png(2, 2));
  write("d/a/2.png", hugePng(13000, 13000));
  auto data = openDataset(at("d"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<std::byte> space(data->find("image")->sampleBytes());
  expectError(data->find("image")->read(1, space.data()), {"2.png", "13000x13000", "2x2"});
}

TEST_F(Hostile, JpegOfManyScans) {
  std::string image = jpeg(8, 8, 100, /*progressive=*/true);
  size_t scan = image.rfind("\xff\xda"), end = image.rfind("\xff\xd9");
  std::string again = image.substr(scan, end - scan), bomb = image.substr(0, scan);
  for (int i = 0; i < 1000; ++i)
    bomb += again;
  write("d/a/1.jpg", bomb + "\xff\xd9");
  auto data = openDataset(at("d"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<std::byte> space(data->find("image")->sampleBytes());
  Status status = data->find("image")->read(0, space.data());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("1.jpg: damaged JPEG"), std::string::npos) << status.message();
}

TEST_F(Hostile, TarSizes) {
  std::string tar = archiveBytes(ArchiveKind::Tar, {{"a/1.png", png(2, 2)}});
  tar.replace(124, 12, std::string("77777777777\0", 12)); // 8 GiB
  std::fill(tar.begin() + 148, tar.begin() + 156, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += static_cast<unsigned char>(tar[i]);
  std::snprintf(tar.data() + 148, 8, "%06o", sum);
  expectError(openInLittleMemory("d.tar", tar), {"d.tar: a/1.png", "claims 8589934591 bytes"});
  expectError(openInLittleMemory("d.tar", gzipBytes(tar)), {"d.tar: a/1.png", "claims 8589934591 bytes"});
}

TEST_F(Hostile, TarOfManyLayers) {
  // 64 MiB of zeros that no image needs, compressed twice: a few hundred bytes.
  std::string tar = archiveBytes(ArchiveKind::Tar, {{"zeros", std::string(64 << 20, 0)}, {"a/1.png", png(2, 2)}});
  expectError(openInLittleMemory("d.tar", gzipBytes(gzipBytes(tar))), {"d.tar", "inflates to more than", "1032 times"});
}

TEST_F(Hostile, IdxHeaders) {
  write("t-labels-idx1-ubyte", idx({1}, "\1"));
  std::string name = at("t-images-idx3-ubyte");
  expectError(openInLittleMemory(name, idx({0xffffffff, 0xffffffff, 0xffffffff}, "x")), {"overflow"});
  expectError(openInLittleMemory(name, idx({0, 0xffffffff, 0xffffffff}, "")), {"overflow"});
  expectError(openInLittleMemory(name, idx({60000, 0, 28}, "")), {"labels", "60000"});
  expectError(openInLittleMemory(name, idx({1, 40000, 40000}, "x")), {"truncated", "1600000000"});
  expectError(openInLittleMemory(name, gzipBytes(idx({1, 40000, 40000}, "x"))), {"1600000000", "inflate to"});
  std::string longer = gzipBytes(idx({1, 1, 1}, std::string(16 << 20, 0)));
  expectError(openInLittleMemory(name, longer), {"its header says 1 bytes", "holds more"});
  std::string cut = gzipBytes(idx({1, 28, 28}, std::string(784, 7)));
  expectError(openInLittleMemory(name, cut.substr(0, cut.size() - 9)), {"truncated"});
}

TEST_F(Hostile, NpyHeaders) {
  for (const char *shape : {"(4611686018427387904, 4)", "(99999999999999999999,)", "(-1,)", "(3", "(3;)", "('3',)"})
    expectError(openInLittleMemory("x.npy", npy("<f4", shape, "1234")), {"x.npy"});
  expectError(openInLittleMemory("x.npy", npy("", "(1,)", "1234")), {"x.npy", "element type ''"});
  std::string wide = std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + "{}";
  expectError(openInLittleMemory("x.npy", wide), {"x.npy", "header takes 4294967295 bytes"});
  std::string deep = "(";
  for (int i = 0; i < 1000; ++i)
    deep += "1,";
  expectError(openInLittleMemory("x.npy", npy("<f4", deep + ")", "1234")), {"x.npy", "shape"});
}

TEST_F(Hostile, NpzBombs) {
  auto zip = [](const std::string &header, const std::string &data) {
    return archiveBytes(ArchiveKind::Zip, {{"x.npy", npy("<f4", header, data)}});
  };
  expectError(openInLittleMemory("d.npz", zip("(1000000000000,)", "1234")), {"d.npz: member x.npy", "claims"});
  // 64 MiB of zeros inflate from 64 KiB: the header is right, but the caller's memory is too small.
  DatasetOptions little;
  little.memoryBytes = 1 << 20;
  expectError(openDatasetBytes("d.npz", zip("(16777216,)", std::string(64 << 20, 0)), little),
              {"d.npz: member x.npy", "64.0 MiB", "1.0 MiB are free"});
  expectError(openInLittleMemory("d.npz", archiveBytes(ArchiveKind::Zip, {{"x.npy", npy("<f4", "(1,)", "1234")},
                                                                          {"x.npy", npy("<f4", "(1,)", "1234")}})),
              {"x.npy", "twice"});
  // A member that the directory gives a larger size than its data.
  std::string lie = zip("(2,)", "12345678");
  size_t directory = lie.rfind("PK\1\2");
  for (size_t at : {directory + 20, directory + 24})
    lie.replace(at, 4, "\xf0\xff\xff\xff");
  auto opened = openInLittleMemory("d.npz", lie);
  if (opened.ok()) {
    EXPECT_EQ(plan::typeName(opened->find("x")->type()), "f32[2]");
  }
}

TEST_F(Hostile, NpzWhoseMembersOverlap) {
  // Each entry of the directory points to the same compressed bytes.
  std::string zip = archiveBytes(ArchiveKind::Zip, {{"0.npy", npy("<f4", "(1048576,)", std::string(4 << 20, 0))}});
  size_t directory = zip.rfind("PK\1\2"), end = zip.rfind("PK\5\6");
  std::string entry = zip.substr(directory, end - directory), entries, tail = zip.substr(end);
  constexpr size_t kCount = 200;
  for (size_t i = 0; i < kCount; ++i) {
    entry[46] = static_cast<char>('0' + i % 75); // the name's first letter
    entries += entry;
  }
  auto put = [&](size_t at, size_t width, uint64_t value) {
    for (size_t i = 0; i < width; ++i)
      tail[at + i] = static_cast<char>(value >> 8 * i);
  };
  put(8, 2, kCount);
  put(10, 2, kCount);
  put(12, 4, entries.size());
  std::string bomb = zip.substr(0, directory) + entries + tail;
  auto opened = openInLittleMemory("d.npz", bomb);
  EXPECT_TRUE(!opened.ok() || opened->hostBytes() <= 1032 * bomb.size() + (1 << 16)) << opened->hostBytes();
}

TEST_F(Hostile, SafetensorsHeaders) {
  auto refuse = [&](const std::string &header, const std::string &data, std::initializer_list<std::string> says) {
    expectError(openInLittleMemory("d.safetensors", safetensors(header, data)), says);
  };
  auto tensor = [](const std::string &name, const std::string &shape, const std::string &offsets) {
    return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  std::string eight = "12345678";
  refuse("{" + tensor("x", "[4611686018427387904,4]", "[0,0]") + "}", "", {"'x'", "data_offsets"});
  refuse("{" + tensor("x", "[1]", "[18446744073709551612,0]") + "}", "1234", {"'x'", "data_offsets"});
  refuse("{" + tensor("x", "[1]", "[0,4]") + "," + tensor("y", "[1]", "[0,4]") + "}", eight, {"share bytes", "'x'", "'y'"});
  refuse("{" + tensor("x", "[1]", "[4,8]") + "}", eight, {"no tensor has the 4 bytes at offset 0"});
  refuse("{" + tensor("x", "[1]", "[0,4]") + "," + tensor("x", "[1]", "[4,8]") + "}", eight, {"tensor 'x'", "twice"});
  refuse(R"({"x":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", "1234", {"'x'", "dtype", "twice"});
  refuse("{" + tensor("x", "[1.5]", "[0,4]") + "}", "1234", {"'x'", "no size"});
  refuse("{" + tensor("x", "[[1]]", "[0,4]") + "}", "1234", {"'x'"});
  refuse(R"({"__metadata__":{"k":[1]}})", "", {"'k'", "no text"});
  refuse(R"({"__metadata__":7})", "", {"__metadata__"});
  refuse("{\"\xff\":{}}", "", {"JSON"});
  refuse("{\"x\":" + std::string(2'000'000, '['), "", {"'x'"});
  refuse("{\"x\":{\"y\":" + std::string(2'000'000, '['), "", {"JSON"});
  std::string numbers = "[1";
  for (int i = 0; i < 200'000; ++i)
    numbers += ",1";
  refuse("{" + tensor("x", numbers + "]", "[0,4]") + "}", "1234", {"'x'", "64 numbers"});
  expectError(openInLittleMemory("d.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
              {"100000000 bytes"});
}

TEST_F(Hostile, CsvOfManyColumns) {
  expectError(openInLittleMemory("d.csv", std::string(3 << 20, ',') + "\n1\n"), {"d.csv:1", "columns", "1048576"});
  expectError(openInLittleMemory("d.csv", "x,x\n1,2\n"), {"d.csv:1", "'x'", "two columns"});
  auto texts = openInLittleMemory("d.csv", "x\n" + std::string(8 << 20, 'y'));
  ASSERT_TRUE(texts.ok()) << texts.message();
  expectError(texts->find("x")->usable(), {"d.csv:2", "no number", "…"});
  DatasetOptions little;
  little.memoryBytes = 1 << 10;
  expectError(
      openDatasetBytes("d.csv", "x,y\n" + std::string(1000, '1') + ",2\n" + std::string(4000, '\n') + "1,2\n", little),
      {"d.csv", "in memory", "1.0 KiB are free"});
}

TEST_F(Hostile, Text) {
  DatasetOptions options;
  options.windowLength = 1;
  for (const std::string &bad : {std::string("ab\xc0\x80"), std::string("ab\xed\xa0\x80"),
                                 std::string("ab\xf4\x90\x80\x80"), std::string("ab\xe2\x82"), std::string("ab\x80")})
    expectError(openDatasetBytes("d.txt", bad, options), {"not UTF-8 at byte 2"});
  expectError(openDatasetBytes("d.txt", "", options), {"d.txt", "empty"});
  expectError(openDatasetBytes("d.bin", "abc", options), {"d.bin", "3 bytes"});
  expectError(openDatasetBytes("d.bin", "", options), {"d.bin", "empty"});
  options.vocabulary = std::vector<uint32_t>{'a', 0x7fffffff}; // of a run folder that was changed
  expectError(openDatasetBytes("d.txt", std::string("aa\0", 3), options), {"character 3", "U+0000"});
}

TEST_F(Hostile, PlacesThatBlock) {
  auto refuseAll = [&](const std::string &path, const std::string &kind) {
    expectError(MappedFile::open(path), {path, kind});
    expectError(readFile(path), {path, kind});
    expectError(plan::PlanReader::open(path), {path, kind});
    expectError(openDataset(path, {}), {path, kind});
    expectError(SafetensorsFile::open(path), {path, kind});
  };
  for (const char *name : {"f.safetensors", "f.npz", "f.npy", "f.csv", "f.tar", "f.tgz", "f.bin", "f.txt",
                           "data_batch_1.bin", "t-images-idx3-ubyte", "t-images-idx3-ubyte.gz"}) {
    ASSERT_EQ(mkfifo(at(name).c_str(), 0600), 0);
    refuseAll(at(name), "FIFO");
  }
  int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", at("s.npy").c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
  refuseAll(at("s.npy"), "socket");
  ::close(listener);
  expectError(MappedFile::open("/dev/zero"), {"/dev/zero", "device"});
}

TEST_F(Hostile, FoldersWithPlacesThatBlock) {
  std::filesystem::create_directories(at("d/a"));
  write("d/a/1.png", png(2, 2));
  ASSERT_EQ(mkfifo(at("d/a/2.png").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("3.png", at("d/a/3.png").c_str()), 0); // a loop
  auto data = openDataset(at("d"), {});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->find("image")->samples(), 1u);
  std::filesystem::create_directories(at("e"));
  ASSERT_EQ(mkfifo(at("e/x.npy").c_str(), 0600), 0);
  expectError(openDataset(at("e"), {}), {"e/x.npy", "FIFO"});
}
