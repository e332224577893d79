//===- SampleFiles.cpp - small files of every data format, as bytes ------===//
#include "test/unit/data/SampleFiles.h"

#include <archive.h>
#include <archive_entry.h>
#include <cstdio>
#include <cstdlib>
#include <jpeglib.h>
#include <memory>
#include <png.h>
#include <zlib.h>

namespace tcc::test {

std::string png(uint32_t width, uint32_t height) {
  std::vector<unsigned char> pixels;
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x)
      for (uint32_t value : {10 * x, 20 * y, 7u})
        pixels.push_back(static_cast<unsigned char>(value));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string bytes(size, 0);
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

std::string maskPng(uint32_t width, uint32_t height, const std::vector<unsigned char> &numbers, int depth,
                    bool palette) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string bytes;
  png_set_write_fn(
      png, &bytes,
      [](png_structp of, png_bytep data, size_t size) {
        static_cast<std::string *>(png_get_io_ptr(of))->append(reinterpret_cast<char *>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, width, height, depth, palette ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_GRAY,
               PNG_INTERLACE_ADAM7, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  const std::vector<png_color> colours(size_t(1) << depth, png_color{200, 100, 50});
  if (palette)
    png_set_PLTE(png, info, colours.data(), int(colours.size()));
  png_set_gAMA(png, info, 0.3);
  png_write_info(png, info);
  png_set_packing(png);
  for (int passes = png_set_interlace_handling(png); passes > 0; --passes)
    for (uint32_t y = 0; y < height; ++y)
      png_write_row(png, numbers.data() + size_t(y) * width);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string jpeg(unsigned width, unsigned height, unsigned char value, bool progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr error{};
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  unsigned char *memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = 1;
  info.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  if (progressive)
    jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<unsigned char> line(width, value);
  JSAMPROW row = line.data();
  while (info.next_scanline < height)
    jpeg_write_scanlines(&info, &row, 1);
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char *>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

std::string archiveBytes(ArchiveKind kind, const std::vector<std::pair<std::string, std::string>> &members) {
  std::string bytes(1 << 16, 0);
  for (const auto &[name, content] : members)
    bytes.resize(bytes.size() + content.size() + 4096);
  size_t used = 0;
  {
    std::unique_ptr<archive, int (*)(archive *)> writer(archive_write_new(), archive_write_free);
    if (kind == ArchiveKind::Zip)
      archive_write_set_format_zip(writer.get());
    else
      archive_write_set_format_pax_restricted(writer.get());
    if (kind == ArchiveKind::TarGzip)
      archive_write_add_filter_gzip(writer.get());
    archive_write_open_memory(writer.get(), bytes.data(), bytes.size(), &used);
    for (const auto &[name, content] : members) {
      std::unique_ptr<archive_entry, void (*)(archive_entry *)> entry(archive_entry_new(), archive_entry_free);
      archive_entry_set_pathname(entry.get(), name.c_str());
      archive_entry_set_size(entry.get(), static_cast<int64_t>(content.size()));
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      archive_entry_set_perm(entry.get(), 0644);
      archive_write_header(writer.get(), entry.get());
      archive_write_data(writer.get(), content.data(), content.size());
    }
    archive_write_close(writer.get());
  }
  bytes.resize(used);
  return bytes;
}

std::string gzipBytes(const std::string &content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string bytes(deflateBound(&stream, content.size()), 0);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef *>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string idx(const std::vector<uint32_t> &dims, const std::string &data) {
  std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
  for (uint32_t dim : dims)
    for (int shift : {24, 16, 8, 0})
      bytes += static_cast<char>(dim >> shift);
  return bytes + data;
}

std::string npy(const std::string &descriptor, const std::string &shape, const std::string &data,
                const std::string &order) {
  std::string header = "{'descr': '" + descriptor + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(reinterpret_cast<char *>(&length), 2) + header + data;
}

std::string safetensors(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<char *>(&length), 8) + header + data;
}

} // namespace tcc::test
