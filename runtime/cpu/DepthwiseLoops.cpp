//===- DepthwiseLoops.cpp - 16 channels at a time ------------------------===//
//
// Sums stay in registers while a few results run through their taps, or a few taps through their pixels. If fewer than
// 16 channels are left, they are read and written through a buffer.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/DepthwiseLoops.h"

#include "runtime/cpu/LibraryPrimitive.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::depthwise::TCC_LEVEL {

using namespace packed; // registers

namespace {
constexpr int kParts = kVector / packed::kLanes;

TCC_INLINE float widened(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

/// 16 floats.
struct Sixteen {
  Floats part[kParts];
};
TCC_INLINE Sixteen zeros() {
  Sixteen result;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    result.part[i] = zero();
  return result;
}
TCC_INLINE Sixteen load(const float *from) {
  Sixteen result;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    result.part[i] = asFloats(packed::load(from + i * packed::kLanes));
  return result;
}
TCC_INLINE Sixteen loadNarrow(const uint16_t *from) {
  Sixteen result;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    result.part[i] = asFloats(loadWide(from + i * packed::kLanes));
  return result;
}
TCC_INLINE void store(float *to, Sixteen value) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    packed::store(to + i * packed::kLanes, asWords(value.part[i]));
}
TCC_INLINE void storeNarrow(uint16_t *to, Sixteen value) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    storeRounded(to + i * packed::kLanes, allLanes(), value.part[i]);
}
TCC_INLINE Sixteen multiplyAdd(Sixteen a, Sixteen b, Sixteen sum) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i)
    sum.part[i] = packed::multiplyAdd(sum.part[i], a.part[i], b.part[i]);
  return sum;
}

template <bool Whole> inline Sixteen loadSome(const void *from, bool narrow, int64_t count) {
  if (Whole)
    return narrow ? loadNarrow(static_cast<const uint16_t *>(from)) : load(static_cast<const float *>(from));
  alignas(64) float some[kVector] = {};
  alignas(64) uint16_t few[kVector] = {};
  if (narrow) {
    for (int64_t i = 0; i < count; ++i)
      few[i] = static_cast<const uint16_t *>(from)[i];
    return loadNarrow(few);
  }
  for (int64_t i = 0; i < count; ++i)
    some[i] = static_cast<const float *>(from)[i];
  return load(some);
}

/// Stores sums that are in memory. Not inline: the registers of the loops should know nothing of it.
__attribute__((noinline)) void storeRest(const Line &line, int64_t at, const float *values, int64_t count) {
  if (line.planePitch == 0 && line.narrowResult && count >= kVector)
    return storeNarrow(reinterpret_cast<uint16_t *>(line.result) + at, load(values));
  int64_t pitch = line.planePitch ? line.planePitch : 1;
  for (int64_t i = 0; i < count; ++i)
    if (line.narrowResult)
      reinterpret_cast<uint16_t *>(line.result)[at + i * pitch] = runtime::roundToBf16(values[i]);
    else
      reinterpret_cast<float *>(line.result)[at + i * pitch] = values[i];
}

inline void storeSome(const Line &line, int64_t at, Sixteen sums, int64_t count) {
  if (line.planePitch == 0 && !line.narrowResult && count >= kVector)
    return store(reinterpret_cast<float *>(line.result) + at, sums);
  if (kHasMasks && line.planePitch == 0 && line.narrowResult && count >= kVector)
    return storeNarrow(reinterpret_cast<uint16_t *>(line.result) + at, sums);
  alignas(64) float values[kVector];
  store(values, sums);
  storeRest(line, at, values, count);
}

/// `Pixels` results of 16 channels.
template <int Pixels, bool Whole, bool Narrow>
inline void correlatePixels(const Line &line, int64_t pixel, int64_t channel, int64_t count) {
  constexpr int64_t size = Narrow ? 2 : 4;
  Sixteen sums[Pixels];
#pragma GCC unroll 8
  for (int i = 0; i < Pixels; ++i)
    sums[i] = zeros();
  const int64_t pitch = line.sourcePitch * size;
  for (int64_t tap = 0; tap < line.tapCount; ++tap) {
    Sixteen weight =
        load(line.weights + line.taps[tap].number * line.weightPitch + channel); // padded to whole registers
    const char *from = line.source + (pixel * line.sourcePitch + line.taps[tap].at + channel) * size;
#pragma GCC unroll 8
    for (int i = 0; i < Pixels; ++i)
      sums[i] = multiplyAdd(loadSome<Whole>(from + i * pitch, Narrow, count), weight, sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Pixels; ++i)
    storeSome(line, line.resultAt + (pixel + i) * line.resultPitch + channel * (line.planePitch ? line.planePitch : 1),
              sums[i], count);
}

constexpr bool isTap(int at, int taps) { return at >= 0 && at < taps; }

/// Adds source `At` of a window to each result i, times the weight of tap At − i · Step. (Expanded by templates, so
/// that the sums stay in registers.)
template <int At, int Taps, int Step, int Pixels, int... I>
TCC_INLINE void addToResults(Sixteen (&sums)[Pixels], const Sixteen (&weights)[Taps], Sixteen value,
                                                        std::integer_sequence<int, I...>) {
  (void(isTap(At - I * Step, Taps)
            ? void(sums[I] = multiplyAdd(value, weights[isTap(At - I * Step, Taps) ? At - I * Step : 0], sums[I]))
            : void()),
   ...);
}
template <int Taps, int Step, bool Narrow, int Pixels, int... At>
TCC_INLINE void addWindow(Sixteen (&sums)[Pixels], const Sixteen (&weights)[Taps], const char *from,
                                                     int64_t pitch, std::integer_sequence<int, At...>) {
  (addToResults<At, Taps, Step>(sums, weights, loadSome<true>(from + At * pitch, Narrow, kVector),
                                std::make_integer_sequence<int, Pixels>()),
   ...);
}

/// Prefetches the memory that is read and written `ahead` pixels later: a line of pixels has too many streams for the
/// hardware prefetcher.
template <int Pixels, int Ahead>
TCC_INLINE void fetchAhead(const char *from, int64_t pitch, bool write) {
#pragma GCC unroll 8
  for (int i = 0; i < Pixels; ++i)
    write ? __builtin_prefetch(from + (Ahead + i) * pitch, 1) : __builtin_prefetch(from + (Ahead + i) * pitch);
}

/// The same for rows of `Taps` taps with adjacent sources, `Step` sources from result to result: each source is read
/// once for all taps of a row. The order of the sums is the same.
template <int Pixels, int Taps, int Step, bool Narrow>
void correlateWindow(const Line &line, int64_t pixel, int64_t channel) {
  constexpr int64_t size = Narrow ? 2 : 4;
  const int64_t pitch = line.sourcePitch / Step * size;
  fetchAhead<Pixels * Step, 16 * Step>(
      line.source + (pixel * line.sourcePitch + line.taps[line.tapCount - Taps].at + channel) * size, pitch, false);
  if (line.planePitch == 0) {
    const int64_t resultSize = line.narrowResult ? 2 : 4;
    fetchAhead<Pixels, 16>(line.result + (line.resultAt + pixel * line.resultPitch + channel) * resultSize,
                           line.resultPitch * resultSize, true);
  }
  Sixteen sums[Pixels];
#pragma GCC unroll 8
  for (int i = 0; i < Pixels; ++i)
    sums[i] = zeros();
  for (int64_t tap = 0; tap < line.tapCount; tap += Taps) {
    Sixteen weights[Taps];
#pragma GCC unroll 7
    for (int k = 0; k < Taps; ++k)
      weights[k] = load(line.weights + line.taps[tap + k].number * line.weightPitch + channel);
    addWindow<Taps, Step, Narrow>(sums, weights,
                                  line.source + (pixel * line.sourcePitch + line.taps[tap].at + channel) * size, pitch,
                                  std::make_integer_sequence<int, (Pixels - 1) * Step + Taps>());
  }
#pragma GCC unroll 8
  for (int i = 0; i < Pixels; ++i)
    storeSome(line, line.resultAt + (pixel + i) * line.resultPitch + channel * (line.planePitch ? line.planePitch : 1),
              sums[i], kVector);
}

/// The number of taps in a row with adjacent sources; 1: there are no such rows.
template <typename AnyLine> inline int64_t tapsOfRow(const AnyLine &line, int64_t step) {
  if (line.sourcePitch % step != 0 || line.tapCount == 0)
    return 1;
  int64_t pitch = line.sourcePitch / step, row = 1;
  while (row < line.tapCount && line.taps[row].at == line.taps[row - 1].at + pitch)
    ++row;
  for (int64_t tap = 0; tap < line.tapCount; ++tap)
    if (line.tapCount % row != 0 || line.taps[tap].at != line.taps[tap - tap % row].at + tap % row * pitch)
      return 1;
  return row;
}

using Window = void (*)(const Line &, int64_t, int64_t);
/// The loop for eight results whose taps form rows; null: there is none.
template <int Step, bool Narrow> Window windowOf(int64_t row) {
  switch (row) {
  case 2:
    return correlateWindow<8, 2, Step, Narrow>;
  case 3:
    return correlateWindow<8, 3, Step, Narrow>;
  case 5:
    return correlateWindow<8, 5, Step, Narrow>;
  case 7:
    return correlateWindow<8, 7, Step, Narrow>;
  default:
    return nullptr;
  }
}

/// Computes all channels of some pixels, then those of the next, in the order of memory.
template <bool Narrow> void correlateLanes(const Line &line) {
  Window window = windowOf<1, Narrow>(tapsOfRow(line, 1));
  if (!window)
    window = windowOf<2, Narrow>(tapsOfRow(line, 2));
  for (int64_t pixel = 0; pixel < line.pixels;) {
    // The last eight may overlap the previous ones, which are recomputed with the same values.
    if (line.pixels >= 8 && line.pixels - pixel < 8)
      pixel = line.pixels - 8;
    int64_t left = line.pixels - pixel, pixels = left >= 8 ? 8 : left >= 4 ? 4 : 1;
    for (int64_t channel = line.begin; channel < line.end; channel += kVector) {
      int64_t count = std::min(kVector, line.end - channel);
      if (count < kVector)
        for (int64_t i = 0; i < pixels; ++i)
          correlatePixels<1, false, Narrow>(line, pixel + i, channel, count);
      else if (pixels == 8)
        window ? window(line, pixel, channel) : correlatePixels<8, true, Narrow>(line, pixel, channel, count);
      else if (pixels == 4)
        correlatePixels<4, true, Narrow>(line, pixel, channel, count);
      else
        correlatePixels<1, true, Narrow>(line, pixel, channel, count);
    }
    pixel += pixels;
  }
}

void correlateLine(const Line &line) { line.narrowSource ? correlateLanes<true>(line) : correlateLanes<false>(line); }

/// Adds the products of some pixels for 16 channels, tap by tap.
template <int Taps, bool Whole, bool Narrow>
inline void addTaps(const GradientLine &line, int64_t tap, int64_t begin, int64_t end, int64_t channel, int64_t count) {
  constexpr int64_t size = Narrow ? 2 : 4;
  Sixteen sums[Taps];
  int64_t at[Taps];
#pragma GCC unroll 5
  for (int i = 0; i < Taps; ++i) {
    sums[i] = loadSome<Whole>(line.sums + line.taps[tap + i].number * line.sumPitch + channel, false, count);
    at[i] = line.taps[tap + i].at * size;
  }
  const char *source = line.source + channel * size, *gradient = line.gradient + channel * line.planePitch * size;
  alignas(64) float gathered[kVector] = {};
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    Sixteen factor;
    const char *place = gradient + pixel * line.gradientPitch * size;
    if (line.planePitch == 1) {
      factor = loadSome<Whole>(place, Narrow, count);
    } else {
      for (int64_t i = 0; i < count; ++i)
        gathered[i] = Narrow ? widened(reinterpret_cast<const uint16_t *>(place)[i * line.planePitch])
                             : reinterpret_cast<const float *>(place)[i * line.planePitch];
      factor = load(gathered);
    }
    const char *from = source + pixel * line.sourcePitch * size;
#pragma GCC unroll 5
    for (int i = 0; i < Taps; ++i)
      sums[i] = multiplyAdd(loadSome<Whole>(from + at[i], Narrow, count), factor, sums[i]);
  }
  alignas(64) float values[kVector];
#pragma GCC unroll 5
  for (int i = 0; i < Taps; ++i) {
    store(values, sums[i]);
    std::memcpy(line.sums + line.taps[tap + i].number * line.sumPitch + channel, values,
                static_cast<size_t>(count) * 4);
  }
}

template <int At, int Taps, int Step, int Pixels, int... I>
TCC_INLINE void addToTaps(Sixteen (&sums)[Taps], const Sixteen (&factors)[Pixels], Sixteen value,
                                                     std::integer_sequence<int, I...>) {
  (void(isTap(At - I * Step, Taps) ? void(sums[isTap(At - I * Step, Taps) ? At - I * Step : 0] = multiplyAdd(
                                              value, factors[I], sums[isTap(At - I * Step, Taps) ? At - I * Step : 0]))
                                   : void()),
   ...);
}
template <int Taps, int Step, bool Narrow, int Pixels, int... At>
TCC_INLINE void addPixels(Sixteen (&sums)[Taps], const Sixteen (&factors)[Pixels], const char *from,
                                                     int64_t pitch, std::integer_sequence<int, At...>) {
  (addToTaps<At, Taps, Step>(sums, factors, loadSome<true>(from + At * pitch, Narrow, kVector),
                             std::make_integer_sequence<int, Pixels>()),
   ...);
}

/// Adds the products of eight pixels by rows of taps with adjacent sources: each source is read once for all taps of a
/// row.
template <int Taps, int Step, bool Narrow> void addRows(const GradientLine &line, int64_t pixel, int64_t channel) {
  constexpr int64_t size = Narrow ? 2 : 4;
  const int64_t pitch = line.sourcePitch / Step * size;
  fetchAhead<8 * Step, 16 * Step>(
      line.source + (pixel * line.sourcePitch + line.taps[line.tapCount - Taps].at + channel) * size, pitch, false);
  fetchAhead<8, 16>(line.gradient + (channel + pixel * line.gradientPitch) * size, line.gradientPitch * size, false);
  Sixteen factors[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    factors[i] = loadSome<true>(line.gradient + (channel + (pixel + i) * line.gradientPitch) * size, Narrow, kVector);
  for (int64_t tap = 0; tap < line.tapCount; tap += Taps) {
    Sixteen sums[Taps];
#pragma GCC unroll 7
    for (int i = 0; i < Taps; ++i)
      sums[i] = load(line.sums + line.taps[tap + i].number * line.sumPitch + channel);
    addPixels<Taps, Step, Narrow>(sums, factors,
                                  line.source + (pixel * line.sourcePitch + line.taps[tap].at + channel) * size, pitch,
                                  std::make_integer_sequence<int, 7 * Step + Taps>());
#pragma GCC unroll 7
    for (int i = 0; i < Taps; ++i)
      store(line.sums + line.taps[tap + i].number * line.sumPitch + channel, sums[i]);
  }
}

using Rows = void (*)(const GradientLine &, int64_t, int64_t);
template <int Step, bool Narrow> Rows rowsOf(int64_t row) {
  switch (row) {
  case 2:
    return addRows<2, Step, Narrow>;
  case 3:
    return addRows<3, Step, Narrow>;
  case 5:
    return addRows<5, Step, Narrow>;
  case 7:
    return addRows<7, Step, Narrow>;
  default:
    return nullptr;
  }
}

template <bool Whole, bool Narrow>
void addLanes(const GradientLine &line, int64_t begin, int64_t end, int64_t channel, int64_t count) {
  int64_t tap = 0;
  for (; tap + 5 <= line.tapCount; tap += 5)
    addTaps<5, Whole, Narrow>(line, tap, begin, end, channel, count);
  for (; tap + 3 <= line.tapCount; tap += 3)
    addTaps<3, Whole, Narrow>(line, tap, begin, end, channel, count);
  for (; tap < line.tapCount; ++tap)
    addTaps<1, Whole, Narrow>(line, tap, begin, end, channel, count);
}

template <bool Narrow> void addProductsAs(const GradientLine &line) {
  Rows rows = nullptr;
  if (line.planePitch == 1) {
    rows = rowsOf<1, Narrow>(tapsOfRow(line, 1));
    if (!rows)
      rows = rowsOf<2, Narrow>(tapsOfRow(line, 2));
  }
  for (int64_t pixel = 0; pixel < line.pixels;) {
    int64_t end = std::min(pixel + 8, line.pixels);
    for (int64_t channel = 0; channel < line.channels; channel += kVector) {
      int64_t count = std::min(kVector, line.channels - channel);
      if (count < kVector)
        addLanes<false, Narrow>(line, pixel, end, channel, count);
      else if (rows && end - pixel == 8)
        rows(line, pixel, channel);
      else
        addLanes<true, Narrow>(line, pixel, end, channel, count);
    }
    pixel = end;
  }
}

void addProductsOfLine(const GradientLine &line) {
  line.narrow ? addProductsAs<true>(line) : addProductsAs<false>(line);
}
} // namespace

const DepthwiseKernels kDepthwise = {correlateLine, addProductsOfLine};

} // namespace tcc::runtime::depthwise::TCC_LEVEL

TCC_LEVEL_END
