//===- MatmulTiling.cpp - how a product is cut, from its shape alone -----===//
//
// A small model of what a tiling costs: arithmetic at the rate of one core, copies of operands that are not dense, the
// library's own transposition, a fixed cost per call, and idle workers where tiles do not divide evenly among few or
// many workers. The cheapest of a list of candidates is taken, the first of equals. The constants are measured on one
// core of Zen 4; they decide speed, never results between machines of one plan.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/MatmulTiling.h"

#include <algorithm>

namespace tcc::runtime {

namespace {
using namespace tiling;
constexpr double kFlopsPerNs = 115.0;
constexpr double kNarrowFlopsPerNs = 228.0;  // bf16 products
constexpr double kCopyNsPerByte = 0.07;      // read strided, write dense, mostly from the second and third cache
constexpr double kTransposeNsPerByte = 0.05; // inside the library
constexpr double kInterleaveNsPerByte = 0.022; // inside the library: bf16 wants pairs of rows of B side by side
constexpr double kCallNs = 700.0;
constexpr double kStreamNsPerByte = 0.08; // from memory, where an operand is larger than the last cache
constexpr double kFetchNsPerByte = 0.02;  // from the last cache, where a part does not stay in the worker's own
constexpr int64_t kCacheBytes = 1 << 20;
constexpr int64_t kCopyBytes = 3 << 19; // copies of a worker: planned memory, so kept small
constexpr int64_t kHiddenRows = 96;     // from so many rows on, arithmetic hides that B comes from the last cache
constexpr int64_t kThinRows = 32; // so few rows of A wait for B: a chunk of K is a dense part of B, its columns a copy

/// Tile sizes worth trying along an axis: the whole axis, then fixed widths.
std::vector<int64_t> candidates(int64_t size, std::initializer_list<int64_t> widths) {
  std::vector<int64_t> result = {size};
  for (int64_t width : widths)
    if (width < size)
      result.push_back(width);
  return result;
}

/// What a worker needs for copies.
int64_t copiedBytes(const MatmulShape &s, const MatmulTiling &t) {
  return t.tileBatch * (((t.packA(s) ? t.tileM * t.blockK : 0) + (t.packB(s) ? t.tileN * t.blockK : 0)) *
                            static_cast<int64_t>(s.elementBytes) +
                        (t.packC(s) ? t.tileM * t.tileN * static_cast<int64_t>(t.bytesOfC(s)) : 0));
}

double cost(const MatmulShape &s, const MatmulTiling &t) {
  double m = static_cast<double>(t.tileM), n = static_cast<double>(t.tileN), k = static_cast<double>(t.chunkK);
  double size = static_cast<double>(s.elementBytes);
  double blocks = static_cast<double>(ceilDiv(t.chunkK, t.blockK));
  double rowFill = t.tileM >= 24 ? 1.0 : 1.0 + 0.2 * static_cast<double>(24 - t.tileM) / 24;
  double columnFill = static_cast<double>(roundUp(t.tileN, 16)) / n;
  double rate = s.elementBytes == 2 ? kNarrowFlopsPerNs : kFlopsPerNs;
  double time = 2 * m * n * k / rate * rowFill * columnFill + blocks * kCallNs;
  int64_t working = t.blockK * (t.tileM + t.tileN) * static_cast<int64_t>(s.elementBytes) +
                    t.tileM * t.tileN * static_cast<int64_t>(t.bytesOfC(s));
  if (working > 2 * kCacheBytes)
    time *= 1.12;
  else if (working > kCacheBytes + kCacheBytes / 4)
    time *= 1.04;
  if (!s.transB && !t.packB(s) && s.n >= 1024)
    time *= 1.02; // columns of a wide matrix in place: every row is another page
  auto streamed = [&](int64_t columns) {
    return columns * s.k * static_cast<int64_t>(s.elementBytes) > kLastCacheBytes;
  };
  time += ((streamed(s.m) ? m * k : 0) + (streamed(s.n) ? n * k : 0)) * size * kStreamNsPerByte;
  // Tiles of one column panel follow each other: its part of B is read again by each, unless it stays in the cache.
  if (s.batch == 1 && t.tileM < s.m && t.tileM < kHiddenRows &&
      t.tileN * t.chunkK * static_cast<int64_t>(s.elementBytes) > kCacheBytes)
    time += n * k * size * kFetchNsPerByte;
  double copied = ((t.packA(s) ? m * k : 0) + (t.packB(s) ? n * k : 0)) * size +
                  (t.packC(s) ? m * n * static_cast<double>(t.bytesOfC(s)) : 0);
  double transposed = ((s.transA ? m * k : 0) + (s.transB ? n * k : 0)) * size;
  double interleaved = s.elementBytes == 2 && !s.transB ? n * k * size : 0;
  time += copied * kCopyNsPerByte + transposed * kTransposeNsPerByte + interleaved * kInterleaveNsPerByte +
          (blocks > 1 ? blocks * m * n * 0.05 : 0);
  int64_t whole = ceilDiv(s.m, t.tileM) * ceilDiv(s.n, t.tileN), count = s.batch * whole * t.chunks(s);
  // A tail costs more than its share of a full tile, and less than a full one.
  double tiles = 0.5 * (static_cast<double>(s.m) / m * static_cast<double>(s.n) / n + static_cast<double>(whole));
  return time * tiles * static_cast<double>(s.k) / k * (0.9 * imbalance(count, 2) + 0.1 * imbalance(count, 8));
}
} // namespace

int64_t MatmulTiling::tiles(const MatmulShape &s) const {
  return ceilDiv(s.batch, tileBatch) * ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN) * chunks(s);
}

MatmulPlace MatmulTiling::placeOf(const MatmulShape &s, int64_t tile) const {
  int64_t tilesM = ceilDiv(s.m, tileM), tilesN = ceilDiv(s.n, tileN), tilesBatch = ceilDiv(s.batch, tileBatch);
  int64_t inPlane = tile % (tilesM * tilesN), outer = tile / (tilesM * tilesN);
  return {outer % tilesBatch * tileBatch, inPlane % tilesM * tileM, inPlane / tilesM * tileN, outer / tilesBatch};
}

MatmulTiling chooseTiling(const MatmulShape &s) {
  double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);

  // Small products: several whole ones a tile, of about 6 MFLOP each.
  if (s.batch > 1 && flops < 4e6) {
    int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(6e6 / flops));
    int64_t tiles =
        std::max<int64_t>(ceilDiv(s.batch, wanted), std::min<int64_t>(s.batch, flops * s.batch > 4e6 ? 16 : 1));
    return {ceilDiv(s.batch, tiles), s.m, s.n, s.k, s.k};
  }
  // A single small product is one tile; waking workers would cost more.
  if (s.batch == 1 && flops < 1e6)
    return {1, s.m, s.n, s.k, s.k};

  MatmulTiling best{};
  double bestCost = 0;
  for (int64_t tileM : candidates(s.m, {32, 64, 96, 128, 192, 256, 384, 512}))
    for (int64_t tileN : candidates(s.n, {64, 96, 128, 192, 256, 384, 512})) {
      std::vector<int64_t> chunkSizes = {s.k};
      int64_t tiles = s.batch * ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN);
      if (tiles < 8 && (s.m * s.n * s.batch <= kPartialElements || s.m * s.n * kPartialShare <= (s.m + s.n) * s.k))
        for (int64_t chunks : {2, 4, 8, 16})
          if (s.k / chunks >= (s.m <= kThinRows ? 128 : 512))
            chunkSizes.push_back(roundUp(ceilDiv(s.k, chunks), 64));
      for (int64_t chunkK : chunkSizes) {
        std::vector<int64_t> blockSizes = {chunkK};
        for (int64_t block : {256, 512, 1024})
          if (chunkK > block)
            blockSizes.push_back(roundUp(ceilDiv(chunkK, ceilDiv(chunkK, block)), 16));
        for (int64_t blockK : blockSizes) {
          MatmulTiling t{1, tileM, tileN, chunkK, blockK};
          if (copiedBytes(s, t) > kCopyBytes)
            continue;
          double value = cost(s, t);
          // Partial sums are written and read again.
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

} // namespace tcc::runtime
