//===- Images.cpp - class folders of JPEG and PNG, plain or in a tar -----===//
//
// Every folder is a class, labels follow the sorted folder names, samples the sorted paths. Images stay compressed (on
// the disk, or in memory for a tar) and are decoded when a batch needs them: RGB, CHW, f32 in [0, 1], or bytes for
// transforms. The column's type has the size of the first one whose header can be read, and without transforms all must
// have it; opening a data set reads headers alone.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Archive.h"
#include "runtime/data/Formats.h"
#include "runtime/data/ImageDecode.h"
#include "runtime/data/Limits.h"

#include <algorithm>
#include <filesystem>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Where the compressed bytes of a sample come from.
struct ImageSource {
  std::string name;   ///< for messages: file, or tar and member
  std::string bytes;  ///< of a tar's member; empty for a file, which is read when needed
  std::string folder; ///< class
};

/// Calls `use` with the compressed bytes of an image. A file is mapped for as long as the call lasts.
template <typename Use> auto withBytes(const ImageSource &source, Use use) -> decltype(use(std::string_view())) {
  if (!source.bytes.empty())
    return use(source.bytes);
  auto file = MappedFile::open(source.name);
  if (!file)
    return file.status();
  if ((*file)->bytes().size() > limits::kMostImageFileBytes)
    return error("{}: {}; a compressed image may have {} at most", source.name,
                       bytesText((*file)->bytes().size()), bytesText(limits::kMostImageFileBytes));
  return use((*file)->text());
}

Expected<ImageSize> sizeOf(const ImageSource &source) {
  return withBytes(source, [&](std::string_view bytes) { return imageSize(source.name, bytes); });
}

class ImageColumn : public Column {
public:
  ImageColumn(plan::TensorType type, std::vector<ImageSource> sources)
      : Column("image", std::move(type)), sources(std::move(sources)) {}

  Status read(uint64_t index, std::byte *destination) const override {
    thread_local Image image;
    if (Status status = decode(index, image, /*anySize=*/false); !status.ok())
      return status;
    auto *values = reinterpret_cast<float *>(destination);
    for (uint64_t i = 0, count = image.elements(); i < count; ++i)
      values[i] = static_cast<float>(image.bytes[i]) / 255.0f;
    return Status();
  }
  ImageShape imageShape() const override {
    ImageShape shape = Column::imageShape();
    shape.floats = false;
    return shape;
  }
  Status readImage(uint64_t index, Image &image) const override { return decode(index, image, /*anySize=*/true); }

  std::string place(uint64_t index) const override { return sources[index].name; }
  bool isComputed() const override { return true; }

  uint64_t hostBytes() const override {
    uint64_t bytes = sources.size() * sizeof(ImageSource);
    for (const ImageSource &source : sources)
      bytes += source.bytes.size();
    return bytes;
  }

private:
  /// A size that is none of the column's is refused before anything is decoded.
  Status decode(uint64_t index, Image &image, bool anySize) const {
    const ImageSource &source = sources[index];
    return withBytes(source, [&](std::string_view bytes) {
      auto size = imageSize(source.name, bytes);
      if (!size)
        return size.status();
      if (!anySize && (size->height != type().dims(2) || size->width != type().dims(3)))
        return error("{}: the image has {}x{} pixels, the first one of the set {}x{}; bring all to one size, with "
                     "[[data.transform]] kind = \"resize\" or a crop",
                     source.name, size->width, size->height, type().dims(3), type().dims(2));
      thread_local std::vector<unsigned char> rgb;
      image.reshape(3, size->height, size->width, false);
      rgb.resize(image.elements());
      if (Status status = decodeImage(source.name, bytes, *size, rgb); !status.ok())
        return status;
      const uint64_t plane = image.plane();
      uint8_t *red = image.bytes.data(), *green = red + plane, *blue = green + plane;
      for (uint64_t i = 0; i < plane; ++i) {
        red[i] = rgb[3 * i];
        green[i] = rgb[3 * i + 1];
        blue[i] = rgb[3 * i + 2];
      }
      return Status();
    });
  }

  std::vector<ImageSource> sources;
};

bool isImageName(const std::string &name) {
  std::string extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

Expected<Dataset> makeDataset(const std::string &path, const std::string &format,
                                    std::vector<ImageSource> sources, limits::MemoryAllowance &memory) {
  if (sources.empty())
    return error("{}: no class folder in it holds a .jpg, .jpeg or .png file", path);
  std::sort(sources.begin(), sources.end(), [](const ImageSource &a, const ImageSource &b) { return a.name < b.name; });
  Dataset dataset{.path = path, .format = format};
  std::set<std::string> classes;
  for (const ImageSource &source : sources)
    classes.insert(source.folder);
  dataset.classes.assign(classes.begin(), classes.end());
  std::vector<int64_t> labels;
  for (const ImageSource &source : sources)
    labels.push_back(std::distance(classes.begin(), classes.find(source.folder)));
  // A damaged image is an error of its sample. Where the first headers are damaged, a later one gives the size.
  constexpr size_t kMostTried = 1000;
  auto first = sizeOf(sources.front());
  for (size_t i = 1; !first && i < std::min(sources.size(), kMostTried); ++i)
    if (auto other = sizeOf(sources[i]))
      first = other;
  if (!first)
    return first.status();
  // Decoding one takes its bytes, and the sample as f32.
  if (Status status = memory.take(path, (3 + 12) * uint64_t(first->width) * first->height); !status.ok())
    return status;
  plan::TensorType type;
  type.set_dtype(plan::F32);
  auto samples = static_cast<int64_t>(sources.size());
  for (int64_t dim : {samples, int64_t(3), int64_t(first->height), int64_t(first->width)})
    type.add_dims(dim);
  dataset.columns.push_back(std::make_unique<ImageColumn>(type, std::move(sources)));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {samples}, std::move(labels)));
  return dataset;
}
} // namespace

Expected<Dataset> formats::openImageFolder(const std::string &folder, const DatasetOptions &options) {
  namespace fs = std::filesystem;
  std::vector<ImageSource> sources;
  std::error_code code, ignored; // a file whose kind cannot be told (a loop of links) is no image
  for (fs::directory_iterator classes(folder, code), end; !code && classes != end; classes.increment(code)) {
    if (!classes->is_directory(ignored))
      continue;
    std::string name = classes->path().filename().string();
    for (fs::recursive_directory_iterator files(classes->path(), code), last; !code && files != last;
         files.increment(code))
      if (isImageName(files->path().string()) && files->is_regular_file(ignored))
        sources.push_back({files->path().string(), "", name});
  }
  if (code)
    return error("{}: cannot read the folder: {}", folder, code.message());
  limits::MemoryAllowance memory(options.memoryBytes);
  return makeDataset(folder, "image folder", std::move(sources), memory);
}

Expected<Dataset> formats::openImageTar(std::shared_ptr<const MappedFile> file, const DatasetOptions &options) {
  const std::string &path = file->path();
  uint64_t fileBytes = file->bytes().size();
  auto archive = Archive::open(file, Archive::Kind::Tar);
  if (!archive)
    return archive.status();
  limits::MemoryAllowance memory(options.memoryBytes);
  std::vector<ImageSource> sources;
  for (;;) {
    auto more = archive->next();
    if (!more)
      return more.status();
    if (!*more)
      return makeDataset(path, "image tar", std::move(sources), memory);
    std::filesystem::path member = std::filesystem::path(archive->member()).lexically_normal();
    if (!isImageName(member.string()))
      continue;
    ImageSource source{fmt::format("{}: {}", path, member.string()), "", member.parent_path().filename().string()};
    if (source.folder.empty())
      return error("{}: an image outside a class folder", source.name);
    uint64_t size = archive->claimedBytes().value_or(0);
    uint64_t most = std::min(limits::kMostImageFileBytes, limits::mostInflatedBytes(fileBytes));
    if (size > most)
      return error(
          "{}: its header claims {} bytes; the archive has {}, and a compressed image may have {} at most", source.name,
          size, fileBytes, bytesText(limits::kMostImageFileBytes));
    if (Status status = memory.take(source.name, size + sizeof(ImageSource)); !status.ok())
      return status;
    source.bytes.resize(size);
    auto count = archive->read(reinterpret_cast<std::byte *>(source.bytes.data()), size);
    if (!count)
      return count.status();
    if (*count != size || size == 0)
      return error("{}: damaged or truncated", source.name);
    sources.push_back(std::move(source));
  }
}
