//===- PackedTiling.cpp - how a product on packed panels is cut -----------===//
//
// As in MatmulTiling.cpp: a small model of what a tiling costs, in cycles of one core of Zen 4, and the cheapest of a
// list of candidates, the first of equals. The constants decide speed, never results between machines of one plan.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/MatmulTiling.h"

#include <algorithm>

namespace tcc::runtime {

namespace {
using namespace tiling;
using packed::kRows, packed::kVector, packed::kVectors;

constexpr double kStepLatency = 5.0;  // of one multiply-add, which a panel of few sums waits for
constexpr double kPanelCycles = 40.0; // of a pair of panels, beside its sums
constexpr double kSumCycles = 2.5;    // to store a vector of sums, and to load it where it is not the first
constexpr double kPackColumns = 10.0; // a vector of words of B, which goes to the second cache
constexpr double kCopyAhead = 2.0;    // the same while products are made
constexpr double kPackRows = 4.0;     // a word of a panel of A
constexpr double kTileCycles = 600.0;
constexpr double kFetchPerByte = 0.12;                          // packing waits for what no cache of the core holds
constexpr double kStreamPerByte = 0.3;                          // nor the last cache
constexpr int64_t kBlockWords = 384, kBlockWordsInPlace = 1024; // of K at most; where rows of A are not copied
constexpr int64_t kPanelBytes = 640 << 10;                      // of A, in the second cache
constexpr int64_t kSlotBytes = 3 << 19;                         // of a worker: planned memory, so kept small
// Where the library is slower.
constexpr int64_t kFewRows = 48, kWideRow = 2048, kNarrowRow = 512, kShortSum = 256, kSum = 512;
constexpr int64_t kPairsSum = 768, kPairsLongSum = 1024, kPairsWideRow = kPairsSum + 1; // bf16

bool pairs(const MatmulShape &s) { return s.elementBytes == 2; }

bool rowsInPlace(const MatmulShape &s) {
  return packed::readsRowsInPlace({nullptr, 0, !s.transA, elementsOfA(s)}, s.k);
}

/// Cycles of one tile.
double tileCost(const MatmulShape &s, const MatmulTiling &t) {
  double rowPanels = static_cast<double>(ceilDiv(t.tileM, kRows)), rows = static_cast<double>(t.tileM) / rowPanels;
  double vectors = static_cast<double>(ceilDiv(t.tileN, kVector));
  double columnPanels = static_cast<double>(ceilDiv(ceilDiv(t.tileN, kVector), kVectors));
  double width = vectors / columnPanels;
  double words = static_cast<double>(pairs(s) ? ceilDiv(t.chunkK, 2) : t.chunkK);
  double blocks = static_cast<double>(ceilDiv(t.chunkK, t.blockK));
  double step = std::max({rows * width, kStepLatency, 0.6 * (rows + width)});
  double stored = rows * width * kSumCycles * (2 * blocks - 1) + kPanelCycles * blocks;
  double k = static_cast<double>(t.chunkK);
  auto waiting = [&](int64_t whole, double lanes, uint64_t elementBytes) {
    double bytes = static_cast<double>(elementBytes);
    bool streams = static_cast<double>(whole * s.k) * bytes > static_cast<double>(kLastCacheBytes);
    return lanes * k * bytes * (streams ? kStreamPerByte : kFetchPerByte);
  };
  double cycles =
      rowPanels * columnPanels * (words * step + stored) + waiting(s.m, static_cast<double>(t.tileM), s.elementBytes);
  if (!rowsInPlace(s))
    cycles += words * rowPanels * kPackRows;
  // The first panel of B waits, others of words that need no shuffling are copied on the way.
  double waited = s.transB || pairs(s) ? vectors : width;
  cycles += words * (waited * kPackColumns + (vectors - waited) * kCopyAhead) +
            waiting(s.n, waited * kVector, s.roundsB ? 4 : s.elementBytes);
  return cycles + kTileCycles;
}

double cost(const MatmulShape &s, const MatmulTiling &t) {
  int64_t whole = ceilDiv(s.m, t.tileM) * ceilDiv(s.n, t.tileN);
  int64_t count = whole * t.chunks(s);
  // A tail costs more than its share of a full tile, and less than a full one.
  double tiles =
      0.5 * (static_cast<double>(s.m * s.n) / static_cast<double>(t.tileM * t.tileN) + static_cast<double>(whole));
  double k = static_cast<double>(s.k) / static_cast<double>(t.chunkK);
  // Partial sums are written and read again.
  double partial = t.chunks(s) > 1 ? 8000 + 0.4 * static_cast<double>(t.chunks(s) * s.m * s.n) * 2 : 0;
  return tileCost(s, t) * tiles * k * (0.9 * imbalance(count, 2) + 0.1 * imbalance(count, 8)) + partial;
}

/// The blocks of K that fill the caches, of equal size.
int64_t blockOf(const MatmulShape &s, int64_t chunkK) {
  int64_t most = (rowsInPlace(s) ? kBlockWordsInPlace : kBlockWords) * (pairs(s) ? 2 : 1);
  return std::min(chunkK, roundUp(ceilDiv(chunkK, ceilDiv(chunkK, most)), 16));
}

bool fits(const MatmulShape &s, const MatmulTiling &t) {
  int64_t words = pairs(s) ? ceilDiv(t.blockK, 2) : t.blockK, panels = rowsInPlace(s) ? 0 : t.tileM * words * 4;
  int64_t sums = t.blockK < t.chunkK ? t.tileM * t.tileN * 4 : 0; // at most: C itself may hold them
  return panels <= kPanelBytes && panels + sums <= kSlotBytes;
}

/// Tile sizes worth trying along an axis: equal parts of it, of whole panels.
std::vector<int64_t> candidates(int64_t size, int64_t unit, int64_t least) {
  std::vector<int64_t> result = {size};
  for (int64_t parts = 2; result.back() > least; parts += parts < 16 ? 1 : parts / 8)
    if (int64_t tile = roundUp(ceilDiv(size, parts), unit); tile < result.back())
      result.push_back(tile);
  return result;
}
} // namespace

packed::Elements elementsOfA(const MatmulShape &shape) {
  return shape.widened             ? packed::Elements::WideBf16
         : shape.elementBytes == 2 ? packed::Elements::Bf16
                                   : packed::Elements::F32;
}

packed::Elements elementsOfB(const MatmulShape &shape) {
  if (!shape.roundsB)
    return elementsOfA(shape);
  return shape.widened ? packed::Elements::WideRounded : packed::Elements::Rounded;
}

MatmulTiling choosePackedTiling(const MatmulShape &s) {
  double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  MatmulTiling best{};
  double bestCost = 0;
  auto consider = [&](const MatmulTiling &t) {
    if (!fits(s, t))
      return;
    double value = cost(s, t);
    if (best.tileM == 0 || value < bestCost) {
      best = t;
      bestCost = value;
    }
  };
  // Waking workers for a small product would cost more.
  if (flops < 1e6)
    consider({1, s.m, s.n, s.k, blockOf(s, s.k)});
  if (best.tileM)
    return best;
  for (int64_t tileM : candidates(s.m, kRows, 32))
    for (int64_t tileN : candidates(s.n, kVector, 48)) {
      std::vector<int64_t> chunkSizes = {s.k};
      int64_t tiles = ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN);
      if (tiles < 8 && (s.m * s.n <= kPartialElements || s.m * s.n * kPartialShare <= (s.m + s.n) * s.k))
        for (int64_t chunks : {2, 4, 8, 16})
          if (s.k / chunks >= 512)
            chunkSizes.push_back(roundUp(ceilDiv(s.k, chunks), 64));
      for (int64_t chunkK : chunkSizes)
        consider({1, tileM, tileN, chunkK, blockOf(s, chunkK)});
    }
  return best;
}

bool suitsPanels(const MatmulShape &s) {
  // Measured on Zen 4, two cores, operands in memory. The library is as fast or faster where it is called once for a
  // tile that needs no copies, where C is so narrow that packing has few products to hide behind, and where B has to
  // be transposed, which nothing hides.
  if (s.m < kFewRows || s.batch > 1)
    return false;
  // The library gets copies that are widened.
  if (s.widened)
    return true;
  // The library interleaves bf16 anew for each tile.
  if (pairs(s))
    return s.n >= kNarrowRow && (s.transA   ? s.n >= kPairsWideRow || s.k >= kPairsLongSum
                                 : s.transB ? s.k >= kPairsSum
                                            : s.k >= kShortSum);
  if (s.transB)
    return s.n >= kWideRow && s.k < kSum;
  return s.n >= kWideRow || (s.n >= kNarrowRow && s.k >= kShortSum);
}

} // namespace tcc::runtime
