//===- SampleFiles.h - small files of every data format, as bytes --------===//
#ifndef TCC_TEST_UNIT_DATA_SAMPLEFILES_H
#define TCC_TEST_UNIT_DATA_SAMPLEFILES_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tcc::test {

/// A width × height PNG whose pixel (x, y) is (10x, 20y, 7).
std::string png(uint32_t width, uint32_t height);
/// A PNG of one number a pixel, which takes `depth` bits: grey, or places in a palette.
std::string maskPng(uint32_t width, uint32_t height, const std::vector<unsigned char> &numbers, int depth,
                    bool palette);
/// A grey JPEG of one value.
std::string jpeg(unsigned width, unsigned height, unsigned char value, bool progressive = false);

enum class ArchiveKind { Tar, TarGzip, Zip };
std::string archiveBytes(ArchiveKind kind, const std::vector<std::pair<std::string, std::string>> &members);

std::string gzipBytes(const std::string &content);

/// An IDX file of unsigned bytes.
std::string idx(const std::vector<uint32_t> &dims, const std::string &data);

std::string npy(const std::string &descriptor, const std::string &shape, const std::string &data,
                const std::string &order = "False");

/// A safetensors file with this header.
std::string safetensors(const std::string &header, const std::string &data);

template <typename T> std::string bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)};
}

} // namespace tcc::test

#endif // TCC_TEST_UNIT_DATA_SAMPLEFILES_H
