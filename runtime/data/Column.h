//===- Column.h - one named column of a data set -------------------------===//
//
// A data set is a set of named columns whose first axis is the sample axis. A column reads one sample at a time, by
// index, so that shuffling needs no memory and images can stay compressed until they are needed.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_COLUMN_H
#define TCC_RUNTIME_DATA_COLUMN_H

#include "runtime/data/transforms/Image.h"
#include "runtime/data/transforms/Random.h"
#include "runtime/plan/DType.h"
#include "support/Status.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

/// The array that a sample of any size is written to. The sample is at its beginning in every axis; what does not fit
/// is cut, and the rest is padding.
struct Frame {
  std::span<const uint64_t> extents;  ///< one for each axis of a sample
  std::span<const std::byte> padding; ///< one element
};

/// Writes a dense sample of these extents to the frame, in place if they differ in the first axis alone.
void writeToFrame(const std::byte *sample, std::span<const uint64_t> extents, const Frame &frame,
                  std::byte *destination);

/// The extents of every sample of a column whose samples differ in size.
class SampleSizes {
public:
  SampleSizes(uint64_t samples, size_t rank) : rank(rank), values(samples * rank) {}
  /// One extent for each axis of a sample; all are 0 if the size cannot be read, because the sample is damaged.
  std::span<const uint32_t> of(uint64_t index) const { return std::span(values).subspan(index * rank, rank); }
  std::span<uint32_t> of(uint64_t index) { return std::span(values).subspan(index * rank, rank); }
  uint64_t hostBytes() const { return values.size() * sizeof(uint32_t); }

private:
  size_t rank;
  std::vector<uint32_t> values;
};

class Column {
public:
  Column(std::string name, plan::TensorType type) : columnName(std::move(name)), tensorType(std::move(type)) {}
  virtual ~Column() = default;

  const std::string &name() const { return columnName; }
  /// Element type and shape, the sample axis first. A column of rank 0 can only be a constant.
  const plan::TensorType &type() const { return tensorType; }
  uint64_t samples() const { return tensorType.dims_size() == 0 ? 0 : static_cast<uint64_t>(tensorType.dims(0)); }
  /// Bytes of one sample.
  uint64_t sampleBytes() const;

  /// True for numbers that were read from text: they have no element type of their own and convert to any that can
  /// represent them.
  virtual bool isText() const { return false; }

  /// Error: why no sample can be read as numbers, for example a table's column of texts.
  virtual Status usable() const { return Status(); }
  /// True if samples are texts, which data.categories converts to numbers; the column then has no bytes.
  virtual bool holdsTexts() const { return false; }
  /// Only where holdsTexts(); lives as long as the column.
  virtual std::string_view textOf(uint64_t index) const { return (void)index, std::string_view(); }

  /// True if samples differ in length, which is the extent of axis 1. The type has the longest one's, and read() writes
  /// zeros after a shorter one (Ragged.h).
  virtual bool isRagged() const { return false; }
  /// True if a ragged column stores rows after the end of a sample, too, and read() gives them: data.lengths.
  virtual bool storesPadding() const { return false; }
  /// Rows of sample `index`.
  virtual uint64_t lengthOf(uint64_t index) const {
    return (void)index, tensorType.dims_size() < 2 ? 1 : static_cast<uint64_t>(tensorType.dims(1));
  }
  /// Writes the first `count` rows of sample `index`, which has as many.
  virtual Status readRows(uint64_t index, uint64_t count, std::byte *destination) const;

  /// True if samples may differ in every axis: images of several sizes. The type has the first one's extents, and
  /// read() refuses others; drawTo() reads a sample of any size.
  virtual bool isSized() const { return false; }
  /// Writes the extents of sample `index` as drawTo() reads it, one for each axis of the type after the first. They do
  /// not depend on random numbers, and no pixel is decoded. Only where isSized(). Error: the sample has no readable
  /// header.
  virtual Status extentsOf(uint64_t index, std::span<uint32_t> extents) const;
  /// As draw(), to a frame of any extents. Only where isSized().
  virtual Status drawTo(uint64_t index, const Draw &draw, const Frame &frame, std::byte *destination) const;
  /// The extents of all samples, which all processors read in the first call. Only where isSized().
  const SampleSizes &sizes() const;
  /// Memory of sizes(); 0 before its first call.
  uint64_t sizesBytes() const { return allSizes ? allSizes->hostBytes() : 0; }

  /// True if the file has no value for some element of some sample: an empty field of a table.
  virtual bool mayLack() const { return false; }
  /// True if sample `index` lacks a value; then read() of it is an error.
  virtual bool lacks(uint64_t index) const { return (void)index, false; }
  /// As read(), but elements without a value are set to 0, and `missing` to their numbers.
  virtual Status readPresent(uint64_t index, std::byte *destination, std::vector<uint64_t> &missing) const {
    missing.clear();
    return read(index, destination);
  }

  /// Writes sample `index` (< samples()) to `destination`. Error: the sample cannot be read, e.g. a broken image.
  virtual Status read(uint64_t index, std::byte *destination) const = 0;

  /// The same for columns with random transforms, whose random numbers depend on `draw` and `index` alone.
  virtual Status draw(uint64_t index, const Draw &draw, std::byte *destination) const {
    return (void)draw, read(index, destination);
  }

  /// True if samples can be given to transforms of images: the column is f32 or u8.
  bool holdsImages() const { return tensorType.dtype() == plan::F32 || tensorType.dtype() == plan::U8; }
  /// Of a sample as readImage gives it, or of the first one where sizes differ. Only where holdsImages().
  virtual ImageShape imageShape() const;
  /// The same with the extents of one sample, as extentsOf() gives them.
  ImageShape imageShapeWith(std::span<const uint32_t> extents) const;
  /// The sample before any transform; stored bytes stay bytes. Only where holdsImages(). Error: as read().
  virtual Status readImage(uint64_t index, Image &image) const;

  /// True if reading a part of an image is less work than reading all of it.
  virtual bool readsParts() const { return false; }
  /// Returns the part to read of an image of height × width pixels. Error: the image has no such part.
  using PartOf = std::function<Expected<Box>(uint32_t height, uint32_t width)>;
  /// As readImage: that part of it. Only where readsParts().
  virtual Status readPart(uint64_t index, const PartOf &partOf, Image &image) const {
    return (void)partOf, readImage(index, image);
  }

  /// The file of sample `index`, if it has its own; else empty.
  virtual std::string place(uint64_t index) const { return (void)index, ""; }

  /// A hash of the compressed bytes of all images, which it reads; nullopt if the column holds none. Error: an image
  /// cannot be read.
  virtual Expected<std::optional<uint64_t>> contentHash() const { return std::optional<uint64_t>(); }

  /// All samples if they are contiguous in memory, else empty.
  virtual std::span<const std::byte> contiguous() const { return {}; }

  /// Bytes that the column keeps in memory (mapped files not counted).
  virtual uint64_t hostBytes() const { return 0; }

  /// True if reading a sample is work (decoding, transforms), not a copy.
  virtual bool isComputed() const { return false; }

private:
  std::string columnName;
  plan::TensorType tensorType;
  mutable std::once_flag sized;
  mutable std::unique_ptr<SampleSizes> allSizes; ///< null before the first call of sizes()
};

/// A column in memory or in a mapped file, kept alive by `owner`.
class MemoryColumn : public Column {
public:
  MemoryColumn(std::string name, plan::TensorType type, std::span<const std::byte> bytes,
               std::shared_ptr<const void> owner, bool text = false, bool owned = false)
      : Column(std::move(name), std::move(type)), bytes(bytes), owner(std::move(owner)), text(text), owned(owned) {}

  bool isText() const override { return text; }
  Status read(uint64_t index, std::byte *destination) const override;
  std::span<const std::byte> contiguous() const override { return bytes; }
  uint64_t hostBytes() const override { return owned ? bytes.size() : 0; }

private:
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  bool text, owned;
};

/// A column of the caller's array: row-major, without gaps, the sample axis first. `owner` keeps the array alive, and
/// nothing may change it meanwhile. Error: no number type, or another number of bytes than the type takes.
Expected<std::unique_ptr<Column>> memoryColumn(std::string name, plan::TensorType type,
                                               std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

/// A memory column that owns `values`.
template <typename T>
std::unique_ptr<Column> ownedColumn(std::string name, plan::DType dtype, std::vector<int64_t> dims,
                                    std::vector<T> values, bool text = false) {
  plan::TensorType type;
  type.set_dtype(dtype);
  for (int64_t dim : dims)
    type.add_dims(dim);
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return std::make_unique<MemoryColumn>(std::move(name), std::move(type), std::as_bytes(std::span<const T>(*owner)),
                                        owner, text, true);
}

/// Some samples of another column: [begin, end); `count` samples spread evenly over all; or, with `count` samples
/// spread evenly over all held back, either these or the rest.
class SliceColumn : public Column {
public:
  enum class Take { Range, Spread, HeldBack, Rest };
  SliceColumn(std::unique_ptr<Column> base, uint64_t begin, uint64_t end);
  SliceColumn(std::unique_ptr<Column> base, uint64_t count, Take take = Take::Spread);
  bool isText() const override { return base->isText(); }
  Status usable() const override { return base->usable(); }
  bool holdsTexts() const override { return base->holdsTexts(); }
  std::string_view textOf(uint64_t index) const override { return base->textOf(of(index)); }
  bool isRagged() const override { return base->isRagged(); }
  bool storesPadding() const override { return base->storesPadding(); }
  uint64_t lengthOf(uint64_t index) const override { return base->lengthOf(of(index)); }
  Status readRows(uint64_t index, uint64_t count, std::byte *destination) const override {
    return base->readRows(of(index), count, destination);
  }
  bool isSized() const override { return base->isSized(); }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    return base->extentsOf(of(index), extents);
  }
  Status drawTo(uint64_t index, const Draw &draw, const Frame &frame, std::byte *destination) const override {
    return base->drawTo(of(index), draw, frame, destination);
  }
  bool mayLack() const override { return base->mayLack(); }
  bool lacks(uint64_t index) const override { return base->lacks(of(index)); }
  Status readPresent(uint64_t index, std::byte *destination, std::vector<uint64_t> &missing) const override {
    return base->readPresent(of(index), destination, missing);
  }
  Status read(uint64_t index, std::byte *destination) const override { return base->read(of(index), destination); }
  Status draw(uint64_t index, const Draw &draw, std::byte *destination) const override {
    return base->draw(of(index), draw, destination);
  }
  bool isComputed() const override { return base->isComputed(); }
  ImageShape imageShape() const override { return base->imageShape(); }
  Status readImage(uint64_t index, Image &image) const override { return base->readImage(of(index), image); }
  bool readsParts() const override { return base->readsParts(); }
  Status readPart(uint64_t index, const PartOf &partOf, Image &image) const override {
    return base->readPart(of(index), partOf, image);
  }
  std::string place(uint64_t index) const override { return base->place(of(index)); }
  Expected<std::optional<uint64_t>> contentHash() const override;
  std::span<const std::byte> contiguous() const override;
  uint64_t hostBytes() const override { return base->hostBytes(); }

private:
  uint64_t of(uint64_t index) const;
  /// Sample `index` of the `count` that are held back: the middle of its share.
  uint64_t heldBack(uint64_t index) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(2 * index + 1) * base->samples() / (2 * count));
  }

  std::unique_ptr<Column> base;
  uint64_t begin = 0, count = 0;
  Take take = Take::Range;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_COLUMN_H
