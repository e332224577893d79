//===- ImagesTest.cpp - class folders, tars, IDX, CIFAR, transforms ------===//
#include "test/unit/data/DataFixture.h"

#include <archive.h>
#include <archive_entry.h>
#include <cstdio>
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Images : public FolderTest {
protected:
  /// A width × height PNG whose pixel (x, y) is (10x, 20y, 7).
  std::string png(uint32_t width, uint32_t height) {
    std::vector<unsigned char> pixels;
    for (uint32_t y = 0; y < height; ++y)
      for (uint32_t x = 0; x < width; ++x)
        for (uint32_t value : {10 * x, 20 * y, 7u})
          pixels.push_back(static_cast<unsigned char>(value));
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = height;
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = 0;
    png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
    std::string bytes(size, 0);
    png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr);
    bytes.resize(size);
    return bytes;
  }
  /// A grey JPEG of one value.
  std::string jpeg(unsigned width, unsigned height, unsigned char value) {
    jpeg_compress_struct info{};
    jpeg_error_mgr error{};
    info.err = jpeg_std_error(&error);
    jpeg_create_compress(&info);
    unsigned char *memory = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = width;
    info.image_height = height;
    info.input_components = 1;
    info.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    jpeg_start_compress(&info, TRUE);
    std::vector<unsigned char> line(width, value);
    JSAMPROW row = line.data();
    while (info.next_scanline < height)
      jpeg_write_scanlines(&info, &row, 1);
    jpeg_finish_compress(&info);
    std::string bytes(reinterpret_cast<char *>(memory), size);
    jpeg_destroy_compress(&info);
    std::free(memory);
    return bytes;
  }
  std::string tar(const std::string &name, const std::vector<std::pair<std::string, std::string>> &members) {
    std::unique_ptr<archive, int (*)(archive *)> writer(archive_write_new(), archive_write_free);
    archive_write_set_format_pax_restricted(writer.get());
    archive_write_open_filename(writer.get(), at(name).c_str());
    for (const auto &[member, content] : members) {
      std::unique_ptr<archive_entry, void (*)(archive_entry *)> entry(archive_entry_new(), archive_entry_free);
      archive_entry_set_pathname(entry.get(), member.c_str());
      archive_entry_set_size(entry.get(), static_cast<int64_t>(content.size()));
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      archive_entry_set_perm(entry.get(), 0644);
      archive_write_header(writer.get(), entry.get());
      archive_write_data(writer.get(), content.data(), content.size());
    }
    archive_write_close(writer.get());
    return at(name);
  }
  static std::string idx(std::vector<uint32_t> dims, const std::string &data) {
    std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
    for (uint32_t dim : dims)
      for (int shift : {24, 16, 8, 0})
        bytes += static_cast<char>(dim >> shift);
    return bytes + data;
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
  write("e/a/1.jpg", grey.substr(0, grey.size() / 2));
  expectError(openDataset(at("e"), {}), {"1.jpg", "damaged JPEG"});
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
  auto compress = [&](const std::string &name, const std::string &content) {
    gzFile file = gzopen(at(name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
  };
  compress("t-images-idx3-ubyte.gz", idx({1, 1, 1}, "\xff"));
  compress("t-labels-idx1-ubyte.gz", idx({1}, "\x01"));
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

TEST_F(Images, Normalise) {
  write("d/a/1.png", png(2, 2));
  DatasetOptions options;
  options.settings["transform"] = R"([{"column":"image","kind":"normalise","mean":[0,0,0.5],"std":[1,1,0.25]}])";
  auto data = openDataset(at("d"), options);
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<float> values = readSample<float>(*data->find("image"), 0);
  EXPECT_FLOAT_EQ(values[1], 10 / 255.0f);
  EXPECT_FLOAT_EQ(values[8], (7 / 255.0f - 0.5f) / 0.25f);
  auto refuse = [&](const char *text, std::initializer_list<std::string> says) {
    options.settings["transform"] = text;
    expectError(openDataset(at("d"), options), says);
  };
  refuse(R"([{"column":"picture","kind":"normalise"}])", {"data.transform 1", "'picture'", "'image'"});
  refuse(R"([{"column":"image","kind":"rotate"}])", {"'rotate'", "normalise"});
  refuse(R"([{"column":"label","kind":"normalise","mean":0,"std":1}])", {"'label'", "i64", "f32"});
  refuse(R"([{"column":"image","kind":"normalise","mean":[1,2],"std":1}])", {"3 channels"});
  refuse(R"([{"column":"image","kind":"normalise","mean":0,"std":0}])", {"divides by 0"});
  refuse(R"([{"column":"image","kind":"normalise","mean":0,"sdt":1}])", {"'sdt'"});
}
