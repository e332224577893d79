//===- Warp.cpp - rotate, shear and shift an image -------------------------===//
//
// Pillow's arithmetic (src/libImaging/Geometry.c): Nearest steps along rows in 16.16 fixed point or, if the map only
// scales and shifts, by adding doubles; the other filters compute each position directly. Filters truncate to a byte.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Warp.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>

using namespace tcc::runtime;

namespace {
int floorOf(double value) { return value < 0 ? int(std::floor(value)) : int(value); }

/// Calls `pixel(x, y, sourceX, sourceY)` for each output pixel whose source is inside the image.
template <typename Use> void eachNearest(const Image &from, const AffineMap &a, const Image &to, Use pixel) {
  const int width = int(from.width), height = int(from.height);
  auto offer = [&](uint32_t x, uint32_t y, int sourceX, int sourceY) {
    if (sourceX >= 0 && sourceX < width && sourceY >= 0 && sourceY < height)
      pixel(x, y, sourceX, sourceY);
  };
  auto truncated = [](double value) { return value < 0 ? -1 : int(std::min(value, 1e9)); };
  if (a[1] == 0 && a[3] == 0) {
    double placeY = a[5] + a[4] * 0.5;
    for (uint32_t y = 0; y < to.height; ++y, placeY += a[4]) {
      double placeX = a[2] + a[0] * 0.5;
      for (uint32_t x = 0; x < to.width; ++x, placeX += a[0])
        offer(x, y, truncated(placeX), truncated(placeY));
    }
    return;
  }
  auto fits = [&](double x, double y) {
    return std::fabs(x * a[0] + y * a[1] + a[2]) < 32768.0 && std::fabs(x * a[3] + y * a[4] + a[5]) < 32768.0;
  };
  if (fits(0, 0) && fits(to.width, to.height) && fits(0, to.height) && fits(to.width, 0)) {
    auto fixed = [](double value) { return int64_t(floorOf(value * 65536.0 + 0.5)); };
    const int64_t stepX = fixed(a[0]), stepY = fixed(a[3]), rowX = fixed(a[1]), rowY = fixed(a[4]);
    int64_t beginX = fixed(a[2] + a[0] * 0.5 + a[1] * 0.5), beginY = fixed(a[5] + a[3] * 0.5 + a[4] * 0.5);
    for (uint32_t y = 0; y < to.height; ++y, beginX += rowX, beginY += rowY) {
      int64_t placeX = beginX, placeY = beginY;
      for (uint32_t x = 0; x < to.width; ++x, placeX += stepX, placeY += stepY)
        offer(x, y, int(placeX >> 16), int(placeY >> 16));
    }
    return;
  }
  double beginX = a[2] + a[1] * 0.5 + a[0] * 0.5, beginY = a[5] + a[4] * 0.5 + a[3] * 0.5;
  for (uint32_t y = 0; y < to.height; ++y, beginX += a[1], beginY += a[4]) {
    double placeX = beginX, placeY = beginY;
    for (uint32_t x = 0; x < to.width; ++x, placeX += a[0], placeY += a[3])
      offer(x, y, truncated(placeX), truncated(placeY));
  }
}

/// `taps` pixels a side (2 or 4) around the source; those beyond the border repeat it.
template <int Taps, typename Blend, typename Store>
void eachFiltered(const Image &from, const AffineMap &a, Image &to, Blend blend, Store store) {
  const int width = int(from.width), height = int(from.height);
  constexpr int kBefore = Taps / 2 - 1;
  for (uint32_t y = 0; y < to.height; ++y)
    for (uint32_t x = 0; x < to.width; ++x) {
      const double inX = x + 0.5, inY = y + 0.5;
      double placeX = a[0] * inX + a[1] * inY + a[2], placeY = a[3] * inX + a[4] * inY + a[5];
      if (placeX < 0 || placeX >= width || placeY < 0 || placeY >= height)
        continue;
      placeX -= 0.5;
      placeY -= 0.5;
      const int left = floorOf(placeX), top = floorOf(placeY);
      const double dx = placeX - left, dy = placeY - top;
      int columns[Taps];
      for (int t = 0; t < Taps; ++t)
        columns[t] = std::clamp(left - kBefore + t, 0, width - 1);
      for (uint32_t c = 0; c < from.channels; ++c) {
        const uint8_t *plane = from.bytes.data() + c * from.plane();
        double rows[Taps];
        for (int t = 0; t < Taps; ++t) {
          const uint8_t *row = plane + size_t(std::clamp(top - kBefore + t, 0, height - 1)) * from.width;
          double pixels[Taps];
          for (int i = 0; i < Taps; ++i)
            pixels[i] = row[columns[i]];
          rows[t] = blend(pixels, dx);
        }
        to.bytes[c * to.plane() + size_t(y) * to.width + x] = store(blend(rows, dy));
      }
    }
}

double linear(const double *v, double d) { return v[0] + (v[1] - v[0]) * d; }
double cubic(const double *v, double d) {
  const double p1 = v[1], p2 = -v[0] + v[2], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];
  return p1 + d * (p2 + d * (p3 + d * p4));
}

double radians(double degrees) { return degrees * (M_PI / 180); }
} // namespace

AffineMap tcc::runtime::affineMap(double degrees, double shiftX, double shiftY, double scale, double shearX,
                                  double shearY, double centreX, double centreY) {
  const double turn = radians(degrees), sx = radians(shearX), sy = radians(shearY);
  const double a = std::cos(turn - sy) / std::cos(sy);
  const double b = -std::cos(turn - sy) * std::tan(sx) / std::cos(sy) - std::sin(turn);
  const double c = std::sin(turn - sy) / std::cos(sy);
  const double d = -std::sin(turn - sy) * std::tan(sx) / std::cos(sy) + std::cos(turn);
  AffineMap map = {d / scale, -b / scale, 0, -c / scale, a / scale, 0};
  map[2] += map[0] * (-centreX - shiftX) + map[1] * (-centreY - shiftY);
  map[5] += map[3] * (-centreX - shiftX) + map[4] * (-centreY - shiftY);
  map[2] += centreX;
  map[5] += centreY;
  return map;
}

void tcc::runtime::warp(const Image &from, const AffineMap &map, Filter filter, std::span<const uint8_t> fill,
                        Image &to) {
  to.reshape(from.channels, from.height, from.width, /*newFloats=*/false);
  for (uint32_t c = 0; c < to.channels; ++c)
    std::fill_n(to.bytes.data() + c * to.plane(), to.plane(), fill[fill.size() == 1 ? 0 : c]);
  if (filter == Filter::Nearest)
    eachNearest(from, map, to, [&](uint32_t x, uint32_t y, int sourceX, int sourceY) {
      for (uint32_t c = 0; c < to.channels; ++c)
        to.bytes[c * to.plane() + size_t(y) * to.width + x] =
            from.bytes[c * from.plane() + size_t(sourceY) * from.width + size_t(sourceX)];
    });
  else if (filter == Filter::Bicubic)
    eachFiltered<4>(from, map, to, cubic,
                    [](double value) { return value <= 0 ? 0 : value >= 255 ? 255 : uint8_t(value); });
  else
    eachFiltered<2>(from, map, to, linear, [](double value) { return uint8_t(value); });
}

void tcc::runtime::rotate(Image &image, double degrees, Filter filter, std::span<const uint8_t> fill, Image &spare) {
  double angle = std::fmod(degrees, 360.0);
  if (angle < 0)
    angle += 360.0;
  const uint32_t width = image.width, height = image.height;
  const bool quarter = (angle == 90 || angle == 270) && width == height;
  if (angle == 0)
    return;
  if (angle == 180 || quarter) {
    spare.reshape(image.channels, height, width, false);
    for (uint32_t c = 0; c < image.channels; ++c)
      for (uint32_t y = 0; y < height; ++y)
        for (uint32_t x = 0; x < width; ++x) {
          const uint32_t toY = angle == 180 ? height - 1 - y : angle == 90 ? width - 1 - x : x;
          const uint32_t toX = angle == 180 ? width - 1 - x : angle == 90 ? y : height - 1 - y;
          spare.bytes[c * spare.plane() + size_t(toY) * width + toX] =
              image.bytes[c * image.plane() + size_t(y) * width + x];
        }
    std::swap(image, spare);
    return;
  }
  // Python's round(): to 15 decimals, correctly rounded.
  auto rounded = [](double value) { return std::strtod(fmt::format("{:.15f}", value).c_str(), nullptr); };
  const double turn = -radians(angle), centreX = width / 2.0, centreY = height / 2.0;
  AffineMap map = {rounded(std::cos(turn)), rounded(std::sin(turn)), 0, rounded(-std::sin(turn)),
                   rounded(std::cos(turn)), 0};
  const double x = map[0] * -centreX + map[1] * -centreY + map[2], y = map[3] * -centreX + map[4] * -centreY + map[5];
  map[2] = x + centreX;
  map[5] = y + centreY;
  warp(image, map, filter, fill, spare);
  std::swap(image, spare);
}
