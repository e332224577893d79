//===- Sheet.cpp - a picture of samples ------------------------------------===//
#include "runtime/data/Sheet.h"
#include "runtime/data/transforms/Resample.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <png.h>
#include <zlib.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint32_t kGap = 2, kLeastCell = 64, kMostCell = 160;

bool isRandom(const recipe::TransformSpec &spec) {
  return spec.kind->random && spec.inTraining && spec.kind->works == recipe::TransformKind::Works::OnImages;
}

/// The transforms without those that change the range of values and those of whole batches.
Expected<std::string> forEyes(const std::string &text, bool &random) {
  auto specs = recipe::parseTransforms(text);
  if (!specs)
    return specs.status();
  if (specs->empty())
    return std::string();
  auto parsed = parseToml(text);
  const toml::array &tables = *parsed->get("tables")->as_array();
  toml::array kept;
  for (size_t i = 0; i < specs->size(); ++i) {
    const std::string &kind = (*specs)[i].kind->name;
    if (kind == "normalise" || kind == "standardise" || kind == "scale" ||
        (*specs)[i].kind->works == recipe::TransformKind::Works::OnBatches)
      continue;
    random |= isRandom((*specs)[i]);
    kept.push_back(*tables[i].as_table());
  }
  return recipe::transformsText(kept);
}

/// Inserts a text chunk with trun's mark after the first chunk of a PNG.
std::string withMark(const std::string &png) {
  constexpr size_t kFirstEnd = 8 + 25; // the signature, and IHDR with its length, type and checksum
  auto bigEndian = [](uint32_t value) {
    return std::string{char(value >> 24), char(value >> 16 & 255), char(value >> 8 & 255), char(value & 255)};
  };
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef *>(kPictureMark.data()), uInt(kPictureMark.size()));
  return png.substr(0, kFirstEnd) + bigEndian(uint32_t(kPictureMark.size() - 4)) + std::string(kPictureMark) +
         bigEndian(uint32_t(sum)) + png.substr(kFirstEnd);
}

/// The RGB picture.
struct Canvas {
  uint32_t width, height;
  std::vector<uint8_t> rgb;

  void draw(const Image &image, uint32_t top, uint32_t left) {
    for (uint32_t y = 0; y < image.height; ++y)
      for (uint32_t x = 0; x < image.width; ++x)
        for (uint32_t c = 0; c < 3; ++c)
          rgb[(size_t(top + y) * width + left + x) * 3 + c] =
              image.bytes[(image.channels == 1 ? 0 : c) * image.plane() + size_t(y) * image.width + x];
  }

  Status write(const std::string &path) const {
    png_image png;
    std::memset(&png, 0, sizeof(png));
    png.version = PNG_IMAGE_VERSION;
    png.width = width;
    png.height = height;
    png.format = PNG_FORMAT_RGB;
    png_alloc_size_t bytes = 0;
    std::string file;
    bool ok = png_image_write_to_memory(&png, nullptr, &bytes, 0, rgb.data(), 0, nullptr) != 0;
    if (ok) {
      file.resize(bytes);
      ok = png_image_write_to_memory(&png, file.data(), &bytes, 0, rgb.data(), 0, nullptr) != 0;
      file.resize(bytes);
    }
    if (!ok)
      return error("{}: cannot encode the PNG: {}", path, png.message);
    return writeFileAtomically(path, withMark(file), OwnFile::Picture);
  }
};

using Extents = std::array<uint32_t, 3>; // channels, height, width

/// A sample's values in [0, 1] as bytes.
Image bytesOf(const Column &column, const Extents &extents, const std::vector<std::byte> &values) {
  Image image;
  image.reshape(extents[0], extents[1], extents[2], false);
  if (column.type().dtype() == plan::U8) {
    std::memcpy(image.bytes.data(), values.data(), image.bytes.size());
    return image;
  }
  const auto *floats = reinterpret_cast<const float *>(values.data());
  for (uint64_t i = 0; i < image.elements(); ++i)
    image.bytes[i] = uint8_t(std::clamp(std::nearbyint(floats[i] * 255), 0.0f, 255.0f));
  return image;
}

/// The size of a cell whose image has sides of at least kLeastCell (by a whole factor) and at most kMostCell.
std::pair<uint32_t, uint32_t> cellOf(uint32_t height, uint32_t width) {
  const uint32_t longer = std::max(height, width),
                 factor = longer < kLeastCell ? (kLeastCell + longer - 1) / longer : 1;
  if (longer * factor <= kMostCell)
    return {height * factor, width * factor};
  return {std::max(1u, height * kMostCell / longer), std::max(1u, width * kMostCell / longer)};
}
} // namespace

Status tcc::runtime::writeSheet(const std::string &path, const DatasetOptions &given, const SheetOptions &options,
                                const std::string &png) {
  DatasetOptions open = given;
  bool random = false;
  auto tables = forEyes(settingText(given.settings, "transform"), random);
  if (!tables)
    return tables.status();
  open.settings["transform"] = *tables;
  open.training = false;
  auto evaluation = openDataset(path, open);
  if (!evaluation)
    return evaluation.status();
  open.training = true;
  auto training = openDataset(path, open);
  if (!training)
    return training.status();
  const Column *plain = evaluation->find(options.column), *changed = training->find(options.column);
  for (const Column *column : {plain, changed})
    if (!column || !column->holdsImages() || column->type().dims_size() != 4 ||
        (column->type().dims(1) != 1 && column->type().dims(1) != 3))
      return error("{}: {} draws a column '{}' of images with 1 or 3 channels; the data has {}", path,
                   advice::option("png"), options.column, evaluation->describeColumns());
  const uint64_t cells = options.rows * options.columns, samples = changed->samples();
  const uint64_t shown = std::min(random ? options.rows : cells, samples);
  // Cells are as large as the largest image that is shown.
  Extents most = {0, 1, 1};
  for (uint64_t number = 0; number < shown; ++number)
    for (const Column *column : {plain, changed}) {
      Extents own;
      if (Status status = column->extentsOf(number * samples / shown, own); !status.ok())
        return status;
      for (size_t axis : {1, 2})
        most[axis] = std::max(most[axis], own[axis]);
    }
  const auto [height, width] = cellOf(most[1], most[2]);
  const uint64_t rows = random ? shown : (shown + options.columns - 1) / options.columns;
  Canvas canvas{uint32_t(options.columns * (width + kGap) + kGap), uint32_t(rows * (height + kGap) + kGap), {}};
  canvas.rgb.assign(size_t(canvas.width) * canvas.height * 3, 255);
  std::vector<std::byte> values;
  for (uint64_t cell = 0; cell < rows * options.columns; ++cell) {
    const uint64_t row = cell / options.columns, place = cell % options.columns, number = random ? row : cell;
    if (number >= shown)
      break;
    const uint64_t sample = number * samples / shown;
    const Column &column = random && place > 0 ? *changed : *plain;
    const Draw draw{options.seed, place - 1, 0};
    Extents own;
    if (Status status = column.extentsOf(sample, own); !status.ok())
      return status;
    const std::array<uint64_t, 3> extents = {own[0], own[1], own[2]};
    constexpr std::byte kZeros[sizeof(float)] = {};
    const uint64_t bytes = plan::dtypeBytes(column.type().dtype());
    values.resize(extents[0] * extents[1] * extents[2] * bytes);
    if (Status status = column.drawTo(sample, random && place > 0 ? draw : Draw(),
                                      {extents, std::span(kZeros).first(bytes)}, values.data());
        !status.ok())
      return status;
    Image image = bytesOf(column, own, values), scaled;
    const bool smaller = most[1] > height || most[2] > width;
    auto side = [](uint32_t pixels, uint32_t cell, uint32_t all) {
      return std::max(1u, uint32_t(uint64_t(pixels) * cell / all));
    };
    resample(image, {0, 0, image.height, image.width}, side(image.height, height, most[1]),
             side(image.width, width, most[2]), smaller ? Filter::Bilinear : Filter::Nearest, true, scaled);
    canvas.draw(scaled, uint32_t(row * (height + kGap) + kGap), uint32_t(place * (width + kGap) + kGap));
  }
  return canvas.write(png);
}
