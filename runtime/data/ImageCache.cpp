//===- ImageCache.cpp - decoded images in a file ----------------------------===//
#include "runtime/data/ImageCache.h"
#include "runtime/data/Limits.h"
#include "runtime/plan/PlanFile.h"
#include "support/AtomicFile.h"
#include "support/MappedFile.h"
#include "support/Processors.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <jpeglib.h>
#include <thread>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint32_t kVersion = 2;
constexpr char kMagic[8] = {'t', 'c', 'c', 'c', 'a', 'c', 'h', 'e'};
/// Samples in memory while they are written.
constexpr uint64_t kBlock = 512;

struct Row {
  uint64_t offset = 0, hash = 0;
  uint32_t channels = 0, height = 0, width = 0, present = 0; ///< 0: the sample cannot be decoded
  uint64_t bytes() const { return uint64_t(channels) * height * width; }
};
struct Footer {
  char magic[8];
  uint64_t version, key, samples, table, tableHash, hash; ///< hash: of the members before it
};

/// The samples of `part`, without a cache.
class PlainImages : public Column {
public:
  explicit PlainImages(CachedPart given) : Column(given.base->name(), typeOf(given)), part(std::move(given)) {}

  Status read(uint64_t index, std::byte *) const override {
    return error("column '{}', sample {}: cached images are read as images", name(), index);
  }
  ImageShape imageShape() const override { return part.shape; }
  Status readImage(uint64_t index, Image &image) const override {
    thread_local Image spare;
    if (Status status = part.base->readImage(index, image); !status.ok())
      return status;
    Random none({}, index, 0);
    for (const TransformPointer &transform : part.transforms)
      if (Status status = transform->apply(image, spare, none); !status.ok())
        return status.withContext(place(index));
    return Status();
  }
  bool isSized() const override { return true; }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    const bool fixed =
        std::ranges::any_of(part.transforms, [](const TransformPointer &transform) { return transform->fixesSize(); });
    if (fixed)
      return Column::extentsOf(index, extents);
    if (Status status = part.base->extentsOf(index, extents); !status.ok())
      return status;
    if (std::ranges::find(extents, 0u) != extents.end())
      return error("{}: the sample has no pixels", place(index));
    ImageShape shape = part.base->imageShapeWith(extents);
    for (const TransformPointer &transform : part.transforms) {
      Expected<ImageShape> after = transform->shapeAfter(shape);
      if (!after)
        return after.status().withContext(place(index));
      shape = *after;
    }
    extents[0] = shape.channels;
    extents[1] = shape.height;
    extents[2] = shape.width;
    return Status();
  }
  std::string place(uint64_t index) const override { return part.base->place(index); }
  bool isComputed() const override { return true; }
  uint64_t hostBytes() const override { return part.base->hostBytes(); }

protected:
  static plan::TensorType typeOf(const CachedPart &part) {
    plan::TensorType type = part.base->type();
    type.set_dims(1, part.shape.channels);
    type.set_dims(2, part.shape.height);
    type.set_dims(3, part.shape.width);
    return type;
  }
  CachedPart part;
};

class CachedImages : public Column {
public:
  CachedImages(std::unique_ptr<Column> given, std::shared_ptr<const MappedFile> file, std::span<const Row> rows)
      : Column(given->name(), given->type()), plain(std::move(given)), file(std::move(file)), rows(rows) {}

  Status read(uint64_t index, std::byte *destination) const override { return plain->read(index, destination); }
  ImageShape imageShape() const override { return plain->imageShape(); }
  Status readImage(uint64_t index, Image &image) const override {
    const Row &row = rows[index];
    if (row.present) {
      image.reshape(row.channels, row.height, row.width, false);
      std::memcpy(image.bytes.data(), file->bytes().data() + row.offset, row.bytes());
      // Check the copy, not the mapped file, which may change afterwards.
      if (plan::hashBytes(image.bytes.data(), row.bytes()) == row.hash)
        return Status();
      (void)removeOwnFile(file->path(), OwnFile::Images); // the next start rewrites it
    }
    return plain->readImage(index, image);
  }
  bool isSized() const override { return true; }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    const Row &row = rows[index];
    if (!row.present)
      return plain->extentsOf(index, extents);
    extents[0] = row.channels;
    extents[1] = row.height;
    extents[2] = row.width;
    return Status();
  }
  std::string place(uint64_t index) const override { return plain->place(index); }
  bool isComputed() const override { return true; }
  uint64_t hostBytes() const override { return plain->hostBytes(); }

private:
  std::unique_ptr<Column> plain;
  std::shared_ptr<const MappedFile> file;
  std::span<const Row> rows; ///< in the file
};

uint64_t hashOf(const Footer &footer) { return plan::hashBytes(&footer, offsetof(Footer, hash)); }

/// The table of a cache file. Error: what is wrong with it.
Expected<std::span<const Row>> tableOf(const MappedFile &file, uint64_t key, uint64_t samples) {
  const std::span<const std::byte> bytes = file.bytes();
  Footer footer;
  if (bytes.size() < sizeof(footer))
    return error("it is too short");
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof(footer), sizeof(footer));
  if (std::memcmp(footer.magic, kMagic, sizeof(kMagic)) != 0 || footer.hash != hashOf(footer))
    return error("its end is damaged or missing");
  if (footer.version != kVersion || footer.key != key || footer.samples != samples)
    return error("it is of other images or another version");
  if (footer.table % alignof(Row) != 0 || footer.table > bytes.size() - sizeof(footer) ||
      (bytes.size() - sizeof(footer) - footer.table) / sizeof(Row) != samples)
    return error("its table is cut");
  const std::span<const Row> rows(reinterpret_cast<const Row *>(bytes.data() + footer.table), samples);
  if (plan::hashBytes(rows.data(), rows.size_bytes()) != footer.tableHash)
    return error("its table is damaged");
  for (const Row &row : rows)
    if (row.present &&
        (row.channels > 4 || row.height > limits::kMostImagePixels || row.width > limits::kMostImagePixels ||
         row.offset > footer.table || row.bytes() > footer.table - row.offset))
      return error("its table is damaged");
  return rows;
}

/// Decodes each block of samples in parallel, and writes blocks in order.
Status writeCache(const Column &images, const std::string &path, uint64_t key, const DatasetOptions &options) {
  auto file = AtomicFile::create(path, OwnFile::Images);
  if (!file)
    return file.status();
  const uint64_t samples = images.samples();
  if (Status status = file->write(kImagesMark); !status.ok())
    return status;
  std::vector<Row> rows(samples);
  std::vector<Image> block(std::min(kBlock, samples));
  std::vector<char> good(block.size());
  for (uint64_t begin = 0; begin < samples; begin += kBlock) {
    const uint64_t count = std::min(kBlock, samples - begin);
    if (options.scanning)
      options.scanning(begin, samples, 0);
    std::atomic<uint64_t> next{0};
    auto work = [&] {
      for (uint64_t i; (i = next++) < count;)
        good[i] = images.readImage(begin + i, block[i]).ok();
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < usableProcessors(); ++i)
      threads.emplace_back(work);
    work();
    for (std::thread &thread : threads)
      thread.join();
    for (uint64_t i = 0; i < count; ++i) {
      if (!good[i])
        continue;
      const Image &image = block[i];
      rows[begin + i] = {file->bytesWritten(), plan::hashBytes(image.bytes.data(), image.elements()),
                         image.channels,       image.height,
                         image.width,          1};
      if (Status status = file->write(image.bytes.data(), image.elements()); !status.ok())
        return status;
    }
  }
  constexpr char kZeros[alignof(Row)] = {};
  if (Status status = file->write(kZeros, (alignof(Row) - file->bytesWritten() % alignof(Row)) % alignof(Row));
      !status.ok())
    return status;
  Footer footer{
      {}, kVersion, key, samples, file->bytesWritten(), plan::hashBytes(rows.data(), rows.size() * sizeof(Row)), 0};
  std::memcpy(footer.magic, kMagic, sizeof(kMagic));
  footer.hash = hashOf(footer);
  if (Status status = file->write(rows.data(), rows.size() * sizeof(Row)); !status.ok())
    return status;
  if (Status status = file->write(&footer, sizeof(footer)); !status.ok())
    return status;
  return file->commit();
}

Expected<std::unique_ptr<Column>> openCache(std::unique_ptr<Column> &images, const std::string &path, uint64_t key) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  auto rows = tableOf(**file, key, images->samples());
  if (!rows)
    return rows.status();
  return std::unique_ptr<Column>(std::make_unique<CachedImages>(std::move(images), *file, *rows));
}
} // namespace

Expected<std::unique_ptr<Column>> tcc::runtime::cacheImages(CachedPart part, const std::string &folder,
                                                            const DatasetOptions &options) {
  auto content = part.base->contentHash();
  if (!content)
    return content.status();
  auto note = [&](const Message &message) {
    if (options.note)
      options.note(message);
  };
  if (!*content) {
    note(Message::warning("data.cache: column '{}' has no compressed images to find a cache by; it is read each time",
                          part.base->name()));
    return std::unique_ptr<Column>(std::make_unique<PlainImages>(std::move(part)));
  }
  const std::string words = fmt::format("{} {} {} {}", kVersion, LIBJPEG_TURBO_VERSION_NUMBER, **content, part.text);
  const uint64_t key = plan::hashBytes(words.data(), words.size());
  const std::string path = fmt::format("{}/{:016x}.images", folder, key);
  std::unique_ptr<Column> images = std::make_unique<PlainImages>(std::move(part));
  std::error_code code;
  std::string why;
  if (std::filesystem::exists(path, code)) {
    auto cached = openCache(images, path, key);
    if (cached)
      return cached;
    why = cached.status().message();
  }
  const auto begin = std::chrono::steady_clock::now();
  Status status = makeFolders(folder);
  if (status.ok())
    status = writeCache(*images, path, key, options);
  if (status.ok()) {
    const uint64_t samples = images->samples();
    auto cached = openCache(images, path, key);
    if (cached) {
      note(Message::plain("data.cache: {} images are in {}{} ({:.1f} s)", samples, path,
                          why.empty() ? "" : fmt::format(", which was written anew: {}", why),
                          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()));
      return cached;
    }
    status = cached.status();
  }
  note(Message::warning("data.cache: {}; images are decoded each time", status.message()));
  return images;
}
