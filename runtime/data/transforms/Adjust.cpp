//===- Adjust.cpp - colours of an image ------------------------------------===//
//
// An adjustment by a factor blends the image with a degenerate one (black, its mean, its luma, a blurred copy) in f32,
// truncated to a byte, as in Pillow's Blend.c. Adjustments that only map levels are tables of 256 entries.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Adjust.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

using namespace tcc::runtime;

namespace {
using Table = std::array<uint8_t, 256>;

/// Pillow's ImagingBlend: `from` for factor 0, `to` for 1, extrapolated beyond.
uint8_t blended(uint8_t from, uint8_t to, float factor) {
  const float value = float(int(from)) + factor * float(int(to) - int(from));
  return value <= 0 ? 0 : value >= 255 ? 255 : uint8_t(value);
}

Table blendTable(uint8_t from, float factor) {
  Table table;
  for (int level = 0; level < 256; ++level)
    table[size_t(level)] = blended(from, uint8_t(level), factor);
  return table;
}

void map(Image &image, const Table &table) {
  for (uint8_t &level : image.bytes)
    level = table[level];
}
void map(Image &image, uint32_t channel, const Table &table) {
  uint8_t *plane = image.bytes.data() + channel * image.plane();
  for (uint64_t i = 0; i < image.plane(); ++i)
    plane[i] = table[plane[i]];
}

/// ITU-R 601-2, as Pillow's L24.
uint8_t luma(uint32_t r, uint32_t g, uint32_t b) { return uint8_t((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16); }

/// Calls `use(r, g, b)` with references to the bytes of each pixel.
template <typename Use> void eachPixel(Image &image, Use use) {
  uint8_t *r = image.bytes.data(), *g = r + image.plane(), *b = g + image.plane();
  for (uint64_t i = 0, count = image.plane(); i < count; ++i)
    use(r[i], g[i], b[i]);
}

uint8_t clip(int value) { return uint8_t(std::clamp(value, 0, 255)); }

void shiftHue(uint8_t &r, uint8_t &g, uint8_t &b, uint8_t shift) {
  const uint8_t most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least)
    return; // without saturation
  const auto range = float(most - least);
  const float rc = float(most - r) / range, gc = float(most - g) / range, bc = float(most - b) / range;
  float h = r == most ? bc - gc : g == most ? float(2.0 + rc - bc) : float(4.0 + gc - rc);
  h = float(std::fmod(h / 6.0 + 1.0, 1.0));
  const uint8_t hue = uint8_t(clip(int(h * 255.0)) + shift), saturation = clip(int(range / float(most) * 255.0));
  if (saturation == 0) {
    r = g = b = most;
    return;
  }
  const double sixth = float(hue) * 6.0 / 255.0;
  const int sector = int(std::floor(sixth));
  const auto f = float(sixth - double(float(sector)));
  const auto s = float(float(saturation) / 255.0), v = float(most);
  const uint8_t p = clip(int(std::round(v * (1.0 - s)))), q = clip(int(std::round(v * (1.0 - s * f)))),
                t = clip(int(std::round(v * (1.0 - s * (1.0 - f)))));
  const uint8_t wheel[6][3] = {{most, t, p}, {q, most, p}, {p, most, t}, {p, q, most}, {t, p, most}, {most, p, q}};
  r = wheel[sector % 6][0];
  g = wheel[sector % 6][1];
  b = wheel[sector % 6][2];
}

std::array<uint32_t, 256> histogram(const Image &image, uint32_t channel) {
  std::array<uint32_t, 256> counts{};
  const uint8_t *plane = image.bytes.data() + channel * image.plane();
  for (uint64_t i = 0; i < image.plane(); ++i)
    ++counts[plane[i]];
  return counts;
}
} // namespace

void adjust::brightness(Image &image, double factor) {
  if (factor != 1)
    map(image, blendTable(0, float(factor)));
}

void adjust::contrast(Image &image, double factor) {
  if (factor == 1)
    return;
  uint64_t sum = 0;
  if (image.channels == 3)
    eachPixel(image, [&](uint8_t &r, uint8_t &g, uint8_t &b) { sum += luma(r, g, b); });
  else
    sum = std::accumulate(image.bytes.begin(), image.bytes.end(), uint64_t(0));
  map(image, blendTable(uint8_t(double(sum) / double(image.plane()) + 0.5), float(factor)));
}

void adjust::saturation(Image &image, double factor) {
  if (factor == 1 || image.channels != 3)
    return;
  eachPixel(image, [&](uint8_t &r, uint8_t &g, uint8_t &b) {
    const uint8_t grey = luma(r, g, b);
    r = blended(grey, r, float(factor));
    g = blended(grey, g, float(factor));
    b = blended(grey, b, float(factor));
  });
}

void adjust::hue(Image &image, double shift) {
  if (image.channels == 3)
    eachPixel(image, [steps = uint8_t(int(shift * 255))](uint8_t &r, uint8_t &g, uint8_t &b) {
      shiftHue(r, g, b, steps);
    });
}

void adjust::sharpness(Image &image, double factor, Image &spare) {
  if (factor == 1)
    return;
  spare.reshape(image.channels, image.height, image.width, false);
  const size_t width = image.width, height = image.height;
  for (uint32_t c = 0; c < image.channels; ++c)
    for (size_t y = 0; y < height; ++y) {
      const uint8_t *row = image.bytes.data() + c * image.plane() + y * width;
      uint8_t *out = spare.bytes.data() + c * image.plane() + y * width;
      for (size_t x = 0; x < width; ++x) {
        uint8_t smooth = row[x]; // unchanged at the border
        if (x > 0 && x + 1 < width && y > 0 && y + 1 < height) {
          uint32_t sum = 4u * row[x];
          for (const uint8_t *line : {row - width, row, row + width})
            sum += uint32_t(line[x - 1]) + line[x] + line[x + 1];
          smooth = uint8_t((2 * sum + 13) / 26); // sum ÷ 13, rounded; no tie: 13 is odd
        }
        out[x] = blended(smooth, row[x], float(factor));
      }
    }
  std::swap(image, spare);
}

void adjust::grayscale(Image &image) {
  if (image.channels == 3)
    eachPixel(image, [](uint8_t &r, uint8_t &g, uint8_t &b) { r = g = b = luma(r, g, b); });
}

void adjust::posterize(Image &image, int bits) {
  const auto mask = uint8_t(~((1u << (8 - std::clamp(bits, 0, 8))) - 1));
  for (uint8_t &level : image.bytes)
    level &= mask;
}

void adjust::solarize(Image &image, double threshold) {
  for (uint8_t &level : image.bytes)
    level = level < threshold ? level : uint8_t(255 - level);
}

void adjust::autocontrast(Image &image) {
  for (uint32_t c = 0; c < image.channels; ++c) {
    const auto counts = histogram(image, c);
    int low = 0, high = 255;
    while (low < 255 && counts[size_t(low)] == 0)
      ++low;
    while (high > 0 && counts[size_t(high)] == 0)
      --high;
    if (high <= low)
      continue;
    const double scale = 255.0 / (high - low), offset = -low * scale;
    Table table;
    for (int level = 0; level < 256; ++level)
      table[size_t(level)] = clip(int(level * scale + offset));
    map(image, c, table);
  }
}

void adjust::equalize(Image &image) {
  for (uint32_t c = 0; c < image.channels; ++c) {
    const auto counts = histogram(image, c);
    uint64_t last = 0, levels = 0;
    for (uint32_t count : counts)
      if (count != 0) {
        last = count;
        ++levels;
      }
    const uint64_t step = (image.plane() - last) / 255;
    if (levels <= 1 || step == 0)
      continue;
    Table table;
    uint64_t n = step / 2;
    for (size_t level = 0; level < 256; ++level) {
      table[level] = uint8_t(std::min<uint64_t>(n / step, 255));
      n += counts[level];
    }
    map(image, c, table);
  }
}
