//===- Contents.cpp - what an initializer's values say of it --------------===//
#include "frontend/Contents.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace tcc::frontend {
namespace {

/// Below this a score is masked.
constexpr double kMasked = -1e4;
/// Larger initializers are no lifted constants: their bytes are not read for this.
constexpr uint64_t kMostBytes = 64ull << 20;

/// IEEE half precision as double.
double fromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? (fraction ? std::nan("") : std::numeric_limits<double>::infinity())
                                  : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

class Elements {
public:
  Elements(const OnnxInitializer &initializer, const std::string &bytes)
      : type(initializer.type), bytes(bytes), size(size_t(onnxElementBytes(type))) {}

  size_t count() const { return bytes.size() / size; }
  double operator[](size_t i) const {
    const char *at = bytes.data() + i * size;
    if (type == onnx::TensorProto::DOUBLE)
      return load<double>(at);
    if (type == onnx::TensorProto::FLOAT)
      return double(load<float>(at));
    const uint16_t half = load<uint16_t>(at);
    if (type == onnx::TensorProto::FLOAT16)
      return fromHalf(half);
    const uint32_t wide = uint32_t(half) << 16;
    return double(load<float>(reinterpret_cast<const char *>(&wide)));
  }

private:
  template <typename T> static T load(const char *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  int32_t type;
  const std::string &bytes;
  size_t size;
};

std::string maskText(const Elements &x, bool multiplied) {
  size_t zeros = 0, ones = 0, masked = 0;
  double lowest = 0;
  for (size_t i = 0; i < x.count(); ++i) {
    const double value = x[i];
    if (value == 0)
      ++zeros;
    else if (value == 1)
      ++ones;
    else if (value <= kMasked)
      ++masked;
    else
      return {};
    lowest = std::min(lowest, value);
  }
  if (masked && !ones)
    return zeros ? fmt::format("a mask of 0 and {:g}", lowest) : fmt::format("a mask of {:g}", lowest);
  return zeros && ones && !multiplied ? "a mask of 0 and 1" : "";
}

/// x[p + 1] + x[p − 1] = 2·cos(f)·x[p] for every column of rows p: sines and cosines of f·p + φ, and nothing else that
/// stays within ±1.
bool isWave(const Elements &x, size_t rows, size_t columns) {
  if (rows < 4 || x.count() % (rows * columns))
    return false;
  size_t moving = 0;
  for (size_t c = 0; c < columns; ++c) {
    // The factor from the row where the column is largest.
    size_t largest = 1;
    for (size_t p = 0; p < rows; ++p) {
      if (!(std::fabs(x[p * columns + c]) <= 1.0001))
        return false;
      if (p > 0 && p + 1 < rows && std::fabs(x[p * columns + c]) > std::fabs(x[largest * columns + c]))
        largest = p;
    }
    const double peak = x[largest * columns + c];
    if (peak == 0)
      continue;
    const double factor = (x[(largest + 1) * columns + c] + x[(largest - 1) * columns + c]) / peak;
    if (std::fabs(factor) > 2.001)
      return false;
    for (size_t p = 1; p + 1 < rows; ++p)
      if (std::fabs(x[(p + 1) * columns + c] + x[(p - 1) * columns + c] - factor * x[p * columns + c]) > 2e-3)
        return false;
    moving += std::fabs(x[c] - x[columns + c]) > 1e-9;
  }
  return 2 * moving >= columns;
}

/// 1, r, r², … with r below 1: the frequencies of rotary and sinusoidal positions.
bool isGeometric(const Elements &x) {
  if (x.count() < 4 || std::fabs(x[0] - 1) > 1e-6)
    return false;
  const double ratio = x[1];
  for (size_t i = 1; i < x.count(); ++i)
    if (!(ratio > 0 && ratio < 0.999) || std::fabs(x[i] / x[i - 1] - ratio) > 1e-3)
      return false;
  return true;
}

bool isCount(const Elements &x) {
  for (size_t i = 0; i < x.count(); ++i)
    if (x[i] != double(i))
      return false;
  return x.count() >= 4;
}

} // namespace

plan::Expected<std::string> constantContents(const OnnxInitializer &initializer, bool multiplied) {
  if (initializer.bytes == 0 || initializer.bytes > kMostBytes)
    return std::string();
  plan::Expected<std::string> bytes = initializerBytes(initializer);
  if (!bytes)
    return bytes.status();
  Elements x(initializer, *bytes);
  size_t extents = 0;
  for (int64_t dim : initializer.dims)
    extents += dim > 1;
  if (std::string mask = maskText(x, multiplied || extents < 2); !mask.empty())
    return mask;
  if (extents <= 1) {
    if (isCount(x))
      return std::string("positions 0, 1, 2, …");
    return std::string(isGeometric(x) ? "a geometric sequence of frequencies" : "");
  }
  // The last two axes: positions and features.
  const size_t columns = size_t(initializer.dims.back());
  const size_t rows = initializer.dims.size() > 1 ? size_t(initializer.dims[initializer.dims.size() - 2]) : 1;
  return std::string(isWave(x, rows, columns) && x.count() == rows * columns ? "a table of sines or cosines" : "");
}

} // namespace tcc::frontend
