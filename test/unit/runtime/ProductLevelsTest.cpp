//===- ProductLevelsTest.cpp - the kernels of products at every level -----===//
//
// The kernels of products are one text for several machine levels (runtime/cpu/Vectors.h), whose bits must be equal.
// Random shapes of each kernel run at every level that this program contains and this machine runs.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/DepthwiseLoops.h"
#include "runtime/cpu/PixelProduct.h"
#include "runtime/cpu/PlaneProduct.h"
#include "runtime/cpu/TapProduct.h"
#include "runtime/cpu/UnpackedColumns.h"
#include "runtime/cpu/calls/CpuLevel.h"
#include "runtime/cpu/calls/MatmulDesigns.h"
#include "runtime/plan/FourBits.h"
#include "test/support/FourBitGrids.h"

#include <bit>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace tcc::runtime;
using namespace tcc::runtime::packed;

namespace {
struct Level {
  const char *name;
  PackedKernels packed;
  PixelKernels pixel;
  TapKernels tap;
  PlaneKernels plane;
  depthwise::DepthwiseKernels depthwise;
  UnpackKernels unpack;
};

/// The levels of this program and machine, the baseline first.
std::vector<Level> levels() {
  std::vector<Level> all;
#define TCC_LEVEL_OF(LEVEL)                                                                                            \
  {#LEVEL, LEVEL::kPacked, LEVEL::kPixel, LEVEL::kTap, LEVEL::kPlane, depthwise::LEVEL::kDepthwise, LEVEL::kUnpack}
  all.push_back(TCC_LEVEL_OF(baseline));
#ifndef TCC_PORTABLE
  const CpuFeatures machine = detectFeatures();
  if (machine.avx2)
    all.push_back(TCC_LEVEL_OF(avx2));
  if (machine.avx512)
    all.push_back(TCC_LEVEL_OF(avx512));
#endif
  return all;
}

/// Memory of words, aligned to a cache line. It begins as random numbers, both as f32 and as bf16.
class Memory {
public:
  Memory(std::mt19937 &random, int64_t count) : words(count) {
    std::uniform_real_distribution<float> values(-2, 2);
    for (int64_t i = 0; i < count; ++i) {
      const auto high = std::bit_cast<uint32_t>(values(random)), low = std::bit_cast<uint32_t>(values(random));
      asWords()[i] = (high & 0xffff0000) | low >> 16;
    }
  }
  char *data() { return storage.get() + (64 - reinterpret_cast<uintptr_t>(storage.get()) % 64); }
  uint32_t *asWords() { return reinterpret_cast<uint32_t *>(data()); }
  float *asFloats() { return reinterpret_cast<float *>(data()); }
  std::string bytes() { return {data(), static_cast<size_t>(words) * 4}; }

private:
  int64_t words;
  std::unique_ptr<char[]> storage{new char[static_cast<size_t>(words) * 4 + 128]()};
};

/// Draws a shape and values from `seed`, and returns what a level stores.
using Case = std::string (*)(const Level &level, unsigned seed);

int64_t draw(std::mt19937 &random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

Store drawStore(std::mt19937 &random) {
  constexpr Store all[] = {Store::Overwrite, Store::Add, Store::Round};
  return all[draw(random, 0, 2)];
}

std::string packedProduct(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t rows = draw(random, 1, kRows), columns = draw(random, 1, kColumns), k = draw(random, 1, 37);
  constexpr Elements ofA[] = {Elements::F32, Elements::WideBf16},
                     ofB[] = {Elements::F32, Elements::WideBf16, Elements::WideRounded};
  Memory a(random, 64 * 64), b(random, 64 * 64), c(random, 64 * 64), before(random, 64 * 64);
  const Source left{a.data(), 61, draw(random, 0, 1) == 1, ofA[draw(random, 0, 1)]};
  const Source right{b.data(), 63, draw(random, 0, 1) == 1, ofB[draw(random, 0, 2)]};
  Memory panelA(random, kRows * 64), panelB(random, kColumns * 64);
  RowPanel panel{panelA.asWords(), 0};
  if (readsRowsInPlace(left, k) && draw(random, 0, 1) == 1)
    panel = {a.asWords(), left.stride};
  else
    level.packed.packRows(panelA.asWords(), left, rows, k, 0);
  const ColumnRun runs[] = {{3, columns / 3}, {columns / 3 + 5, columns - columns / 3}};
  if (!right.alongK && right.elements == Elements::F32 && columns >= 3)
    level.packed.packColumnRuns(panelB.asWords(), right, runs, 2, columns, k);
  else
    level.packed.packColumns(panelB.asWords(), right, columns, k);
  Ahead ahead = level.packed.packedDuring(panelB.asWords() + kColumns * 40, right, 1, 1, 1);
  const bool adds = draw(random, 0, 1) == 1;
  level.packed.multiply(false, panel, panelB.asWords(), rows, columns,
                        {k, adds ? before.asFloats() : nullptr, 50, c.data(), 51, drawStore(random),
                         draw(random, 0, 1) == 1, &ahead});
  return c.bytes();
}

std::string pixelProduct(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t rows = draw(random, 1, kRows), columns = draw(random, 1, kColumns);
  Memory source(random, 4096), gradient(random, 8192), sums(random, 1024);
  int64_t at[kRows];
  for (int64_t &offset : at)
    offset = 4 * draw(random, 0, 99);
  const bool narrow = draw(random, 0, 1) == 1;
  const PixelLine lines[] = {{4 * draw(random, 0, 9), 128, draw(random, 1, 9)}, {400, 4096, draw(random, 1, 9)}};
  level.pixel.multiplyPixels(rows, columns,
                             {source.data(), at, 12, gradient.data(), narrow ? 100 : 200, narrow, lines, 2,
                              sums.asFloats(), 50, draw(random, 0, 1) == 1});
  return sums.bytes();
}

std::string tapProduct(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t rows = draw(random, 1, kRows), columns = draw(random, 1, kColumns);
  Memory source(random, 4096), panel(random, kColumns * 64), before(random, 1024), result(random, 1024);
  int64_t sourceAt[kRows], beforeAt[kRows], resultAt[kRows];
  for (int64_t i = 0; i < kRows; ++i) {
    sourceAt[i] = 4 * draw(random, 0, 999);
    beforeAt[i] = 50 * i;
    resultAt[i] = 51 * (kRows - 1 - i);
  }
  const Piece pieces[] = {{draw(random, 0, 99), draw(random, 1, 20)}, {200, draw(random, 1, 20)}};
  level.tap.multiplyTaps(false, rows, columns,
                         {source.data(), sourceAt, pieces, 2, 4, panel.asWords(),
                          draw(random, 0, 1) == 1 ? before.asFloats() : nullptr, beforeAt, result.data(), resultAt,
                          drawStore(random), draw(random, 0, 1) == 1});
  return result.bytes();
}

std::string planes(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t channels = draw(random, 1, kPlaneChannels), pixels = draw(random, 1, 130), words = draw(random, 1, 20);
  Memory source(random, 4096), weights(random, 1024), sums(random, kPlaneChannels * 160);
  int64_t places[20];
  for (int64_t &place : places)
    place = 4 * draw(random, 0, 999);
  level.plane.multiplyPlanes(false, channels,
                             {source.data(), places, words, weights.asWords(), 11, pixels, sums.asFloats(), 160,
                              draw(random, 0, 1) == 1});
  // Lanes behind the pixels are not defined: their number differs.
  std::string result;
  for (int64_t c = 0; c < channels; ++c)
    result += sums.bytes().substr(static_cast<size_t>(c * 160 * 4), static_cast<size_t>(pixels * 4));
  return result;
}

std::string planeGradient(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t rows = draw(random, 1, kPlaneChannels), columns = draw(random, 1, kPlaneColumns),
                words = kVector * draw(random, 1, 9);
  Memory source(random, 4096), valid(random, 160), gradient(random, kPlaneChannels * 160), sums(random, 64);
  for (int64_t i = 0; i < 160; ++i)
    valid.asWords()[i] = draw(random, 0, 3) > 0 ? ~0u : 0;
  const int64_t places[kPlaneColumns] = {4 * draw(random, 0, 999), 4 * draw(random, 0, 999), 4 * draw(random, 0, 999)};
  level.plane.multiplyPlaneGradient(false, rows, columns,
                                    {source.data(), places, valid.asWords(), gradient.asWords(), 160, words,
                                     sums.asFloats(), 5, draw(random, 0, 1) == 1});
  return sums.bytes();
}

std::string copies(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  Memory source(random, 4096), lines(random, 4096), pixels(random, 4096);
  level.plane.copyLines(source.data(), 260, 9, 2 * draw(random, 1, 128), lines.data(), 262);
  level.plane.storePixels(source.asFloats(), kVector, draw(random, 1, 40), draw(random, 1, kVector), pixels.data(), 68,
                          drawStore(random));
  return lines.bytes() + pixels.bytes();
}

/// Taps in rows of `taps`, or anywhere.
std::vector<depthwise::Tap> drawTaps(std::mt19937 &random, int64_t pitch) {
  const int64_t taps = draw(random, 1, 7), rows = draw(random, 1, 3);
  const bool inRows = draw(random, 0, 3) > 0;
  std::vector<depthwise::Tap> result;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t tap = 0; tap < taps; ++tap)
      result.push_back({inRows ? row * 500 + tap * pitch : draw(random, 0, 900), row * taps + tap});
  return result;
}

std::string depthwiseLines(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t channels = draw(random, 1, 40), pixels = draw(random, 1, 20), step = draw(random, 1, 2);
  Memory source(random, 8192), weights(random, 21 * 48), result(random, 2048), sums(random, 21 * 48),
      gradient(random, 2048);
  const auto taps = drawTaps(random, 40);
  const bool narrow = draw(random, 0, 1) == 1, planar = draw(random, 0, 1) == 1;
  level.depthwise.correlate({.narrowSource = narrow,
                             .narrowResult = draw(random, 0, 1) == 1,
                             .source = source.data(),
                             .sourcePitch = 40 * step,
                             .taps = taps.data(),
                             .tapCount = static_cast<int64_t>(taps.size()),
                             .weights = weights.asFloats(),
                             .weightPitch = 48,
                             .result = result.data(),
                             .resultAt = 3,
                             .resultPitch = planar ? 1 : 43,
                             .planePitch = planar ? 47 : 0,
                             .pixels = pixels,
                             .begin = 0,
                             .end = channels});
  level.depthwise.addProducts({.narrow = narrow,
                               .source = source.data(),
                               .sourcePitch = 40 * step,
                               .gradient = gradient.data(),
                               .gradientPitch = planar ? 1 : 43,
                               .planePitch = planar ? 47 : 1,
                               .taps = taps.data(),
                               .tapCount = static_cast<int64_t>(taps.size()),
                               .sums = sums.asFloats(),
                               .sumPitch = 48,
                               .pixels = pixels,
                               .channels = channels});
  return result.bytes() + sums.bytes();
}

/// A panel of a matrix in 4 bits, which must be the panel of the widened matrix: codes along K or along columns, rows
/// of odd lengths, blocks that end inside a run, nested scales.
std::string unpackedColumns(const Level &level, std::mt19937 &random, Elements elements) {
  const int64_t k = draw(random, 1, 90), n = draw(random, 1, 120), columns = draw(random, 1, std::min<int64_t>(n, 48)),
                column = draw(random, 0, n - columns), first = draw(random, 0, k - 1), left = k - first,
                words = wordsOf(left, elements);
  const auto code = draw(random, 0, 1) ? tcc::plan::FourBits::NF4 : tcc::plan::FourBits::INT4;
  const bool alongK = draw(random, 0, 1) != 0;
  const int64_t dims[] = {k, n};
  const bool inRow[] = {alongK, !alongK};
  auto layout = tcc::plan::fourBitsOf(code, int64_t(32) << draw(random, 0, 3), dims, inRow);
  layout.set_nested(code == tcc::plan::FourBits::NF4 && draw(random, 0, 1));
  const auto bytes = static_cast<size_t>(tcc::plan::bytesType(layout).dims(0));
  std::vector<uint8_t> codes(bytes);
  for (uint8_t &byte : codes)
    byte = static_cast<uint8_t>(draw(random, 0, 255));
  std::vector<float> scales(static_cast<size_t>(tcc::plan::scalesType(layout).dims(0)));
  for (float &scale : scales)
    scale = std::uniform_real_distribution<float>(-2, 2)(random);
  const auto nested = layout.nested() ? tcc::plan::nestScales(scales) : tcc::plan::NestedScales();
  const auto held = layout.nested() ? std::as_bytes(std::span(nested.codes)) : std::as_bytes(std::span(scales));
  const int64_t panel = (columns + 15) / 16 * 16 * words;
  Memory unpacked(random, panel), packed(random, panel);
  level.unpack.unpackColumns(unpacked.asWords(),
                             {codes.data(), held.data(), nested.numbers.data(), codesOf(layout), first, column},
                             elements, columns, left);
  const auto wide = tcc::plan::widenFourBits(std::as_bytes(std::span(codes)), held, layout, tcc::plan::F32,
                                             std::as_bytes(std::span(nested.numbers)));
  level.packed.packColumns(packed.asWords(),
                           {reinterpret_cast<const char *>(wide.data()) + (first * n + column) * 4, n, false, elements},
                           columns, left);
  const int64_t stride = (columns + 15) / 16 * 16;
  for (int64_t w = 0; w < words; ++w) // behind the columns, a level with short registers leaves the panel as it is
    std::fill_n(packed.asWords() + w * stride + columns, stride - columns, 0);
  EXPECT_TRUE(unpacked.bytes() == packed.bytes()) << level.name << ", " << static_cast<int>(elements);
  return unpacked.bytes();
}
std::string unpackedFloats(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  return unpackedColumns(level, random, Elements::F32);
}
std::string unpackedRounded(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  return unpackedColumns(level, random, Elements::WideRounded);
}

/// The same for a matrix of a file, whose blocks are a grid, and for one in 8 bits.
std::string unpackedGrid(const Level &level, std::mt19937 &random, Elements elements) {
  const int64_t k = draw(random, 1, 90), n = draw(random, 1, 120), columns = draw(random, 1, std::min<int64_t>(n, 48)),
                column = draw(random, 0, n - columns), first = draw(random, 0, k - 1), left = k - first,
                words = wordsOf(left, elements);
  const tcc::test::GridMatrix matrix = tcc::test::randomGrid(random, k, n);
  const int64_t panel = (columns + 15) / 16 * 16 * words;
  Memory unpacked(random, panel), packed(random, panel);
  level.unpack.unpackColumns(
      unpacked.asWords(),
      {matrix.bytes.data(), matrix.scales.data(), matrix.zeros(), codesOf(matrix.layout), first, column}, elements,
      columns, left);
  const auto wide = matrix.widened();
  level.packed.packColumns(packed.asWords(),
                           {reinterpret_cast<const char *>(wide.data()) + (first * n + column) * 4, n, false, elements},
                           columns, left);
  const int64_t stride = (columns + 15) / 16 * 16;
  for (int64_t w = 0; w < words; ++w)
    std::fill_n(packed.asWords() + w * stride + columns, stride - columns, 0);
  EXPECT_TRUE(unpacked.bytes() == packed.bytes())
      << level.name << ", " << static_cast<int>(elements) << ": " << matrix.layout.ShortDebugString();
  return unpacked.bytes();
}
std::string unpackedGridFloats(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  return unpackedGrid(level, random, Elements::F32);
}
std::string unpackedGridRounded(const Level &level, unsigned seed) {
  std::mt19937 random(seed);
  return unpackedGrid(level, random, Elements::WideRounded);
}

struct Kernel {
  const char *name;
  Case run;
};
class ProductLevels : public testing::TestWithParam<Kernel> {};

TEST_P(ProductLevels, HaveTheSameBits) {
  const std::vector<Level> all = levels();
  if (all.size() < 2)
    GTEST_SKIP() << "this program or this machine has one level alone";
  for (unsigned seed = 0; seed < 400; ++seed) {
    const std::string expected = GetParam().run(all[0], seed);
    for (size_t i = 1; i < all.size(); ++i)
      ASSERT_TRUE(GetParam().run(all[i], seed) == expected) << all[i].name << ", seed " << seed;
  }
}

constexpr Kernel kKernels[] = {{"Packed", packedProduct},
                               {"Pixel", pixelProduct},
                               {"Tap", tapProduct},
                               {"Planes", planes},
                               {"PlaneGradient", planeGradient},
                               {"Copies", copies},
                               {"Depthwise", depthwiseLines},
                               {"Unpacked", unpackedFloats},
                               {"UnpackedRounded", unpackedRounded},
                               {"UnpackedGrid", unpackedGridFloats},
                               {"UnpackedGridRounded", unpackedGridRounded}};
INSTANTIATE_TEST_SUITE_P(Kernels, ProductLevels, testing::ValuesIn(kKernels),
                         [](const auto &info) { return std::string(info.param.name); });

#ifndef TCC_PORTABLE
TEST(ProductLevels, PairsOfBf16AreUnpacked) {
  if (!detectFeatures().bf16)
    GTEST_SKIP() << "this machine does not multiply pairs of bf16";
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    unpackedColumns(levels().back(), random, Elements::Rounded);
    unpackedGrid(levels().back(), random, Elements::Rounded);
  }
}
#endif
} // namespace
