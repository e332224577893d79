//===- Resample.cpp - scale an image ---------------------------------------===//
//
// Two passes, first along rows, then along columns, with bytes as the intermediate result. Both process 16 bytes at a
// time. Each output is a weighted sum of inputs; the weights are the filter's values around the output's position in
// the input, stretched if the image becomes smaller (antialias), and sum to 1. They are rounded to 22 fractional bits,
// so the sums are exact integers in any order. This is Pillow's arithmetic (src/libImaging/Resample.c), step by step.
//
//===----------------------------------------------------------------------===//
#include "runtime/data/transforms/Resample.h"
#include "runtime/data/transforms/EveryLevel.h"

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

  /// Does nothing if the weights are already prepared: most images of a set have one size.
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
  /// Weights of the nearest 2 or 4 pixels; the weight of a pixel outside the image is added to that of the border
  /// pixel.
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

/// Sixteen bytes, and as many integers: the compiler maps them to registers of the machine's size.
using Bytes = uint8_t __attribute__((vector_size(16)));
using Numbers = int32_t __attribute__((vector_size(64)));
constexpr uint32_t kLanes = 16;

// Passed by reference, because the calling convention of such vectors depends on the level.
inline __attribute__((always_inline)) void addWeighted(const uint8_t *bytes, int32_t weight, Numbers &sum) {
  Bytes loaded;
  std::memcpy(&loaded, bytes, kLanes);
  sum += __builtin_convertvector(loaded, Numbers) * weight;
}
inline __attribute__((always_inline)) void storeClipped(const Numbers &total, uint8_t *to) {
  Numbers sum = total >> kFraction;
  sum = sum < 0 ? Numbers{} : sum;
  sum = sum > 255 ? Numbers{} + 255 : sum;
  const Bytes result = __builtin_convertvector(sum, Bytes);
  std::memcpy(to, &result, kLanes);
}

/// A pass along rows that computes outputs [begin, end); the inputs begin at number `held`.
struct Across {
  const Weights &weights;
  uint32_t begin, end, held;

  uint32_t count() const { return end - begin; }
  uint32_t first() const { return weights.first[begin] - held; }
  uint32_t last() const { return weights.first[end - 1] + weights.count[end - 1] - held; }
};

void alongRow(const uint8_t *from, const Across &across, uint8_t *to) {
  for (uint32_t i = across.begin; i < across.end; ++i) {
    const uint8_t *pixel = from + (across.weights.first[i] - across.held);
    const int32_t *weight = across.weights.weight.data() + size_t(i) * across.weights.taps;
    int32_t sum = kHalf;
    for (uint32_t t = 0, taps = across.weights.count[i]; t < taps; ++t)
      sum += pixel[t] * weight[t];
    to[i - across.begin] = clipped(sum);
  }
}

/// Transposes 16 × 16 bytes in four steps, each of which interleaves rows i and i + 8.
inline __attribute__((always_inline)) void transpose(const uint8_t *from, size_t stride, uint8_t *to, size_t toStride) {
  Bytes rows[kLanes], next[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i)
    std::memcpy(&rows[i], from + i * stride, kLanes);
  for (int round = 0; round < 4; ++round) {
    for (uint32_t i = 0; i < kLanes / 2; ++i) {
      const Bytes &a = rows[i], &b = rows[i + kLanes / 2];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (uint32_t i = 0; i < kLanes; ++i)
      rows[i] = next[i];
  }
  for (uint32_t i = 0; i < kLanes; ++i)
    std::memcpy(to + i * toStride, &rows[i], kLanes);
}

/// Processes 16 rows. They are transposed, so that one output of all rows is a vector. `columns` and `results` have
/// room for 16 bytes per input and output.
TCC_EVERY_LEVEL void alongRows(const uint8_t *from, size_t stride, const Across &across, uint8_t *columns,
                               uint8_t *results, uint8_t *to) {
  const uint32_t first = across.first(), last = across.last(), count = across.count();
  // The last 16 columns, here and below, overlap the ones before.
  for (uint32_t x = first; x < last; x += kLanes) {
    const uint32_t at = std::min(x, last - kLanes);
    transpose(from + at, stride, columns + size_t(at - first) * kLanes, kLanes);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t output = across.begin + i;
    const uint8_t *pixel = columns + size_t(across.weights.first[output] - across.held - first) * kLanes;
    const int32_t *weight = across.weights.weight.data() + size_t(output) * across.weights.taps;
    Numbers sum = Numbers{} + kHalf;
    for (uint32_t t = 0, taps = across.weights.count[output]; t < taps; ++t)
      addWeighted(pixel + size_t(t) * kLanes, weight[t], sum);
    storeClipped(sum, results + size_t(i) * kLanes);
  }
  for (uint32_t x = 0; x < count; x += kLanes) {
    const uint32_t at = std::min(x, count - kLanes);
    transpose(results + size_t(at) * kLanes, kLanes, to + at, count);
  }
}

/// Processes all rows, each to across.count() outputs.
void acrossRows(const uint8_t *from, size_t stride, uint32_t height, const Across &across, uint8_t *to) {
  const uint32_t read = across.last() - across.first(), count = across.count();
  if (height < kLanes || read < kLanes || count < kLanes) {
    for (uint32_t y = 0; y < height; ++y)
      alongRow(from + y * stride, across, to + size_t(y) * count);
    return;
  }
  thread_local std::vector<uint8_t> columns, results;
  columns.resize(size_t(read) * kLanes);
  results.resize(size_t(count) * kLanes);
  for (uint32_t y = 0; y < height; y += kLanes) {
    const uint32_t at = std::min(y, height - kLanes);
    alongRows(from + at * stride, stride, across, columns.data(), results.data(), to + size_t(at) * count);
  }
}

/// Computes all columns of one output row; `stride` is the distance between input rows.
TCC_EVERY_LEVEL void alongColumns(const uint8_t *from, size_t stride, uint32_t width, const int32_t *weight,
                                  uint32_t count, uint8_t *to) {
  if (width < kLanes) {
    for (uint32_t x = 0; x < width; ++x) {
      int32_t sum = kHalf;
      for (uint32_t t = 0; t < count; ++t)
        sum += from[size_t(t) * stride + x] * weight[t];
      to[x] = clipped(sum);
    }
    return;
  }
  for (uint32_t x = 0; x < width; x += kLanes) {
    const uint32_t at = std::min(x, width - kLanes);
    Numbers sum = Numbers{} + kHalf;
    for (uint32_t t = 0; t < count; ++t)
      addWeighted(from + size_t(t) * stride + at, weight[t], sum);
    storeClipped(sum, to + at);
  }
}

/// Computes one plane of a cut; a pass that does not change the size is skipped. Like Pillow 13, it begins with columns
/// if the height shrinks by more than twice as many pixels as the width, since the intermediate bytes depend on the
/// order. `source` is the pixel at the corner of `held`, the part of cut.part that is in memory.
void inTwoPasses(const uint8_t *source, size_t stride, const Box &held, const Cut &cut, const Weights &rows,
                 const Weights &columns, uint8_t *target) {
  thread_local std::vector<uint8_t> between;
  const Box &window = cut.window;
  const bool across = cut.width != cut.part.width, down = cut.height != cut.part.height;
  const Across all{rows, window.left, window.left + window.width, held.left};
  auto column = [&](const uint8_t *lines, size_t linesStride, uint32_t count, uint32_t y, uint8_t *out) {
    alongColumns(lines + size_t(columns.first[y] - held.top) * linesStride, linesStride, count,
                 columns.weight.data() + size_t(y) * columns.taps, columns.count[y], out);
  };
  const int64_t shorter = int64_t(cut.part.height) - cut.height, narrower = int64_t(cut.part.width) - cut.width;
  if (!across) {
    for (uint32_t y = 0; y < window.height; ++y)
      column(source, stride, window.width, window.top + y, target + size_t(y) * window.width);
  } else if (!down) {
    acrossRows(source, stride, window.height, all, target);
  } else if (shorter > 0 && shorter > 2 * narrower) {
    between.resize(size_t(window.height) * held.width);
    for (uint32_t y = 0; y < window.height; ++y)
      column(source, stride, held.width, window.top + y, between.data() + size_t(y) * held.width);
    acrossRows(between.data(), held.width, window.height, all, target);
  } else {
    between.resize(size_t(held.height) * window.width);
    acrossRows(source, stride, held.height, all, between.data());
    for (uint32_t y = 0; y < window.height; ++y)
      column(between.data(), window.width, window.width, window.top + y, target + size_t(y) * window.width);
  }
}

/// Computes one plane without antialias, in f32, rounded once.
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

/// Like Pillow, implements Nearest as an affine map: positions are accumulated, with the rounding of each addition.
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

/// Weights of both axes, if they are scaled. One pair is kept per thread: most images of a set have one size.
struct BothWeights {
  Weights rows, columns;
};
static const BothWeights &weightsOf(const Cut &cut) {
  thread_local BothWeights both;
  const bool antialias = cut.antialias || cut.filter == Filter::Lanczos; // torch has no Lanczos without antialias
  if (cut.width != cut.part.width)
    both.rows.prepare(cut.part.width, cut.width, cut.filter, antialias);
  if (cut.height != cut.part.height)
    both.columns.prepare(cut.part.height, cut.height, cut.filter, antialias);
  return both;
}

/// False if the whole part is needed: Nearest and grids, which are rarely used and read few pixels.
static bool readsWindowAlone(const Cut &cut) {
  return cut.filter == Filter::Lanczos || (cut.filter != Filter::Nearest && cut.antialias);
}

void Cut::narrow(const Box &to) {
  if (isScaled()) {
    window = {window.top + to.top, window.left + to.left, to.height, to.width};
    return;
  }
  part = {part.top + to.top, part.left + to.left, to.height, to.width};
  height = to.height;
  width = to.width;
  window = {0, 0, to.height, to.width};
}

void Cut::scale(uint32_t newHeight, uint32_t newWidth, Filter newFilter, bool newAntialias) {
  height = newHeight;
  width = newWidth;
  window = {0, 0, newHeight, newWidth};
  filter = newFilter;
  antialias = newAntialias;
}

Box Cut::source() const {
  if (!isScaled() || !readsWindowAlone(*this))
    return part;
  const BothWeights &weights = weightsOf(*this);
  // Convert a range of positions in the window to the range of positions in the part.
  auto range = [](const Weights &axis, bool scaled, uint32_t begin, uint32_t count) {
    if (!scaled)
      return std::pair(begin, begin + count);
    return std::pair(axis.first[begin], axis.first[begin + count - 1] + axis.count[begin + count - 1]);
  };
  const auto [top, bottom] = range(weights.columns, height != part.height, window.top, window.height);
  const auto [left, right] = range(weights.rows, width != part.width, window.left, window.width);
  return {part.top + top, part.left + left, bottom - top, right - left};
}

void Cut::make(const Image &from, Image &to) const {
  Box held = source(); // in coordinates of the image, then of the part
  held.top -= part.top;
  held.left -= part.left;
  if (isScaled() && !readsWindowAlone(*this)) {
    thread_local Image whole;
    resample(from, {0, 0, part.height, part.width}, height, width, filter, antialias, whole);
    to.reshape(from.channels, window.height, window.width, /*newFloats=*/false);
    return copyPart(whole, window, to);
  }
  to.reshape(from.channels, window.height, window.width, /*newFloats=*/false);
  if (!isScaled())
    return copyPart(from, {0, 0, part.height, part.width}, to);
  const BothWeights &weights = weightsOf(*this);
  for (uint32_t c = 0; c < from.channels; ++c)
    inTwoPasses(from.bytes.data() + c * from.plane(), from.width, held, *this, weights.rows, weights.columns,
                to.bytes.data() + c * to.plane());
}

void tcc::runtime::resample(const Image &from, const Box &part, uint32_t height, uint32_t width, Filter filter,
                            bool antialias, Image &to) {
  to.reshape(from.channels, height, width, /*newFloats=*/false);
  if (height == part.height && width == part.width)
    return copyPart(from, part, to);
  if (filter == Filter::Nearest)
    return nearest(from, part, to);
  Cut cut = Cut::of(part.height, part.width);
  cut.scale(height, width, filter, antialias);
  const BothWeights &weights = weightsOf(cut);
  const Box source = cut.source();
  for (uint32_t c = 0; c < from.channels; ++c) {
    const uint8_t *corner = from.bytes.data() + c * from.plane() + size_t(part.top) * from.width + part.left;
    uint8_t *target = to.bytes.data() + c * to.plane();
    if (!readsWindowAlone(cut))
      onGrid(corner, from.width, part, weights.rows, weights.columns, height, width, target);
    else
      inTwoPasses(corner + size_t(source.top) * from.width + source.left, from.width, source, cut, weights.rows,
                  weights.columns, target);
  }
}
