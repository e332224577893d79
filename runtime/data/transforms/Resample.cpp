//===- Resample.cpp - scale an image ---------------------------------------===//
//
// Two passes, first along rows, then along columns, with bytes between them. Each output is a sum of weighted inputs;
// the weights are the filter's values around the output's place in the input, stretched where the image becomes smaller
// (antialias), and sum to 1. They are rounded to 22 fractional bits, so the sums are exact integers in any order. This
// is Pillow's arithmetic (src/libImaging/Resample.c), step by step.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::runtime;

namespace {
constexpr int kFraction = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kFraction - 1);

double bilinear(double x) {
  x = std::fabs(x);
  return x < 1 ? 1 - x : 0;
}
double bicubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1)
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2)
    return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}
double sinc(double x) {
  if (x == 0)
    return 1;
  x *= M_PI;
  return std::sin(x) / x;
}
double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0; }

/// Pillow's bicubic and torch's antialiased one have a = −½; torch's plain one −¾.
double filterValue(Filter filter, bool antialias, double x) {
  switch (filter) {
  case Filter::Bicubic:
    return bicubic(x, antialias ? -0.5 : -0.75);
  case Filter::Lanczos:
    return lanczos(x);
  default:
    return bilinear(x);
  }
}
double supportOf(Filter filter) { return filter == Filter::Bicubic ? 2 : filter == Filter::Lanczos ? 3 : 1; }

/// Output i is the sum over t < count[i] of input first[i] + t, weighted by weight[i · taps + t].
struct Weights {
  uint32_t in = 0, out = 0, taps = 0;
  Filter filter = Filter::Nearest;
  bool antialias = true;
  std::vector<uint32_t> first, count;
  std::vector<int32_t> weight;
  std::vector<double> exact;

  /// Does nothing where it holds these already: most images of a set have one size.
  void prepare(uint32_t newIn, uint32_t newOut, Filter newFilter, bool newAntialias) {
    if (in == newIn && out == newOut && filter == newFilter && antialias == newAntialias)
      return;
    in = newIn;
    out = newOut;
    filter = newFilter;
    antialias = newAntialias;
    const double scale = double(in) / out, stretch = antialias ? std::max(scale, 1.0) : 1.0;
    const double support = supportOf(filter) * stretch, inverse = 1.0 / stretch;
    taps = uint32_t(std::ceil(support)) * 2 + 1;
    first.assign(out, 0);
    count.assign(out, 0);
    weight.assign(size_t(out) * taps, 0);
    exact.resize(taps);
    for (uint32_t i = 0; i < out; ++i) {
      const double center = (i + 0.5) * scale;
      if (!antialias) {
        prepareOnGrid(i, center);
        continue;
      }
      const int least = std::max(int(center - support + 0.5), 0), most = std::min(int(center + support + 0.5), int(in));
      double sum = 0;
      for (int t = 0; t < most - least; ++t)
        sum += exact[t] = filterValue(filter, antialias, (t + least - center + 0.5) * inverse);
      first[i] = uint32_t(least);
      count[i] = uint32_t(most - least);
      for (int t = 0; t < most - least; ++t)
        weight[size_t(i) * taps + t] = rounded(sum != 0 ? exact[t] / sum : exact[t]);
    }
  }

private:
  static int32_t rounded(double value) {
    const double scaled = value * (1 << kFraction);
    return int32_t(value < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  /// Weights of the nearest 2 or 4 pixels; one outside the image adds to the one at its border.
  void prepareOnGrid(uint32_t i, double center) {
    const int reach = int(supportOf(filter)), base = int(std::floor(center - 0.5)) - reach + 1;
    const double place = center - 0.5;
    const int least = std::clamp(base, 0, int(in) - 1), most = std::clamp(base + 2 * reach - 1, 0, int(in) - 1);
    first[i] = uint32_t(least);
    count[i] = uint32_t(most - least + 1);
    std::fill(exact.begin(), exact.end(), 0);
    for (int t = 0; t < 2 * reach; ++t)
      exact[size_t(std::clamp(base + t, 0, int(in) - 1) - least)] += filterValue(filter, antialias, base + t - place);
    for (uint32_t t = 0; t < count[i]; ++t)
      weight[size_t(i) * taps + t] = rounded(exact[t]);
  }
};

inline uint8_t clipped(int32_t sum) { return uint8_t(std::clamp(sum >> kFraction, 0, 255)); }

void alongRow(const uint8_t *from, const Weights &weights, uint8_t *to) {
  for (uint32_t i = 0; i < weights.out; ++i) {
    const uint8_t *pixel = from + weights.first[i];
    const int32_t *weight = weights.weight.data() + size_t(i) * weights.taps;
    int32_t sum = kHalf;
    for (uint32_t t = 0, count = weights.count[i]; t < count; ++t)
      sum += pixel[t] * weight[t];
    to[i] = clipped(sum);
  }
}

/// All columns of one output row; `stride` is the distance between input rows.
void alongColumns(const uint8_t *from, uint32_t stride, uint32_t width, const int32_t *weight, uint32_t count,
                  int32_t *sums, uint8_t *to) {
  std::fill_n(sums, width, kHalf);
  for (uint32_t t = 0; t < count; ++t) {
    const uint8_t *row = from + size_t(t) * stride;
    const int32_t w = weight[t];
    for (uint32_t x = 0; x < width; ++x)
      sums[x] += row[x] * w;
  }
  for (uint32_t x = 0; x < width; ++x)
    to[x] = clipped(sums[x]);
}

/// One plane; a pass whose size stays is left out. Pillow 13 begins with columns where the height shrinks by more than
/// twice the pixels that the width does, and the bytes between the passes depend on the order.
void inTwoPasses(const uint8_t *source, uint32_t stride, const Box &part, const Weights &rows, const Weights &columns,
                 uint32_t height, uint32_t width, uint8_t *target) {
  thread_local std::vector<uint8_t> between;
  thread_local std::vector<int32_t> sums;
  const bool across = width != part.width, down = height != part.height;
  sums.resize(std::max(width, part.width));
  auto column = [&](const uint8_t *lines, uint32_t linesStride, uint32_t firstLine, uint32_t count, uint32_t y,
                    uint8_t *out) {
    alongColumns(lines + size_t(columns.first[y] - firstLine) * linesStride, linesStride, count,
                 columns.weight.data() + size_t(y) * columns.taps, columns.count[y], sums.data(), out);
  };
  const int64_t shorter = int64_t(part.height) - height, narrower = int64_t(part.width) - width;
  if (!across || (shorter > 0 && shorter > 2 * narrower)) {
    between.resize(part.width);
    for (uint32_t y = 0; y < height; ++y) {
      uint8_t *out = target + size_t(y) * width;
      column(source, stride, 0, part.width, y, across ? between.data() : out);
      if (across)
        alongRow(between.data(), rows, out);
    }
    return;
  }
  // Input rows that the second pass reads.
  const uint32_t begin = down ? columns.first.front() : 0,
                 end = down ? columns.first.back() + columns.count.back() : part.height;
  between.resize(size_t(end - begin) * width);
  for (uint32_t y = begin; y < end; ++y)
    alongRow(source + size_t(y) * stride, rows, (down ? between.data() : target) + size_t(y - begin) * width);
  for (uint32_t y = 0; down && y < height; ++y)
    column(between.data(), width, begin, width, y, target + size_t(y) * width);
}

/// One plane without antialias, in f32 and rounded once.
void onGrid(const uint8_t *source, uint32_t stride, const Box &part, const Weights &rows, const Weights &columns,
            uint32_t height, uint32_t width, uint8_t *target) {
  thread_local std::vector<float> between;
  between.resize(size_t(part.height) * width);
  constexpr float kOne = 1 << kFraction;
  for (uint32_t y = 0; y < part.height; ++y)
    for (uint32_t x = 0; x < width; ++x) {
      const uint8_t *row = source + size_t(y) * stride;
      float sum = width == part.width ? row[x] : 0;
      for (uint32_t t = 0; width != part.width && t < rows.count[x]; ++t)
        sum += float(row[rows.first[x] + t]) * (float(rows.weight[size_t(x) * rows.taps + t]) / kOne);
      between[size_t(y) * width + x] = sum;
    }
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x) {
      float sum = height == part.height ? between[size_t(y) * width + x] : 0;
      for (uint32_t t = 0; height != part.height && t < columns.count[y]; ++t)
        sum += between[size_t(columns.first[y] + t) * width + x] *
               (float(columns.weight[size_t(y) * columns.taps + t]) / kOne);
      target[size_t(y) * width + x] = uint8_t(std::clamp(std::nearbyint(sum), 0.0f, 255.0f));
    }
}

void copyPart(const Image &from, const Box &part, Image &to) {
  for (uint32_t c = 0; c < from.channels; ++c)
    for (uint32_t y = 0; y < part.height; ++y)
      std::memcpy(to.bytes.data() + (size_t(c) * part.height + y) * part.width,
                  from.bytes.data() + c * from.plane() + size_t(part.top + y) * from.width + part.left, part.width);
}

/// Pillow scales by Nearest as it transforms by an affine map: the places are sums, which round as sums do.
void nearest(const Image &from, const Box &part, Image &to) {
  thread_local std::vector<uint32_t> columns;
  auto places = [](uint32_t in, uint32_t out, auto use) {
    const double step = double(in) / out;
    double place = step * 0.5;
    for (uint32_t i = 0; i < out; ++i, place += step)
      use(i, std::min(uint32_t(place), in - 1));
  };
  columns.resize(to.width);
  places(part.width, to.width, [&](uint32_t x, uint32_t source) { columns[x] = source + part.left; });
  places(part.height, to.height, [&](uint32_t y, uint32_t source) {
    for (uint32_t c = 0; c < from.channels; ++c) {
      const uint8_t *row = from.bytes.data() + c * from.plane() + size_t(part.top + source) * from.width;
      uint8_t *out = to.bytes.data() + c * to.plane() + size_t(y) * to.width;
      for (uint32_t x = 0; x < to.width; ++x)
        out[x] = row[columns[x]];
    }
  });
}
} // namespace

Filter tcc::runtime::filterOf(std::string_view name) {
  return name == "nearest"   ? Filter::Nearest
         : name == "bicubic" ? Filter::Bicubic
         : name == "lanczos" ? Filter::Lanczos
                             : Filter::Bilinear;
}

void tcc::runtime::resample(const Image &from, const Box &part, uint32_t height, uint32_t width, Filter filter,
                            bool antialias, Image &to) {
  to.reshape(from.channels, height, width, /*newFloats=*/false);
  if (height == part.height && width == part.width)
    return copyPart(from, part, to);
  if (filter == Filter::Nearest)
    return nearest(from, part, to);
  antialias |= filter == Filter::Lanczos; // torch has no other
  thread_local Weights rows, columns;
  if (width != part.width)
    rows.prepare(part.width, width, filter, antialias);
  if (height != part.height)
    columns.prepare(part.height, height, filter, antialias);
  for (uint32_t c = 0; c < from.channels; ++c) {
    const uint8_t *source = from.bytes.data() + c * from.plane() + size_t(part.top) * from.width + part.left;
    uint8_t *target = to.bytes.data() + c * to.plane();
    if (!antialias)
      onGrid(source, from.width, part, rows, columns, height, width, target);
    else
      inTwoPasses(source, from.width, part, rows, columns, height, width, target);
  }
}
