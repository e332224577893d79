//===- Images.cpp - class folders of JPEG and PNG, plain or in a tar -----===//
//
// Every folder is a class, labels follow the sorted folder names, samples the sorted paths. Images stay compressed (on
// the disk, or in memory for a tar) and are decoded when a batch needs them: RGB, CHW, f32 in [0, 1]. All have the size
// of the first one.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/Formats.h"
#include "runtime/state/MappedFile.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <jpeglib.h>
#include <png.h>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Decoded pixels, RGB interleaved.
struct Pixels {
  uint32_t width = 0, height = 0;
  std::vector<unsigned char> rgb;
};

struct JpegError {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void onJpegError(j_common_ptr info) {
  auto *error = reinterpret_cast<JpegError *>(info->err);
  error->manager.format_message(info, error->message);
  std::longjmp(error->jump, 1);
}

/// libjpeg warns where data is cut short and fills up with grey: for training data that is an error.
void onJpegMessage(j_common_ptr info, int level) {
  if (level < 0)
    onJpegError(info);
}

/// Fills `pixels`; the message of the library where the bytes are no good JPEG. No object with a destructor lives
/// across the jump: the row buffer is the caller's.
bool decodeJpeg(const std::string &bytes, Pixels &pixels, JpegError &error) {
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&error.manager);
  error.manager.error_exit = onJpegError;
  error.manager.emit_message = onJpegMessage;
  if (setjmp(error.jump)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  pixels.width = info.output_width;
  pixels.height = info.output_height;
  pixels.rgb.resize(3ull * pixels.width * pixels.height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.rgb.data() + 3ull * pixels.width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return true;
}

bool decodePng(const std::string &bytes, Pixels &pixels, std::string &message) {
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  bool ok = png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0;
  if (ok) {
    image.format = PNG_FORMAT_RGB;
    pixels.width = image.width;
    pixels.height = image.height;
    pixels.rgb.resize(PNG_IMAGE_SIZE(image));
    png_color black{0, 0, 0};
    ok = png_image_finish_read(&image, &black, pixels.rgb.data(), 0, nullptr) != 0;
  }
  if (!ok)
    message = image.message;
  png_image_free(&image);
  return ok;
}

plan::Status decode(const std::string &where, const std::string &bytes, Pixels &pixels) {
  if (bytes.size() > 2 && std::memcmp(bytes.data(), "\xff\xd8", 2) == 0) {
    JpegError error;
    return decodeJpeg(bytes, pixels, error) ? plan::Status()
                                            : plan::error("{}: damaged JPEG: {}", where, error.message);
  }
  if (bytes.size() > 8 && std::memcmp(bytes.data(), "\x89PNG", 4) == 0) {
    std::string message;
    return decodePng(bytes, pixels, message) ? plan::Status() : plan::error("{}: damaged PNG: {}", where, message);
  }
  return plan::error("{}: neither JPEG nor PNG, whatever its name says", where);
}

/// Where the compressed bytes of a sample come from.
struct ImageSource {
  std::string name;   ///< for messages: file, or tar and member
  std::string bytes;  ///< of a tar's member; empty for a file, which is read when needed
  std::string folder; ///< class
};

class ImageColumn : public Column {
public:
  ImageColumn(plan::TensorType type, std::vector<ImageSource> sources)
      : Column("image", std::move(type)), sources(std::move(sources)) {}

  plan::Status read(uint64_t index, std::byte *destination) const override {
    const ImageSource &source = sources[index];
    Pixels pixels;
    plan::Status status;
    if (source.bytes.empty()) {
      auto bytes = readFile(source.name);
      if (!bytes)
        return bytes.status();
      status = decode(source.name, *bytes, pixels);
    } else {
      status = decode(source.name, source.bytes, pixels);
    }
    if (!status.ok())
      return status;
    if (pixels.height != type().dims(2) || pixels.width != type().dims(3))
      return plan::error("{}: the image has {}x{} pixels, the first one of the set {}x{}; bring all to one size",
                         source.name, pixels.width, pixels.height, type().dims(3), type().dims(2));
    auto *values = reinterpret_cast<float *>(destination);
    uint64_t plane = uint64_t(pixels.width) * pixels.height;
    for (uint64_t i = 0; i < plane; ++i)
      for (uint64_t channel = 0; channel < 3; ++channel)
        values[channel * plane + i] = static_cast<float>(pixels.rgb[3 * i + channel]) / 255.0f;
    return plan::Status();
  }

  uint64_t hostBytes() const override {
    uint64_t bytes = sources.size() * sizeof(ImageSource);
    for (const ImageSource &source : sources)
      bytes += source.bytes.size();
    return bytes;
  }

private:
  std::vector<ImageSource> sources;
};

bool isImageName(const std::string &name) {
  std::string extension = std::filesystem::path(name).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

plan::Expected<Dataset> makeDataset(const std::string &path, const std::string &format,
                                    std::vector<ImageSource> sources) {
  if (sources.empty())
    return plan::error("{}: no class folder in it holds a .jpg, .jpeg or .png file", path);
  std::sort(sources.begin(), sources.end(), [](const ImageSource &a, const ImageSource &b) { return a.name < b.name; });
  Dataset dataset{.path = path, .format = format};
  std::set<std::string> classes;
  for (const ImageSource &source : sources)
    classes.insert(source.folder);
  dataset.classes.assign(classes.begin(), classes.end());
  std::vector<int64_t> labels;
  for (const ImageSource &source : sources)
    labels.push_back(std::distance(classes.begin(), classes.find(source.folder)));
  Pixels first;
  plan::Status status;
  if (sources.front().bytes.empty()) {
    auto bytes = readFile(sources.front().name);
    if (!bytes)
      return bytes.status();
    status = decode(sources.front().name, *bytes, first);
  } else {
    status = decode(sources.front().name, sources.front().bytes, first);
  }
  if (!status.ok())
    return status;
  plan::TensorType type;
  type.set_dtype(plan::F32);
  auto samples = static_cast<int64_t>(sources.size());
  for (int64_t dim : {samples, int64_t(3), int64_t(first.height), int64_t(first.width)})
    type.add_dims(dim);
  dataset.columns.push_back(std::make_unique<ImageColumn>(type, std::move(sources)));
  dataset.columns.push_back(ownedColumn<int64_t>("label", plan::I64, {samples}, std::move(labels)));
  return dataset;
}
} // namespace

plan::Expected<Dataset> formats::openImageFolder(const std::string &folder) {
  namespace fs = std::filesystem;
  std::vector<ImageSource> sources;
  std::error_code code;
  for (fs::directory_iterator classes(folder, code), end; !code && classes != end; classes.increment(code)) {
    if (!classes->is_directory())
      continue;
    std::string name = classes->path().filename().string();
    for (fs::recursive_directory_iterator files(classes->path(), code), last; !code && files != last;
         files.increment(code))
      if (files->is_regular_file() && isImageName(files->path().string()))
        sources.push_back({files->path().string(), "", name});
  }
  if (code)
    return plan::error("{}: cannot read the folder: {}", folder, code.message());
  return makeDataset(folder, "image folder", std::move(sources));
}

plan::Expected<Dataset> formats::openImageTar(const std::string &path) {
  std::unique_ptr<archive, int (*)(archive *)> reader(archive_read_new(), archive_read_free);
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_all(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 18) != ARCHIVE_OK)
    return plan::error("{}: cannot read as tar: {}", path, archive_error_string(reader.get()));
  std::vector<ImageSource> sources;
  archive_entry *entry = nullptr;
  int result;
  while ((result = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char *raw = archive_entry_pathname(entry);
    std::filesystem::path member = std::filesystem::path(raw ? raw : "").lexically_normal();
    if (archive_entry_filetype(entry) != AE_IFREG || !isImageName(member.string()))
      continue;
    ImageSource source{fmt::format("{}: {}", path, member.string()), "", member.parent_path().filename().string()};
    if (source.folder.empty())
      return plan::error("{}: an image outside a class folder", source.name);
    source.bytes.resize(static_cast<size_t>(std::max<int64_t>(archive_entry_size(entry), 0)));
    la_ssize_t count = archive_read_data(reader.get(), source.bytes.data(), source.bytes.size());
    if (count != static_cast<la_ssize_t>(source.bytes.size()) || count == 0)
      return plan::error("{}: damaged or truncated", source.name);
    sources.push_back(std::move(source));
  }
  if (result != ARCHIVE_EOF)
    return plan::error("{}: cannot read as tar, or truncated: {}", path, archive_error_string(reader.get()));
  return makeDataset(path, "image tar", std::move(sources));
}
