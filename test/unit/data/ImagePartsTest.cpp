//===- ImagePartsTest.cpp - parts of images have the whole image's bytes ---===//
#include "runtime/data/ImageDecode.h"
#include "test/unit/data/DataFixture.h"
#include "test/unit/data/SampleFiles.h"

#include <cstdio>
#include <jpeglib.h>
#include <random>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
struct Coding {
  int across = 1, down = 1; ///< pixels that share a chroma sample
  bool progressive = false;
  int components = 3;
  unsigned restart = 0; ///< blocks between restart markers; 0: none
  unsigned seed = 0;
};

/// A JPEG of noise over gradients.
std::string noisyJpeg(uint32_t width, uint32_t height, const Coding &coding) {
  jpeg_compress_struct info{};
  jpeg_error_mgr error{};
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  unsigned char *memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = coding.components;
  info.in_color_space = coding.components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  info.comp_info[0].h_samp_factor = coding.across;
  info.comp_info[0].v_samp_factor = coding.down;
  info.restart_interval = coding.restart;
  if (coding.progressive)
    jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::mt19937 random(width * height + coding.seed);
  std::vector<unsigned char> line(width * coding.components);
  JSAMPROW row = line.data();
  while (info.next_scanline < height) {
    for (size_t i = 0; i < line.size(); ++i)
      line[i] =
          static_cast<unsigned char>(info.next_scanline * 255 / height / 2 + i * 100 / line.size() + random() % 28);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char *>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

std::vector<unsigned char> decoded(const std::string &bytes, ImageSize size, const Box &part) {
  std::vector<unsigned char> planes(3ull * part.height * part.width);
  Status status = decodeImage("image", bytes, size, part, planes);
  EXPECT_TRUE(status.ok()) << status.message();
  return planes;
}

std::vector<unsigned char> cut(const std::vector<unsigned char> &whole, ImageSize size, const Box &part) {
  std::vector<unsigned char> planes;
  for (uint32_t c = 0; c < 3; ++c)
    for (uint32_t y = 0; y < part.height; ++y) {
      const auto row = whole.begin() + (size_t(c) * size.height + part.top + y) * size.width + part.left;
      planes.insert(planes.end(), row, row + part.width);
    }
  return planes;
}

class ImageParts : public FolderTest {
protected:
  std::vector<float> drawn(const Dataset &data, uint64_t sample, const Draw &draw) {
    const Column &image = *data.find("image");
    std::vector<float> values(image.sampleBytes() / 4);
    Status status = image.draw(sample, draw, reinterpret_cast<std::byte *>(values.data()));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
  Dataset open(const std::string &path, const std::string &tables) {
    DatasetOptions options;
    options.settings["transform"] = "tables = [" + tables + ", { kind = 'to_float' }]";
    options.training = true;
    auto data = openDataset(at(path), options);
    EXPECT_TRUE(data.ok()) << data.message();
    return data.take();
  }
};
} // namespace

TEST_F(ImageParts, OfJpegsOfEveryKind) {
  std::mt19937 random(7);
  for (const Coding &coding : {Coding{},
                               {2, 1},
                               {2, 2},
                               {1, 2},
                               {4, 1},
                               {4, 2},
                               {2, 2, true},
                               {1, 1, true},
                               {1, 1, false, 1},
                               {2, 2, false, 3, 5},
                               {2, 1, true, 3, 3}})
    for (ImageSize size : {ImageSize{67, 45}, {200, 133}, {16, 300}, {321, 17}, {1, 1}}) {
      const std::string bytes = noisyJpeg(size.width, size.height, coding);
      const auto whole = decoded(bytes, size, {0, 0, size.height, size.width});
      for (int i = 0; i < 25; ++i) {
        Box part;
        part.height = 1 + random() % size.height;
        part.width = 1 + random() % size.width;
        part.top = random() % (size.height - part.height + 1);
        part.left = random() % (size.width - part.width + 1);
        ASSERT_TRUE(decoded(bytes, size, part) == cut(whole, size, part))
            << size.width << "x" << size.height << ", chroma " << coding.across << "x" << coding.down
            << ", progressive " << coding.progressive << ": " << part.width << "x" << part.height << " at " << part.left
            << ", " << part.top;
      }
    }
}

TEST_F(ImageParts, OfPngs) {
  const auto planes = decoded(png(25, 12), {25, 12}, {3, 2, 7, 21});
  for (uint32_t y = 0; y < 7; ++y)
    for (uint32_t x = 0; x < 21; ++x) {
      EXPECT_EQ(planes[y * 21 + x], 10 * (x + 2));
      EXPECT_EQ(planes[7 * 21 + y * 21 + x], 20 * (y + 3));
      EXPECT_EQ(planes[2 * 7 * 21 + y * 21 + x], 7);
    }
}

TEST_F(ImageParts, DamageOutsideThePartIsFound) {
  for (bool progressive : {false, true}) {
    const std::string bytes = noisyJpeg(200, 133, {2, 2, progressive});
    std::vector<unsigned char> planes(3 * 16 * 16);
    for (size_t kept : {bytes.size() - 40, bytes.size() * 3 / 4}) {
      Status status = decodeImage("image", bytes.substr(0, kept), {200, 133}, {0, 0, 16, 16}, planes);
      EXPECT_NE(status.message().find("damaged JPEG"), std::string::npos) << kept;
    }
  }
}

/// The same pixels stored as bytes are read whole, and every transform is applied to all of them.
TEST_F(ImageParts, TransformsGiveTheBitsOfTheWholeImage) {
  for (ImageSize size : {ImageSize{150, 100}, {90, 310}}) {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 4; ++i) {
      const std::string bytes = noisyJpeg(size.width, size.height, {2, 2, i == 3, 3, 0, unsigned(i)});
      write(fmt::format("d/a/{}.jpg", i), bytes);
      const auto whole = decoded(bytes, size, {0, 0, size.height, size.width});
      pixels.insert(pixels.end(), whole.begin(), whole.end());
    }
    ASSERT_TRUE(
        writeSafetensors(at("w.safetensors"), {tensorOf("image", plan::U8, {4, 3, size.height, size.width}, pixels)})
            .ok());
    const std::string crop = "{ kind = 'random_crop', size = 40 }", flip = "{ kind = 'horizontal_flip' }";
    for (const std::string &tables : std::vector<std::string>{
             "{ kind = 'random_resized_crop', size = 32 }", "{ kind = 'random_resized_crop', size = [9, 70] }, " + flip,
             "{ kind = 'random_resized_crop', size = 48, interpolation = 'bicubic' }, { kind = 'random_crop', size = "
             "33 }",
             "{ kind = 'random_resized_crop', size = 33, interpolation = 'nearest' }, { kind = 'center_crop', size = "
             "20 }",
             "{ kind = 'random_resized_crop', size = 33, antialias = false }, { kind = 'center_crop', size = 20 }",
             "{ kind = 'resize', size = 64 }, " + crop, "{ kind = 'resize', size = [300, 64] }, " + crop,
             "{ kind = 'resize', size = [60, 200], interpolation = 'lanczos' }, { kind = 'center_crop', size = 50 }, " +
                 flip,
             "{ kind = 'resize', size = 140 }, { kind = 'center_crop', size = 130 }, " + crop, crop + ", " + flip,
             "{ kind = 'center_crop', size = [80, 70] }, { kind = 'resize', size = [40, 60] }, " + crop,
             crop + ", { kind = 'random_crop', size = 40, padding = 3 }", "{ kind = 'center_crop', size = 160 }",
             "{ kind = 'resize', size = [50, 60] }, { kind = 'resize', size = [40, 90] }",
             "{ kind = 'resize', size = [50, 60] }, { kind = 'random_resized_crop', size = 30 }",
             "{ kind = 'color_jitter', brightness = 0.4 }, " + crop, flip + ", " + crop}) {
      SCOPED_TRACE(tables);
      Dataset parts = open("d", tables), whole = open("w.safetensors", tables);
      for (uint64_t sample : {0, 3})
        for (uint64_t epoch : {0, 1, 2})
          EXPECT_TRUE(drawn(parts, sample, {5, epoch}) == drawn(whole, sample, {5, epoch})) << sample << ", " << epoch;
      EXPECT_FALSE(drawn(parts, 0, {5, 0}) == drawn(parts, 3, {5, 0}));
    }
  }
}
