//===- ImageDecode.cpp - JPEG and PNG to pixels --------------------------===//
//
// libjpeg reports errors by longjmp: no object with a destructor lives in the functions that it may leave.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/ImageDecode.h"
#include "runtime/data/Limits.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <jpeglib.h>
#include <png.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
enum class Codec { Jpeg, Png, None };

Codec codecOf(std::string_view bytes) {
  if (bytes.size() > 2 && std::memcmp(bytes.data(), "\xff\xd8", 2) == 0)
    return Codec::Jpeg;
  if (bytes.size() > 8 && std::memcmp(bytes.data(), "\x89PNG", 4) == 0)
    return Codec::Png;
  return Codec::None;
}

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

/// Each scan of a progressive image passes over all its pixels, and a scan may be a few bytes.
void onJpegProgress(j_common_ptr info) {
  auto *decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= limits::kMostJpegScans)
    return;
  auto *error = reinterpret_cast<JpegError *>(info->err);
  std::snprintf(error->message, sizeof(error->message), "more than %d scans", limits::kMostJpegScans);
  std::longjmp(error->jump, 1);
}

/// Reads the header, and the pixels where there is room for them. `size` is set from the header, or compared with it.
bool readJpeg(const unsigned char *bytes, size_t count, ImageSize *size, unsigned char *rgb, JpegError *error) {
  jpeg_decompress_struct info;
  jpeg_progress_mgr progress;
  info.err = jpeg_std_error(&error->manager);
  error->manager.error_exit = onJpegError;
  error->manager.emit_message = onJpegMessage;
  if (setjmp(error->jump)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  std::memset(&progress, 0, sizeof(progress));
  progress.progress_monitor = onJpegProgress;
  info.progress = &progress;
  jpeg_mem_src(&info, bytes, count);
  jpeg_read_header(&info, TRUE);
  if (!rgb) {
    size->width = info.image_width;
    size->height = info.image_height;
    jpeg_destroy_decompress(&info);
    return true;
  }
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  if (info.output_width != size->width || info.output_height != size->height || info.output_components != 3) {
    std::snprintf(error->message, sizeof(error->message), "its size is not the one of its header");
    std::longjmp(error->jump, 1);
  }
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = rgb + 3ull * size->width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return true;
}

/// The same for PNG.
bool readPng(std::string_view bytes, ImageSize &size, unsigned char *rgb, std::string &message) {
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  bool ok = png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0;
  if (ok && !rgb) {
    size = {image.width, image.height};
  } else if (ok && (image.width != size.width || image.height != size.height)) {
    message = "its size is not the one of its header";
    png_image_free(&image);
    return false;
  } else if (ok) {
    image.format = PNG_FORMAT_RGB;
    png_color black{0, 0, 0};
    ok = png_image_finish_read(&image, &black, rgb, 0, nullptr) != 0;
    ok = ok && (image.warning_or_error & PNG_IMAGE_ERROR) == 0;
  }
  if (!ok)
    message = image.message;
  png_image_free(&image);
  return ok;
}

Status read(const std::string &where, std::string_view bytes, ImageSize &size, unsigned char *rgb) {
  switch (codecOf(bytes)) {
  case Codec::Jpeg: {
    JpegError error;
    const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
    return readJpeg(data, bytes.size(), &size, rgb, &error) ? Status()
                                                            : tcc::error("{}: damaged JPEG: {}", where, error.message);
  }
  case Codec::Png: {
    std::string message;
    return readPng(bytes, size, rgb, message) ? Status() : error("{}: damaged PNG: {}", where, message);
  }
  case Codec::None:
    break;
  }
  return error("{}: neither JPEG nor PNG, whatever its name says", where);
}
} // namespace

Expected<ImageSize> tcc::runtime::imageSize(const std::string &where, std::string_view bytes) {
  ImageSize size;
  if (Status status = read(where, bytes, size, nullptr); !status.ok())
    return status;
  if (uint64_t(size.width) * size.height > limits::kMostImagePixels)
    return error("{}: its header says {}x{} pixels; an image may have {} pixels at most; make it smaller", where,
                       size.width, size.height, limits::kMostImagePixels);
  return size;
}

Status tcc::runtime::decodeImage(const std::string &where, std::string_view bytes, ImageSize size,
                                       std::span<unsigned char> rgb) {
  assert(rgb.size() >= 3ull * size.width * size.height);
  return read(where, bytes, size, rgb.data());
}
