//===- ImageDecode.cpp - JPEG and PNG to pixels --------------------------===//
//
// libjpeg reports errors by longjmp, so functions that longjmp may leave hold no object with a destructor.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/ImageDecode.h"
#include "runtime/data/Limits.h"
#include "runtime/data/transforms/EveryLevel.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <jpeglib.h>
#include <png.h>
#include <vector>

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

/// For truncated data libjpeg warns and fills with grey: for training data that is an error.
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

/// Splits a row of RGB into three rows, `plane` bytes apart.
TCC_EVERY_LEVEL void separate(const unsigned char *rgb, uint32_t count, uint64_t plane, unsigned char *to) {
  using Bytes = unsigned char __attribute__((vector_size(16)));
  uint32_t x = 0;
  for (; x + 16 <= count; x += 16) {
    Bytes a, b, c;
    std::memcpy(&a, rgb + 3 * x, 16);
    std::memcpy(&b, rgb + 3 * x + 16, 16);
    std::memcpy(&c, rgb + 3 * x + 32, 16);
    // Gather the bytes of a colour from a and b, then the rest from c.
    const Bytes red = __builtin_shufflevector(a, b, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0),
                green = __builtin_shufflevector(a, b, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0),
                blue = __builtin_shufflevector(a, b, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0);
    const Bytes planes[] = {__builtin_shufflevector(red, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29),
                            __builtin_shufflevector(green, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30),
                            __builtin_shufflevector(blue, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31)};
    for (int channel = 0; channel < 3; ++channel)
      std::memcpy(to + channel * plane + x, &planes[channel], 16);
  }
  for (; x < count; ++x)
    for (int channel = 0; channel < 3; ++channel)
      to[channel * plane + x] = rgb[3 * x + channel];
}

/// The destination of decoded pixels.
struct Target {
  Box part;
  unsigned char *planes;
  unsigned char *row; ///< buffer for a row of the image
};

/// Reads the header and, if there is a target, the pixels. `size` is set from the header, or compared with it.
bool readJpeg(const unsigned char *bytes, size_t count, ImageSize *size, const Target *target, JpegError *error) {
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
  if (!target) {
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
  const Box &part = target->part;
  // Smooth chroma upsampling reads neighbours: include one more block on both sides, and rows above.
  const JDIMENSION block = static_cast<JDIMENSION>(info.max_h_samp_factor) * DCTSIZE,
                   rows = static_cast<JDIMENSION>(info.max_v_samp_factor) * DCTSIZE;
  JDIMENSION left = part.left > block ? part.left - block : 0;
  JDIMENSION width = std::min(part.left + part.width + block, size->width) - left;
  if (width < size->width)
    jpeg_crop_scanline(&info, &left, &width);
  if (part.top > rows)
    jpeg_skip_scanlines(&info, part.top - rows);
  while (info.output_scanline < part.top + part.height) {
    const JDIMENSION y = info.output_scanline;
    JSAMPROW row = target->row;
    jpeg_read_scanlines(&info, &row, 1);
    if (y >= part.top)
      separate(target->row + 3ull * (part.left - left), part.width, uint64_t(part.width) * part.height,
               target->planes + uint64_t(y - part.top) * part.width);
  }
  // Skipping all remaining rows would not read their data, so damage there would not be found.
  if (info.output_height - info.output_scanline > 1)
    jpeg_skip_scanlines(&info, info.output_height - info.output_scanline - 1);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = target->row;
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

struct PngSource {
  const unsigned char *next, *end;
  std::jmp_buf jump;
  char message[256];
};

void onPngError(png_structp png, png_const_charp text) {
  auto *source = static_cast<PngSource *>(png_get_error_ptr(png));
  std::snprintf(source->message, sizeof(source->message), "%s", text);
  std::longjmp(source->jump, 1);
}

void onPngWarning(png_structp, png_const_charp) {}

void readPngBytes(png_structp png, png_bytep to, size_t count) {
  auto *source = static_cast<PngSource *>(png_get_io_ptr(png));
  if (count > static_cast<size_t>(source->end - source->next))
    png_error(png, "it is cut");
  std::memcpy(to, source->next, count);
  source->next += count;
}

/// Reads the header of a mask to `size`, or with `numbers` the pixels; libpng's simple interface would convert levels.
bool readMask(PngSource *source, ImageSize *size, unsigned char *numbers) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, source, onPngError, onPngWarning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info || setjmp(source->jump)) {
    png_destroy_read_struct(png ? &png : nullptr, info ? &info : nullptr, nullptr);
    return false;
  }
  png_set_read_fn(png, source, readPngBytes);
  png_read_info(png, info);
  const png_byte kind = png_get_color_type(png, info);
  if ((kind != PNG_COLOR_TYPE_GRAY && kind != PNG_COLOR_TYPE_PALETTE) || png_get_bit_depth(png, info) > 8)
    png_error(png, "a mask has one number a pixel, so it is grey or has a palette, and has at most 8 bits");
  const uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  if (!numbers) {
    *size = {width, height};
  } else {
    if (width != size->width || height != size->height)
      png_error(png, "its size is not the one of its header");
    png_set_packing(png);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    for (int pass = 0; pass < passes; ++pass)
      for (uint32_t y = 0; y < height; ++y)
        png_read_row(png, numbers + size_t(y) * width, nullptr);
    png_read_end(png, nullptr);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

Status readMask(const std::string &where, std::string_view bytes, ImageSize &size, unsigned char *numbers) {
  if (codecOf(bytes) != Codec::Png)
    return error("{}: its content is no PNG", where);
  const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
  PngSource source{data, data + bytes.size(), {}, {}};
  return readMask(&source, &size, numbers) ? Status() : error("{}: damaged PNG: {}", where, source.message);
}

Status checkPixels(const std::string &where, ImageSize size) {
  return uint64_t(size.width) * size.height <= limits::kMostImagePixels
             ? Status()
             : error("{}: its header says {}x{} pixels; an image may have {} pixels at most; make it smaller", where,
                     size.width, size.height, limits::kMostImagePixels);
}

Status read(const std::string &where, std::string_view bytes, ImageSize &size, const Target *target) {
  switch (codecOf(bytes)) {
  case Codec::Jpeg: {
    JpegError error;
    const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
    return readJpeg(data, bytes.size(), &size, target, &error)
               ? Status()
               : tcc::error("{}: damaged JPEG: {}", where, error.message);
  }
  case Codec::Png: {
    std::string message;
    thread_local std::vector<unsigned char> rgb;
    if (target)
      rgb.resize(3ull * size.width * size.height);
    if (!readPng(bytes, size, target ? rgb.data() : nullptr, message))
      return error("{}: damaged PNG: {}", where, message);
    for (uint32_t y = 0; target && y < target->part.height; ++y) {
      const Box &part = target->part;
      separate(rgb.data() + 3 * (uint64_t(part.top + y) * size.width + part.left), part.width,
               uint64_t(part.width) * part.height, target->planes + uint64_t(y) * part.width);
    }
    return Status();
  }
  case Codec::None:
    break;
  }
  return error("{}: its content is neither JPEG nor PNG", where);
}
} // namespace

Expected<ImageSize> tcc::runtime::imageSize(const std::string &where, std::string_view bytes) {
  ImageSize size;
  if (Status status = read(where, bytes, size, nullptr); !status.ok())
    return status;
  if (Status status = checkPixels(where, size); !status.ok())
    return status;
  return size;
}

Expected<ImageSize> tcc::runtime::maskSize(const std::string &where, std::string_view bytes) {
  ImageSize size;
  if (Status status = readMask(where, bytes, size, nullptr); !status.ok())
    return status;
  if (Status status = checkPixels(where, size); !status.ok())
    return status;
  return size;
}

Status tcc::runtime::decodeMask(const std::string &where, std::string_view bytes, ImageSize size,
                                std::span<unsigned char> numbers) {
  assert(numbers.size() >= uint64_t(size.width) * size.height);
  return readMask(where, bytes, size, numbers.data());
}

Status tcc::runtime::decodeImage(const std::string &where, std::string_view bytes, ImageSize size, const Box &part,
                                 std::span<unsigned char> planes) {
  assert(planes.size() >= 3ull * part.width * part.height);
  thread_local std::vector<unsigned char> row;
  row.resize(3ull * size.width);
  const Target target{part, planes.data(), row.data()};
  return read(where, bytes, size, &target);
}
