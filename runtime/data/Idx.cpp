//===- Idx.cpp - IDX (MNIST) and CIFAR's binary records ------------------===//
//
// IDX: two zero bytes, element type, rank, big-endian sizes, elements (yann.lecun.com/exdb/mnist); gzip is undone on
// the way. CIFAR: records of a label (CIFAR-100: coarse, fine) and 3·32·32 bytes, plane by plane
// (cs.toronto.edu/~kriz/cifar.html). Both give `image` f32 NCHW in [0, 1] and `label` i64.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/state/MappedFile.h"

#include <filesystem>
#include <zlib.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Bytes as they are stored; a sample becomes f32 in [0, 1] when it is read.
class ByteImageColumn : public Column {
public:
  ByteImageColumn(std::string name, plan::TensorType type, std::shared_ptr<const std::string> content, uint64_t start,
                  uint64_t stride, uint64_t offset)
      : Column(std::move(name), std::move(type)), content(std::move(content)), start(start), stride(stride),
        offset(offset) {}

  plan::Status read(uint64_t index, std::byte *destination) const override {
    const auto *source = reinterpret_cast<const unsigned char *>(content->data()) + start + index * stride + offset;
    auto *values = reinterpret_cast<float *>(destination);
    for (uint64_t i = 0, count = sampleBytes() / 4; i < count; ++i)
      values[i] = static_cast<float>(source[i]) / 255.0f;
    return plan::Status();
  }
  uint64_t hostBytes() const override { return content->size(); }

private:
  std::shared_ptr<const std::string> content;
  uint64_t start, stride, offset;
};

/// Reads a file, gzip undone where it is gzip.
plan::Expected<std::string> inflateFile(const std::string &path) {
  if (!std::filesystem::exists(path))
    return plan::error("{}: no such file", path);
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file)
    return plan::error("{}: cannot open", path);
  std::string content;
  char block[65536];
  int count;
  while ((count = gzread(file.get(), block, sizeof(block))) > 0)
    content.append(block, static_cast<size_t>(count));
  int code = 0;
  const char *message = gzerror(file.get(), &code);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
    return plan::error("{}: damaged or truncated: {}", path, message);
  return content;
}

struct IdxHeader {
  std::vector<int64_t> dims;
  uint64_t dataStart = 0;
};

plan::Expected<IdxHeader> parseIdx(const std::string &path, const std::string &content) {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(content[at]); };
  if (content.size() < 4 || byte(0) != 0 || byte(1) != 0 || byte(3) == 0 || byte(3) > 4)
    return plan::error("{}: not an IDX file: its first bytes are no IDX magic", path);
  if (byte(2) != 8)
    return plan::error("{}: IDX element type 0x{:02x} is not supported, only unsigned bytes (0x08)", path, byte(2));
  IdxHeader header;
  header.dataStart = 4 + 4ull * byte(3);
  if (content.size() < header.dataStart)
    return plan::error("{}: truncated in the header", path);
  uint64_t expected = 1;
  for (size_t axis = 0; axis < byte(3); ++axis) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i)
      size = size << 8 | byte(4 + 4 * axis + i);
    header.dims.push_back(size);
    if (size != 0 && expected > (1ull << 62) / size)
      return plan::error("{}: damaged: its sizes overflow", path);
    expected *= size;
  }
  if (content.size() - header.dataStart != expected)
    return plan::error("{}: {}: its header says {} bytes of data, the file holds {}", path,
                       content.size() - header.dataStart < expected ? "truncated" : "damaged", expected,
                       content.size() - header.dataStart);
  return header;
}

plan::TensorType imageType(int64_t samples, int64_t channels, int64_t height, int64_t width) {
  plan::TensorType type;
  type.set_dtype(plan::F32);
  for (int64_t dim : {samples, channels, height, width})
    type.add_dims(dim);
  return type;
}
} // namespace

plan::Expected<Dataset> formats::openIdx(const IdxFiles &files) {
  auto images = inflateFile(files.images);
  if (!images)
    return images.status();
  auto imageHeader = parseIdx(files.images, *images);
  if (!imageHeader)
    return imageHeader.status();
  if (imageHeader->dims.size() != 3 && imageHeader->dims.size() != 4)
    return plan::error("{}: images need rank 3 or 4, this file has rank {}", files.images, imageHeader->dims.size());
  auto labels = inflateFile(files.labels);
  if (!labels)
    return labels.status();
  auto labelHeader = parseIdx(files.labels, *labels);
  if (!labelHeader)
    return labelHeader.status();
  if (labelHeader->dims.size() != 1 || labelHeader->dims[0] != imageHeader->dims[0])
    return plan::error("{}: {} labels for the {} images of {}", files.labels, labelHeader->dims[0],
                       imageHeader->dims[0], files.images);
  Dataset dataset{.path = files.images, .format = "IDX"};
  std::vector<int64_t> dims = imageHeader->dims;
  if (dims.size() == 3)
    dims.insert(dims.begin() + 1, 1);
  plan::TensorType type = imageType(dims[0], dims[1], dims[2], dims[3]);
  uint64_t pixels = static_cast<uint64_t>(dims[1] * dims[2] * dims[3]);
  dataset.columns.push_back(std::make_unique<ByteImageColumn>(
      "image", type, std::make_shared<const std::string>(images.take()), imageHeader->dataStart, pixels, 0));
  std::vector<int64_t> values;
  for (size_t i = labelHeader->dataStart; i < labels->size(); ++i)
    values.push_back(static_cast<unsigned char>((*labels)[i]));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {dims[0]}, std::move(values)));
  return dataset;
}

plan::Expected<Dataset> formats::openCifar(const std::vector<std::string> &files, bool hundred) {
  constexpr uint64_t kPixels = 3 * 32 * 32;
  uint64_t record = kPixels + (hundred ? 2 : 1);
  std::string content;
  for (const std::string &path : files) {
    auto part = readFile(path);
    if (!part)
      return part.status();
    if (part->empty() || part->size() % record != 0)
      return plan::error("{}: truncated, or not {}: {} bytes are no multiple of its records of {}", path,
                         hundred ? "CIFAR-100" : "CIFAR-10", part->size(), record);
    content += *part;
  }
  int64_t samples = static_cast<int64_t>(content.size() / record);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < samples; ++i)
    labels.push_back(static_cast<unsigned char>(content[static_cast<uint64_t>(i) * record + (hundred ? 1 : 0)]));
  Dataset dataset{.path = files.front(), .format = "CIFAR"};
  dataset.columns.push_back(std::make_unique<ByteImageColumn>("image", imageType(samples, 3, 32, 32),
                                                              std::make_shared<const std::string>(std::move(content)),
                                                              0, record, record - kPixels));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {samples}, std::move(labels)));
  return dataset;
}
