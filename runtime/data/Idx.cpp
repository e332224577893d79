//===- Idx.cpp - IDX (MNIST) and CIFAR's binary records ------------------===//
//
// IDX: two zero bytes, element type, rank, big-endian sizes, elements (yann.lecun.com/exdb/mnist), perhaps compressed
// by gzip. CIFAR: records of a label (CIFAR-100: coarse, fine) and 3·32·32 bytes, plane by plane
// (cs.toronto.edu/~kriz/cifar.html). Both give `image` f32 NCHW in [0, 1] and `label` i64.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/data/Limits.h"

#include <algorithm>
#include <cstring>
#include <zlib.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Keeps the stored bytes; a sample is converted to f32 in [0, 1] when it is read. The data may consist of several
/// parts.
class ByteImageColumn : public Column {
public:
  struct Part {
    std::span<const std::byte> bytes; ///< of whole records
    std::shared_ptr<const void> owner;
  };
  /// A record has `stride` bytes, its pixels begin at `offset`.
  ByteImageColumn(std::string name, plan::TensorType type, std::vector<Part> parts, uint64_t stride, uint64_t offset,
                  uint64_t hostBytes)
      : Column(std::move(name), std::move(type)), parts(std::move(parts)), stride(stride), offset(offset),
        host(hostBytes) {}

  Status read(uint64_t index, std::byte *destination) const override {
    const unsigned char *source = pixels(index);
    auto *values = reinterpret_cast<float *>(destination);
    for (uint64_t i = 0, count = sampleBytes() / 4; i < count; ++i)
      values[i] = static_cast<float>(source[i]) / 255.0f;
    return Status();
  }
  ImageShape imageShape() const override {
    ImageShape shape = Column::imageShape();
    shape.floats = false;
    return shape;
  }
  Status readImage(uint64_t index, Image &image) const override {
    const ImageShape shape = imageShape();
    image.reshape(shape.channels, shape.height, shape.width, false);
    std::memcpy(image.bytes.data(), pixels(index), image.bytes.size());
    return Status();
  }
  uint64_t hostBytes() const override { return host; }

private:
  const unsigned char *pixels(uint64_t index) const {
    const Part *part = parts.data();
    for (; index >= part->bytes.size() / stride; ++part)
      index -= part->bytes.size() / stride;
    return reinterpret_cast<const unsigned char *>(part->bytes.data()) + index * stride + offset;
  }

  std::vector<Part> parts;
  uint64_t stride, offset, host;
};

/// Reads the bytes of a file in order, inflated if it is gzip (possibly of several members).
class PlainOrGzip {
public:
  explicit PlainOrGzip(formats::File source) : file(std::move(source)) {
    compressed = file->text().starts_with("\x1f\x8b");
    if (!compressed)
      return;
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(file->text().data()));
    remaining = file->bytes().size();
    ready = inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK; // only gzip
  }
  ~PlainOrGzip() {
    if (ready)
      inflateEnd(&stream);
  }
  PlainOrGzip(const PlainOrGzip &) = delete;
  PlainOrGzip &operator=(const PlainOrGzip &) = delete;

  bool isCompressed() const { return compressed; }
  uint64_t fileBytes() const { return file->bytes().size(); }
  const formats::File &source() const { return file; }

  /// Reads up to `size` bytes; fewer only at the end.
  Expected<uint64_t> read(char *destination, uint64_t size) {
    if (!compressed) {
      uint64_t count = std::min<uint64_t>(size, file->text().size() - at);
      std::memcpy(destination, file->text().data() + at, count);
      at += count;
      return count;
    }
    uint64_t done = 0;
    while (done < size && !ended) {
      constexpr uint64_t kPiece = uint64_t(1) << 30;
      auto room = static_cast<uInt>(std::min(size - done, kPiece)),
           given = static_cast<uInt>(std::min(remaining, kPiece));
      stream.next_out = reinterpret_cast<Bytef *>(destination + done);
      stream.avail_out = room;
      stream.avail_in = given;
      int code = ready ? inflate(&stream, Z_NO_FLUSH) : Z_MEM_ERROR;
      done += room - stream.avail_out;
      remaining -= given - stream.avail_in;
      const auto *next = stream.next_in;
      if (code == Z_STREAM_END)
        ended = remaining < 2 || next[0] != 0x1f || next[1] != 0x8b || inflateReset(&stream) != Z_OK;
      else if (code != Z_OK)
        return error("{}: damaged or truncated: {}", file->path(), stream.msg ? stream.msg : "it ends too early");
    }
    return done;
  }

private:
  formats::File file;
  z_stream stream = {};
  uint64_t at = 0, remaining = 0;
  bool compressed = false, ready = false, ended = false;
};

struct IdxContent {
  std::vector<int64_t> dims;
  ByteImageColumn::Part data;
  uint64_t hostBytes = 0;
};

/// Reads the header, checks its claims, and only then the data. Uncompressed data stays in the file.
Expected<IdxContent> readIdx(formats::File source, limits::MemoryAllowance &memory) {
  PlainOrGzip file(std::move(source));
  const std::string &path = file.source()->path();
  unsigned char head[4 + 4 * 4] = {};
  auto count = file.read(reinterpret_cast<char *>(head), 4);
  if (!count)
    return count.status();
  if (*count < 4 || head[0] != 0 || head[1] != 0 || head[3] == 0 || head[3] > 4)
    return error("{}: not an IDX file: its first bytes are no IDX magic", path);
  if (head[2] != 8)
    return error("{}: IDX element type 0x{:02x} is not supported, only unsigned bytes (0x08)", path, head[2]);
  count = file.read(reinterpret_cast<char *>(head) + 4, 4ull * head[3]);
  if (!count)
    return count.status();
  if (*count < 4ull * head[3])
    return error("{}: truncated in the header", path);
  IdxContent result;
  uint64_t expected = 1, extent = 1; // `extent` skips zero sizes, because products of the other sizes must not wrap
  for (size_t axis = 0; axis < head[3]; ++axis) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i)
      size = size << 8 | head[4 + 4 * axis + i];
    result.dims.push_back(size);
    if (size != 0 && extent > (1ull << 60) / size)
      return error("{}: damaged: its sizes overflow", path);
    extent *= std::max<uint64_t>(size, 1);
    expected *= size;
  }
  uint64_t start = 4 + 4ull * head[3];
  auto differs = [&](const std::string &holds, bool fewer) {
    return error("{}: {}: its header says {} bytes of data, the file holds {}", path,
                       fewer ? "truncated" : "damaged", expected, holds);
  };
  if (!file.isCompressed()) {
    std::span<const std::byte> data = file.source()->bytes().subspan(start);
    if (data.size() != expected)
      return differs(std::to_string(data.size()), data.size() < expected);
    result.data = {data, file.source()};
    return result;
  }
  if (uint64_t most = limits::mostInflatedBytes(file.fileBytes()); expected > most)
    return error("{}: its header says {} bytes of data; the file has {}, which inflate to {} at most", path,
                       expected, file.fileBytes(), most);
  if (Status status = memory.take(path, expected); !status.ok())
    return status;
  auto content = std::make_shared<std::vector<char>>(expected);
  count = file.read(content->data(), expected);
  if (!count)
    return count.status();
  if (*count != expected)
    return differs(std::to_string(*count), true);
  char more;
  count = file.read(&more, 1); // also checks gzip's checksum
  if (!count)
    return count.status();
  if (*count != 0)
    return differs("more", false);
  result.data = {std::as_bytes(std::span<const char>(*content)), content};
  result.hostBytes = expected;
  return result;
}

plan::TensorType imageType(int64_t samples, int64_t channels, int64_t height, int64_t width) {
  plan::TensorType type;
  type.set_dtype(plan::F32);
  for (int64_t dim : {samples, channels, height, width})
    type.add_dims(dim);
  return type;
}
} // namespace

Expected<Dataset> formats::openIdx(File imageFile, File labelFile, const DatasetOptions &options) {
  std::string imagePath = imageFile->path(), labelPath = labelFile->path();
  limits::MemoryAllowance memory(options.memoryBytes);
  auto images = readIdx(std::move(imageFile), memory);
  if (!images)
    return images.status();
  std::vector<int64_t> dims = images->dims;
  if (dims.size() != 3 && dims.size() != 4)
    return error("{}: images need rank 3 or 4, this file has rank {}", imagePath, dims.size());
  auto labels = readIdx(std::move(labelFile), memory);
  if (!labels)
    return labels.status();
  if (labels->dims.size() != 1 || labels->dims[0] != dims[0])
    return error("{}: {} labels for the {} images of {}", labelPath, labels->dims[0], dims[0], imagePath);
  if (dims.size() == 3)
    dims.insert(dims.begin() + 1, 1);
  uint64_t pixels = static_cast<uint64_t>(dims[1] * dims[2] * dims[3]);
  if (pixels == 0)
    return error("{}: damaged: its images are {}x{}x{}", imagePath, dims[1], dims[2], dims[3]);
  if (Status status = memory.take(labelPath, 8 * labels->data.bytes.size()); !status.ok())
    return status;
  Dataset dataset{.path = imagePath, .format = "IDX"};
  std::vector<int64_t> values;
  values.reserve(labels->data.bytes.size());
  for (std::byte label : labels->data.bytes)
    values.push_back(std::to_integer<int64_t>(label));
  dataset.columns.push_back(std::make_unique<ByteImageColumn>("image", imageType(dims[0], dims[1], dims[2], dims[3]),
                                                              std::vector{images->data}, pixels, 0, images->hostBytes));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {dims[0]}, std::move(values)));
  return dataset;
}

Expected<Dataset> formats::openCifar(const std::vector<File> &files, bool hundred) {
  constexpr uint64_t kPixels = 3 * 32 * 32;
  uint64_t record = kPixels + (hundred ? 2 : 1);
  std::vector<ByteImageColumn::Part> parts;
  std::vector<int64_t> labels;
  for (const File &file : files) {
    std::span<const std::byte> bytes = file->bytes();
    if (bytes.empty() || bytes.size() % record != 0)
      return error("{}: truncated, or not {}: {} bytes are no multiple of its records of {}", file->path(),
                         hundred ? "CIFAR-100" : "CIFAR-10", bytes.size(), record);
    for (uint64_t at = hundred ? 1 : 0; at < bytes.size(); at += record)
      labels.push_back(std::to_integer<int64_t>(bytes[at]));
    parts.push_back({bytes, file});
  }
  auto samples = static_cast<int64_t>(labels.size());
  Dataset dataset{.path = files.front()->path(), .format = "CIFAR"};
  dataset.columns.push_back(std::make_unique<ByteImageColumn>("image", imageType(samples, 3, 32, 32), std::move(parts),
                                                              record, record - kPixels, 0));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {samples}, std::move(labels)));
  return dataset;
}
