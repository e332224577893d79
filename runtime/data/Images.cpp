//===- Images.cpp - class folders of JPEG and PNG, plain or in tars ------===//
//
// Every folder is a class; labels follow the sorted folder names, samples the sorted paths. Images without class
// folders (a file, or those directly in a folder) have no labels. NAME.mask.png beside an image is its mask. In a tar
// of WebDataset's layout (github.com/webdataset/webdataset: members KEY.jpg and KEY.cls belong together) order and
// labels are those of the tar. Images stay compressed (on the disk, in the mapped tar, or in memory for a .tar.gz) and
// are decoded when a batch needs them: RGB, CHW, f32 in [0, 1], or bytes for transforms. The column's type has the size
// of the first image whose header can be read; without transforms all must have that size, unless they are padded to
// the shapes of a plan. Opening a data set reads only headers.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Archive.h"
#include "runtime/data/Formats.h"
#include "runtime/data/ImageDecode.h"
#include "runtime/data/Limits.h"
#include "runtime/data/transforms/Transform.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The source of a sample's compressed bytes.
struct ImageSource {
  std::string name;       ///< for messages: file, or tar and member
  std::string_view bytes; ///< of a tar's member; empty for a file, which is read when needed
  std::string folder;     ///< class
  int64_t label = -1;     ///< of WebDataset's layout
  size_t file = 0;        ///< number of the tar
};

/// Owns the memory of images in tars.
struct ImageMemory {
  std::vector<formats::File> files;
  std::deque<std::string> copies; ///< of members of compressed tars; their addresses stay
};

/// Calls `use` with the compressed bytes of an image. A file is mapped only during the call.
template <typename Use> auto withBytes(const ImageSource &source, Use use) -> decltype(use(std::string_view())) {
  if (!source.bytes.empty())
    return use(source.bytes);
  auto file = MappedFile::open(source.name);
  if (!file)
    return file.status();
  if ((*file)->bytes().size() > limits::kMostImageFileBytes)
    return error("{}: {}; a compressed image may have {} at most", source.name, bytesText((*file)->bytes().size()),
                 bytesText(limits::kMostImageFileBytes));
  return use((*file)->text());
}

Expected<ImageSize> sizeOf(const ImageSource &source) {
  return withBytes(source, [&](std::string_view bytes) { return imageSize(source.name, bytes); });
}

/// The images of a data set, and the memory of those in tars.
struct ImageFiles {
  std::vector<ImageSource> sources;
  ImageMemory memory;
  uint64_t hostBytes() const {
    uint64_t bytes = sources.size() * sizeof(ImageSource);
    for (const std::string &copy : memory.copies)
      bytes += copy.size();
    return bytes;
  }
};
using SharedFiles = std::shared_ptr<const ImageFiles>;

class ImageColumn : public Column {
public:
  ImageColumn(plan::TensorType type, SharedFiles given)
      : Column("image", std::move(type)), files(std::move(given)), sources(files->sources) {}

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
  bool isSized() const override { return true; }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    auto size = sizeOf(sources[index]);
    if (!size)
      return size.status();
    extents[0] = 3;
    extents[1] = size->height;
    extents[2] = size->width;
    return Status();
  }
  Status drawTo(uint64_t index, const Draw &, const Frame &frame, std::byte *destination) const override {
    thread_local Image image;
    if (Status status = decode(index, image, /*anySize=*/true); !status.ok())
      return status;
    toFloat(image, 255);
    const uint64_t extents[] = {image.channels, image.height, image.width};
    writeToFrame(reinterpret_cast<const std::byte *>(image.values.data()), extents, frame, destination);
    return Status();
  }
  Status readImage(uint64_t index, Image &image) const override { return decode(index, image, /*anySize=*/true); }
  bool readsParts() const override { return true; }
  Status readPart(uint64_t index, const PartOf &partOf, Image &image) const override {
    return decode(index, image, /*anySize=*/true, &partOf);
  }

  std::string place(uint64_t index) const override { return sources[index].name; }
  Expected<std::optional<uint64_t>> contentHash() const override {
    std::vector<uint64_t> hashes;
    hashes.reserve(sources.size());
    for (const ImageSource &source : sources) {
      auto hash = withBytes(source, [](std::string_view bytes) {
        return Expected<uint64_t>(plan::hashBytes(bytes.data(), bytes.size()));
      });
      if (!hash)
        return hash.status();
      hashes.push_back(*hash);
    }
    return std::optional(plan::hashBytes(hashes.data(), hashes.size() * sizeof(uint64_t)));
  }
  bool isComputed() const override { return true; }

  uint64_t hostBytes() const override { return files->hostBytes(); }

private:
  /// Decodes an image; one whose size is not the column's is refused before any pixel is decoded.
  Status decode(uint64_t index, Image &image, bool anySize, const PartOf *partOf = nullptr) const {
    const ImageSource &source = sources[index];
    return withBytes(source, [&](std::string_view bytes) {
      auto size = imageSize(source.name, bytes);
      if (!size)
        return size.status();
      if (!anySize && (size->height != type().dims(2) || size->width != type().dims(3)))
        return error("{}: the image has {}x{} pixels, the first one of the set {}x{}; bring all to one size, with "
                     "[[data.transform]] kind = \"resize\" or a crop",
                     source.name, size->width, size->height, type().dims(3), type().dims(2));
      Expected<Box> part = Box{0, 0, size->height, size->width};
      if (partOf)
        part = (*partOf)(size->height, size->width);
      if (!part)
        return part.status();
      image.reshape(3, part->height, part->width, false);
      return decodeImage(source.name, bytes, *size, *part, image.bytes);
    });
  }

  SharedFiles files;
  const std::vector<ImageSource> &sources;
};

/// Masks beside images, each as large as its image: a class number a pixel.
class MaskColumn : public Column {
public:
  MaskColumn(plan::TensorType type, std::vector<ImageSource> masks, SharedFiles images)
      : Column("mask", std::move(type)), masks(std::move(masks)), images(std::move(images)) {}

  bool isSized() const override { return true; }
  Status extentsOf(uint64_t index, std::span<uint32_t> extents) const override {
    const ImageSource &source = masks[index];
    auto size = withBytes(source, [&](std::string_view bytes) { return maskSize(source.name, bytes); });
    if (!size)
      return size.status();
    extents[0] = size->height;
    extents[1] = size->width;
    return Status();
  }
  Status read(uint64_t index, std::byte *destination) const override {
    thread_local Image image;
    if (Status status = decode(index, image); !status.ok())
      return status;
    if (image.channels != type().dims(1) || image.height != type().dims(2))
      return error("{}: the mask has {}x{} pixels, the first one of the set {}x{}; bring all to one size, with `mask = "
                   "\"mask\"` in the transforms of the images",
                   masks[index].name, image.height, image.channels, type().dims(2), type().dims(1));
    std::memcpy(destination, image.bytes.data(), image.elements());
    return Status();
  }
  Status drawTo(uint64_t index, const Draw &, const Frame &frame, std::byte *destination) const override {
    thread_local Image image;
    if (Status status = decode(index, image); !status.ok())
      return status;
    const uint64_t extents[] = {image.channels, image.height};
    writeToFrame(reinterpret_cast<const std::byte *>(image.bytes.data()), extents, frame, destination);
    return Status();
  }
  Status readImage(uint64_t index, Image &image) const override { return decode(index, image); }
  std::string place(uint64_t index) const override { return masks[index].name; }
  bool isComputed() const override { return true; }
  uint64_t hostBytes() const override { return masks.size() * sizeof(ImageSource); }

private:
  /// A matrix is an image of height × width × 1, as Column::imageShape has it.
  Status decode(uint64_t index, Image &image) const {
    const ImageSource &source = masks[index];
    auto whole = sizeOf(images->sources[index]);
    if (!whole)
      return whole.status();
    return withBytes(source, [&](std::string_view bytes) {
      auto size = maskSize(source.name, bytes);
      if (!size)
        return size.status();
      if (*size != *whole)
        return error("{}: the mask has {}x{} pixels, its image {} {}x{}; a mask is as large as its image", source.name,
                     size->width, size->height, images->sources[index].name, whole->width, whole->height);
      image.reshape(size->height, size->width, 1, false);
      return decodeMask(source.name, bytes, *size, image.bytes);
    });
  }

  std::vector<ImageSource> masks; ///< of image i
  SharedFiles images;
};

/// "a/b.mask.png" → "a/b"; nothing for an image.
std::optional<std::string> maskedImage(const std::string &name) {
  constexpr std::string_view kEnding = ".mask.png";
  if (!name.ends_with(kEnding))
    return std::nullopt;
  return name.substr(0, name.size() - kEnding.size());
}

/// Takes the masks out of `sources` and returns those of the images that are left, in their order; none if there are no
/// masks. Error: an image without a mask, or a mask without an image.
Expected<std::vector<ImageSource>> takeMasks(std::vector<ImageSource> &sources) {
  std::map<std::pair<size_t, std::string>, ImageSource> byImage; // by tar and path without extension
  std::erase_if(sources, [&](ImageSource &source) {
    const auto image = maskedImage(source.name);
    if (image)
      byImage.emplace(std::pair(source.file, *image), std::move(source));
    return image.has_value();
  });
  std::vector<ImageSource> masks;
  if (byImage.empty())
    return masks;
  for (const ImageSource &source : sources) {
    const auto found = byImage.find({source.file, source.name.substr(0, source.name.rfind('.'))});
    if (found == byImage.end())
      return error("{}: the image has no mask; other images have one beside them (NAME.mask.png)", source.name);
    masks.push_back(std::move(found->second));
    byImage.erase(found);
  }
  if (!byImage.empty())
    return error("{}: the mask has no image of its own beside it ({}.jpg or .png)", byImage.begin()->second.name,
                 byImage.begin()->first.second);
  return masks;
}

} // namespace

bool formats::isImageName(const std::string &name) {
  std::string extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

namespace {
using formats::isImageName;

Expected<Dataset> makeDataset(const std::string &path, const std::string &format, std::vector<ImageSource> sources,
                              std::optional<std::vector<int64_t>> labels, std::vector<std::string> classes,
                              limits::MemoryAllowance &memory, ImageMemory kept, std::vector<ImageSource> masks) {
  // A damaged image is an error only of its sample. If the first headers are damaged, a later one determines the size.
  constexpr size_t kMostTried = 1000;
  auto first = sizeOf(sources.front());
  for (size_t i = 1; !first && i < std::min(sources.size(), kMostTried); ++i)
    if (auto other = sizeOf(sources[i]))
      first = other;
  if (!first)
    return first.status();
  // Decoding an image takes its bytes plus the sample as f32.
  if (Status status = memory.take(path, (3 + 12) * uint64_t(first->width) * first->height); !status.ok())
    return status;
  Dataset dataset{.path = path, .format = format};
  dataset.classes = std::move(classes);
  plan::TensorType type;
  type.set_dtype(plan::F32);
  auto samples = static_cast<int64_t>(sources.size());
  for (int64_t dim : {samples, int64_t(3), int64_t(first->height), int64_t(first->width)})
    type.add_dims(dim);
  const auto files = std::make_shared<const ImageFiles>(ImageFiles{std::move(sources), std::move(kept)});
  dataset.columns.push_back(std::make_unique<ImageColumn>(type, files));
  if (!masks.empty()) {
    plan::TensorType ofMask;
    ofMask.set_dtype(plan::U8);
    for (int64_t dim : {samples, int64_t(first->height), int64_t(first->width)})
      ofMask.add_dims(dim);
    dataset.columns.push_back(std::make_unique<MaskColumn>(std::move(ofMask), std::move(masks), files));
  }
  if (labels)
    dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {samples}, std::move(*labels)));
  return dataset;
}

/// Labels are the ranks of the sorted folders.
Expected<Dataset> classFolders(const std::string &path, const std::string &format, std::vector<ImageSource> sources,
                               limits::MemoryAllowance &memory, ImageMemory kept) {
  if (sources.empty())
    return error("{}: no class folder in it holds a .jpg, .jpeg or .png file", path);
  std::sort(sources.begin(), sources.end(), [](const ImageSource &a, const ImageSource &b) {
    return std::tie(a.file, a.name) < std::tie(b.file, b.name);
  });
  auto masks = takeMasks(sources);
  if (!masks)
    return masks.status();
  if (!masks->empty() && std::ranges::any_of(sources, [](const ImageSource &source) { return source.folder.empty(); }))
    return makeDataset(path, format, std::move(sources), std::nullopt, {}, memory, std::move(kept), masks.take());
  std::set<std::string> classes;
  for (const ImageSource &source : sources) {
    if (source.folder.empty())
      return error("{}: an image outside a class folder, and without a label beside it (KEY.cls, WebDataset's layout)",
                   source.name);
    classes.insert(source.folder);
  }
  std::vector<int64_t> labels;
  for (const ImageSource &source : sources)
    labels.push_back(std::distance(classes.begin(), classes.find(source.folder)));
  return makeDataset(path, format, std::move(sources), std::move(labels), {classes.begin(), classes.end()}, memory,
                     std::move(kept), masks.take());
}

/// Reads the images and labels of tars, one after the other.
class TarReader {
public:
  explicit TarReader(const DatasetOptions &options) : options(options), memory(options.memoryBytes) {}

  Expected<Dataset> run(const std::string &path, const std::vector<formats::File> &files) {
    for (const formats::File &file : files) {
      const size_t before = sources.size();
      if (options.scanning)
        options.scanning(shards.size(), files.size(), before);
      if (Status status = readTar(file, shards.size()); !status.ok())
        return status;
      shards.push_back(0);
      for (size_t i = before; i < sources.size(); ++i)
        shards.back() += !maskedImage(sources[i].name);
    }
    kept.files = files;
    if (Status status = checkLabels(); !status.ok())
      return status;
    if (!labelled) {
      auto dataset = classFolders(path, "image tar", std::move(sources), memory, std::move(kept));
      return withShards(std::move(dataset), files.size());
    }
    auto masks = takeMasks(sources);
    if (!masks)
      return masks.status();
    std::vector<int64_t> labels;
    for (const ImageSource &source : sources)
      labels.push_back(source.label);
    auto dataset = makeDataset(path, "image tar", std::move(sources), std::move(labels), {}, memory, std::move(kept),
                               masks.take());
    return withShards(std::move(dataset), files.size());
  }

private:
  Expected<Dataset> withShards(Expected<Dataset> dataset, size_t files) {
    if (dataset && files > 1)
      dataset->shards = std::move(shards);
    return dataset;
  }

  /// "a/b.c.jpg" → "a/b": the members of one sample share it.
  static std::string keyOf(const std::filesystem::path &member) {
    std::string name = member.filename().string();
    return (member.parent_path() / name.substr(0, name.find('.'))).string();
  }

  Status readTar(const formats::File &file, size_t number) {
    const std::string &path = file->path();
    auto archive = Archive::open(file, Archive::Kind::Tar);
    if (!archive)
      return archive.status();
    std::map<std::string, int64_t> labels; // by key
    const size_t begin = sources.size();
    std::vector<std::string> keys;
    for (;;) {
      auto more = archive->next();
      if (!more)
        return more.status();
      if (!*more)
        break;
      const std::filesystem::path member = std::filesystem::path(archive->member()).lexically_normal();
      const bool label = member.extension() == ".cls";
      if (!label && !isImageName(member.string()))
        continue;
      const std::string where = fmt::format("{}: {}", path, member.string());
      std::string copy;
      auto bytes = readMember(*archive, where, file->bytes().size(), copy);
      if (!bytes)
        return bytes.status();
      if (label) {
        auto read = labelOf(where, *bytes);
        if (!read)
          return read.status();
        labels[keyOf(member)] = *read;
        continue;
      }
      if (!copy.empty())
        bytes = std::string_view(kept.copies.emplace_back(std::move(copy)));
      sources.push_back({where, *bytes, member.parent_path().filename().string(), -1, number});
      keys.push_back(keyOf(member));
    }
    labelled |= !labels.empty();
    for (size_t i = begin; i < sources.size(); ++i)
      if (auto found = labels.find(keys[i - begin]); found != labels.end())
        sources[i].label = found->second;
    return Status();
  }

  Expected<std::string_view> readMember(Archive &archive, const std::string &where, uint64_t fileBytes,
                                        std::string &copy) {
    const uint64_t size = archive.claimedBytes().value_or(0);
    const uint64_t most = std::min(limits::kMostImageFileBytes, limits::mostInflatedBytes(fileBytes));
    if (size > most)
      return error("{}: its header claims {} bytes; the archive has {}, and a compressed image may have {} at most",
                   where, size, fileBytes, bytesText(limits::kMostImageFileBytes));
    if (Status status = memory.take(where, sizeof(ImageSource) + (archive.isStored() ? 0 : size)); !status.ok())
      return status;
    return archive.readAll(copy);
  }

  static Expected<int64_t> labelOf(const std::string &where, std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
      text.remove_suffix(1);
    int64_t label = -1;
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (problem != std::errc() || end != text.data() + text.size() || label < 0)
      return error("{}: its label is no whole number from 0 on; write KEY.cls with the number of the class", where);
    return label;
  }

  Status checkLabels() const {
    if (!labelled)
      return Status();
    for (const ImageSource &source : sources)
      if (source.label < 0 && !maskedImage(source.name))
        return error("{}: the image has no label; other images have one beside them (KEY.cls, WebDataset's layout)",
                     source.name);
    return sources.empty() ? error("no image beside the labels") : Status();
  }

  const DatasetOptions &options;
  limits::MemoryAllowance memory;
  std::vector<ImageSource> sources;
  std::vector<uint64_t> shards; ///< images of each file
  ImageMemory kept;
  bool labelled = false;
};
} // namespace

Expected<Dataset> formats::openImageFolder(const std::string &folder, const DatasetOptions &options) {
  namespace fs = std::filesystem;
  std::vector<ImageSource> sources;
  std::error_code code, ignored; // a file whose kind cannot be determined (a loop of links) is no image
  for (fs::directory_iterator classes(folder, code), end; !code && classes != end; classes.increment(code)) {
    if (!classes->is_directory(ignored))
      continue;
    std::string name = classes->path().filename().string();
    for (fs::recursive_directory_iterator files(classes->path(), code), last; !code && files != last;
         files.increment(code))
      if (isImageName(files->path().string()) && files->is_regular_file(ignored))
        sources.push_back({files->path().string(), {}, name});
  }
  if (code)
    return error("{}: cannot read the folder: {}", folder, code.message());
  limits::MemoryAllowance memory(options.memoryBytes);
  return classFolders(folder, "image folder", std::move(sources), memory, {});
}

Expected<Dataset> formats::openImages(const std::string &path, const std::vector<std::string> &files,
                                      const DatasetOptions &options) {
  std::vector<ImageSource> sources;
  for (const std::string &file : files)
    sources.push_back({file, {}, {}});
  limits::MemoryAllowance memory(options.memoryBytes);
  auto masks = takeMasks(sources);
  if (!masks)
    return masks.status();
  return makeDataset(path, "images", std::move(sources), std::nullopt, {}, memory, {}, masks.take());
}

Expected<Dataset> formats::openImageTars(const std::string &path, const std::vector<File> &files,
                                         const DatasetOptions &options) {
  return TarReader(options).run(path, files);
}
