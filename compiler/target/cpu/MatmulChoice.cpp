//===- MatmulChoice.cpp - tiles of products that the library computes ----===//
//
// A small cost model of a tiling: arithmetic at the rate of one core, copies of operands that are not dense, the
// library's own transposition, a fixed cost per call, and idle workers if tiles do not divide evenly among few or
// many workers. Takes the cheapest of a list of candidates, the first of equals. The constants are measured on one
// core of Zen 4; they affect speed, never a plan's results on different machines.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"

#include <algorithm>

namespace tcc::target::cpu {

using namespace runtime::tiling;
using runtime::MatmulShape, runtime::MatmulTiling;
namespace packed = runtime::packed;

namespace {

constexpr double kSmallFlops = 4e6; ///< of one product of a batch

/// Tile sizes worth trying along an axis: the whole axis, then fixed widths.
std::vector<int64_t> candidates(int64_t size, std::initializer_list<int64_t> widths) {
  std::vector<int64_t> result = {size};
  for (int64_t width : widths)
    if (width < size)
      result.push_back(width);
  return result;
}

/// Bytes that a worker needs for copies.
int64_t copiedBytes(const MatmulShape &s, const MatmulTiling &t) {
  return t.tileBatch * (((t.packA(s) ? t.tileM * t.blockK : 0) + (t.packB(s) ? t.tileN * t.blockK : 0)) *
                            static_cast<int64_t>(s.elementBytes) +
                        (t.packC(s) ? t.tileM * t.tileN * static_cast<int64_t>(t.bytesOfC(s)) : 0));
}

double cost(const MatmulShape &s, const MatmulTiling &t, const CpuModel &model) {
  const LibraryModel &c = model.library;
  double m = static_cast<double>(t.tileM), n = static_cast<double>(t.tileN), k = static_cast<double>(t.chunkK);
  double size = static_cast<double>(s.elementBytes);
  double blocks = static_cast<double>(ceilDiv(t.chunkK, t.blockK));
  double rowFill = t.tileM >= 24 ? 1.0 : 1.0 + 0.2 * static_cast<double>(24 - t.tileM) / 24;
  double columnFill = static_cast<double>(roundUp(t.tileN, 16)) / n;
  double rate = s.elementBytes == 2 ? c.narrowFlopsPerNs : c.flopsPerNs;
  double time = 2 * m * n * k / rate * rowFill * columnFill + blocks * c.callNs;
  int64_t working = t.blockK * (t.tileM + t.tileN) * static_cast<int64_t>(s.elementBytes) +
                    t.tileM * t.tileN * static_cast<int64_t>(t.bytesOfC(s));
  if (working > 2 * c.cacheBytes)
    time *= 1.12;
  else if (working > c.cacheBytes + c.cacheBytes / 4)
    time *= 1.04;
  if (!s.transB && !t.packB(s) && s.n >= 1024)
    time *= 1.02; // columns of a wide matrix in place: each row is in another page
  auto streamed = [&](int64_t columns) {
    return columns * s.k * static_cast<int64_t>(s.elementBytes) > model.split.lastCacheBytes;
  };
  time += ((streamed(s.m) ? m * k : 0) + (streamed(s.n) ? n * k : 0)) * size * c.streamNsPerByte;
  // Consecutive tiles share a column panel: each reads the panel's part of B again, unless it stays in the cache.
  if (s.batch == 1 && t.tileM < s.m && t.tileM < c.hiddenRows &&
      t.tileN * t.chunkK * static_cast<int64_t>(s.elementBytes) > c.cacheBytes)
    time += n * k * size * c.fetchNsPerByte;
  double copied = ((t.packA(s) ? m * k : 0) + (t.packB(s) ? n * k : 0)) * size +
                  (t.packC(s) ? m * n * static_cast<double>(t.bytesOfC(s)) : 0);
  double transposed = ((s.transA ? m * k : 0) + (s.transB ? n * k : 0)) * size;
  double interleaved = s.elementBytes == 2 && !s.transB ? n * k * size : 0;
  time += copied * c.copyNsPerByte + transposed * c.transposeNsPerByte + interleaved * c.interleaveNsPerByte +
          (blocks > 1 ? blocks * m * n * 0.05 : 0);
  int64_t whole = ceilDiv(s.m, t.tileM) * ceilDiv(s.n, t.tileN), count = s.batch * whole * t.chunks(s);
  // A tail costs more than its share of a full tile, and less than a full one.
  double tiles = 0.5 * (static_cast<double>(s.m) / m * static_cast<double>(s.n) / n + static_cast<double>(whole));
  return time * tiles * static_cast<double>(s.k) / k * (0.9 * imbalance(count, 2) + 0.1 * imbalance(count, 8));
}
} // namespace

int64_t productsOfATile(const MatmulShape &s) {
  double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  if (flops >= kSmallFlops)
    return 1;
  int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(6e6 / flops));
  int64_t tiles = std::max<int64_t>(ceilDiv(s.batch, wanted),
                                    std::min<int64_t>(s.batch, flops * static_cast<double>(s.batch) > 4e6 ? 16 : 1));
  return ceilDiv(s.batch, tiles);
}

runtime::MatmulTiling chooseLibraryTiling(const MatmulShape &s, const CpuModel &model) {
  const LibraryModel &c = model.library;
  double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);

  if (s.batch > 1 && flops < kSmallFlops)
    return {productsOfATile(s), s.m, s.n, s.k, s.k};
  // A single small product is one tile.
  if (s.batch == 1 && flops < model.split.tileFlops)
    return {1, s.m, s.n, s.k, s.k};

  MatmulTiling best{};
  double bestCost = 0;
  for (int64_t tileM : candidates(s.m, {32, 64, 96, 128, 192, 256, 384, 512}))
    for (int64_t tileN : candidates(s.n, {64, 96, 128, 192, 256, 384, 512})) {
      std::vector<int64_t> chunkSizes = {s.k};
      int64_t tiles = s.batch * ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN);
      if (tiles < 8 && (s.m * s.n * s.batch <= model.split.partialElements ||
                        s.m * s.n * model.split.partialShare <= (s.m + s.n) * s.k))
        for (int64_t chunks : {2, 4, 8, 16})
          if (s.k / chunks >= (s.m <= c.thinRows ? 128 : 512))
            chunkSizes.push_back(roundUp(ceilDiv(s.k, chunks), 64));
      for (int64_t chunkK : chunkSizes) {
        std::vector<int64_t> blockSizes = {chunkK};
        for (int64_t block : {256, 512, 1024})
          if (chunkK > block)
            blockSizes.push_back(roundUp(ceilDiv(chunkK, ceilDiv(chunkK, block)), 16));
        for (int64_t blockK : blockSizes) {
          MatmulTiling t{1, tileM, tileN, chunkK, blockK};
          if (copiedBytes(s, t) > c.copyBytes)
            continue;
          double value = cost(s, t, model);
          // Cost of writing partial sums and reading them again.
          if (int64_t chunks = t.chunks(s); chunks > 1)
            value += 3000.0 + static_cast<double>(chunks * s.m * s.n * s.batch) * 4 * 2 * 0.05;
          if (best.tileM == 0 || value < bestCost) {
            best = t;
            bestCost = value;
          }
        }
      }
    }
  return best;
}

// Products of few rows are bound by reading the second matrix. A tile is a range of columns, wide enough that the
// pieces of rows of B stream.

namespace {
double nanoseconds(const MatmulShape &s, const FewRowsModel &c) {
  double products = static_cast<double>(s.n) * static_cast<double>(s.k);
  return std::max(2 * static_cast<double>(s.m) * products / (s.elementBytes == 2 ? c.narrowFlopsPerNs : c.flopsPerNs),
                  products * static_cast<double>(s.roundsB ? 4 : s.elementBytes) / c.bytesPerNs);
}
} // namespace

runtime::MatmulTiling chooseFewRowsTiling(const MatmulShape &s, const CpuModel &model) {
  const FewRowsModel &c = model.fewRows;
  int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(nanoseconds(s, c) / c.tileNs), 1, c.mostTiles);
  int64_t unit = s.transB || s.m > 6 ? c.unit : s.m > 2 ? 2 * c.unit : 4 * c.unit;
  while (unit > c.unit && ceilDiv(s.n, unit) < c.fewTiles)
    unit /= 2;
  int64_t columns = wanted == 1 ? s.n : std::min(s.n, roundUp(ceilDiv(s.n, wanted), unit));
  return {1, s.m, columns, s.k, s.k};
}

bool suitsFewRows(const MatmulShape &s, const CpuModel &model) {
  // Measured on Zen 4, two cores, operands in the last cache.
  const FewRowsModel &c = model.fewRows;
  if (s.transA || s.batch > 1)
    return false;
  // This kernel widens or rounds operands again for each 8 rows; panels do it once. (The same rule holds for an operand
  // that is rounded and for its rounded copy, so that both give the same bits.)
  if (s.elementBytes == 2 || s.widened)
    return s.m <= c.mostPairRows;
  return s.m <= (s.transB && s.k > c.shortSum ? c.mostRowsOfLongSums : runtime::kMostFewRows);
}

// Products whose rows go to a kernel. Sums run through K in the same blocks as in a plain product, so that the bits are
// the same. The plain product's tiling therefore decides the blocks, and which products qualify.

std::optional<MatmulTiling> chooseRowsTiling(const MatmulShape &shape, const MatmulTiling &plain, bool packed,
                                             const CpuModel &model) {
  const RowsModel &c = model.rows;
  int64_t blockK = packed ? plain.blockK : shape.k;
  bool sameSums = plain.chunks(shape) == 1 && (packed || plain.blockK == shape.k);
  if (shape.batch != 1 || shape.narrowC || !sameSums)
    return std::nullopt;
  // The shared panels must not take more memory than C, which is not stored.
  uint64_t sharedBytes = runtime::RowwiseDesign(shape, 1, blockK).sharedBytes;
  if (sharedBytes > static_cast<uint64_t>(shape.m * shape.n) * 4 || shape.m < packed::kRows)
    return std::nullopt;
  int64_t words = packed::wordsOf(blockK, elementsOfA(shape));
  auto rowsOf = [&](int64_t bytes) {
    return std::min(bytes / (shape.n * 4), c.panelBytes / (words * 4)) / packed::kRows * packed::kRows;
  };
  bool isNear = sharedBytes <= static_cast<uint64_t>(c.nearBytes) && rowsOf(c.nearRowsBytes) > 0;
  int64_t most = rowsOf(isNear ? c.nearRowsBytes : c.rowsBytes);
  if (most == 0)
    return std::nullopt;
  int64_t parts = std::max({int64_t(1), ceilDiv(shape.m, most), std::min(c.tiles, shape.m / c.leastRows)});
  int64_t tileM = std::min(most, roundUp(ceilDiv(shape.m, parts), packed::kRows));
  return MatmulTiling{1, tileM, shape.n, shape.k, blockK};
}

} // namespace tcc::target::cpu
