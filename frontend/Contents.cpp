//===- Contents.cpp - classify an initializer by its values ---------------===//
#include "frontend/Contents.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace tcc::frontend {
namespace {

/// Below this a score is masked.
constexpr double kMasked = -1e4;
/// Larger initializers are taken for weights, and their bytes are not read.
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

/// Rows of a table: element (p, c) is at begin + p·step + c·next.
struct Rows {
  size_t count, columns, begin, step, next;
};

/// True if x[p + 1] + x[p − 1] = 2·cos(f)·x[p] in each column: among sequences within ±1 only sines and cosines of f·p
/// + φ satisfy this. Each column may have its own amplitude, as in a Fourier basis multiplied by a window. `largest`:
/// largest absolute value of the whole table, at most 1.0001.
bool isWave(const Elements &x, const Rows &rows, double largest) {
  auto at = [&](size_t p, size_t c) { return x[rows.begin + p * rows.step + c * rows.next]; };
  bool still = false; // the last examined column is all zeros
  auto follows = [&](size_t c, double scale) {
    // 2·cos(f), computed at the row with the column's largest value.
    size_t most = 1;
    for (size_t p = 1; p + 1 < rows.count; ++p)
      if (std::fabs(at(p, c)) > std::fabs(at(most, c)))
        most = p;
    const double peak = at(most, c);
    still = std::fabs(peak) <= 1e-6 * scale;
    if (still)
      return true;
    const double factor = (at(most + 1, c) + at(most - 1, c)) / peak;
    if (std::fabs(factor) > 2.001 && std::fabs(peak) > 1e-3 * scale)
      return false;
    for (size_t p = 1; p + 1 < rows.count; ++p)
      if (std::fabs(at(p + 1, c) + at(p - 1, c) - factor * at(p, c)) > 2e-3 * scale)
        return false;
    return true;
  };
  // Early exit: trained weights fail in the first column even with the looser tolerance of the whole table.
  if (rows.columns == 0 || !follows(0, largest))
    return false;
  double scale = 0;
  for (size_t p = 0; p < rows.count; ++p)
    for (size_t c = 0; c < rows.columns; ++c)
      scale = std::max(scale, std::fabs(at(p, c)));
  size_t moving = 0;
  for (size_t c = 0; c < rows.columns; ++c) {
    if (!follows(c, scale))
      return false;
    moving += !still && std::fabs(at(0, c) - at(1, c)) > 1e-9;
  }
  return 2 * moving >= rows.columns;
}

/// True for a matrix [rows, columns] that is a wave along its rows or columns: as a whole, in two halves (cosines
/// before sines), or in alternate rows (cosines and sines interleaved).
bool isWaveTable(const Elements &x, size_t rows, size_t columns) {
  constexpr size_t kFewest = 4, kFewestOfHalf = 6;
  double largest = 0;
  for (size_t i = 0; i < rows * columns; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    if (!(std::fabs(x[i]) <= 1.0001))
      return false;
  }
  auto along = [&](size_t count, size_t others, size_t step, size_t next) {
    if (count >= kFewest && isWave(x, {count, others, 0, step, next}, largest))
      return true;
    const size_t half = count / 2;
    if (count % 2 || half < kFewestOfHalf)
      return false;
    return (isWave(x, {half, others, 0, step, next}, largest) &&
            isWave(x, {half, others, half * step, step, next}, largest)) ||
           (isWave(x, {half, others, 0, 2 * step, next}, largest) &&
            isWave(x, {half, others, step, 2 * step, next}, largest));
  };
  return along(rows, columns, columns, 1) || along(columns, rows, 1, columns);
}

/// True if the rows (or columns) are the points of a grid, such as pixel coordinates: all combinations of evenly spaced
/// values in at least two coordinates; further coordinates are constant.
bool isGrid(const Elements &x, size_t rows, size_t columns) {
  constexpr size_t kMostCoordinates = 4, kFewestPoints = 16;
  auto along = [&](size_t points, size_t numbers, size_t step, size_t next) {
    if (numbers > kMostCoordinates || points < kFewestPoints)
      return false;
    size_t varying = 0, combinations = 1;
    for (size_t c = 0; c < numbers; ++c) {
      std::vector<double> values;
      for (size_t p = 0; p < points; ++p)
        values.push_back(x[p * step + c * next]);
      std::sort(values.begin(), values.end());
      const double tolerance = 1e-5 * (values.back() - values.front());
      values.erase(std::unique(values.begin(), values.end(), [&](double a, double b) { return b - a <= tolerance; }),
                   values.end());
      const double gap = values.size() > 1 ? (values.back() - values.front()) / double(values.size() - 1) : 0;
      for (size_t i = 1; i < values.size(); ++i)
        if (!(std::fabs(values[i] - values[i - 1] - gap) <= 1e-3 * gap))
          return false;
      combinations *= values.size();
      varying += values.size() > 1;
    }
    return varying >= 2 && combinations == points;
  };
  return along(rows, columns, columns, 1) || along(columns, rows, 1, columns);
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

Expected<std::string> constantContents(const OnnxInitializer &initializer, bool multiplied) {
  if (initializer.bytes == 0 || initializer.bytes > kMostBytes || initializer.absent)
    return std::string();
  Expected<std::string> bytes = initializerBytes(initializer);
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
  if (extents != 2)
    return std::string();
  size_t wide[2], found = 0;
  for (int64_t dim : initializer.dims)
    if (dim > 1)
      wide[found++] = size_t(dim);
  if (isGrid(x, wide[0], wide[1]))
    return std::string("a grid of evenly spaced coordinates");
  return std::string(isWaveTable(x, wide[0], wide[1]) ? "a table of sines or cosines" : "");
}

Expected<double> onlyElement(const OnnxInitializer &initializer) {
  Expected<std::string> bytes = initializerBytes(initializer);
  if (!bytes)
    return bytes.status();
  return Elements(initializer, *bytes)[0];
}

} // namespace tcc::frontend
