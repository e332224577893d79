//===- PanelChoice.cpp - tiles of products on packed panels --------------===//
//
// Like MatmulChoice.cpp, this file estimates the cycles of each candidate tiling on one core of Zen 4 and takes the
// cheapest one, the first of equals. The constants affect speed, never a plan's results on different machines.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"

#include <algorithm>
#include <vector>

namespace tcc::target::cpu {

namespace {
using namespace runtime::tiling;
using runtime::MatmulShape, runtime::MatmulTiling;
using runtime::packed::kRows, runtime::packed::kVector, runtime::packed::kVectors;
namespace packed = runtime::packed;

/// Finds the cheapest tiling for few workers; among those that cost little more (PanelModel::slack) and sum in the same
/// order, the one that is fastest on many workers. (Not for the library's tiles: smaller ones cost it up to a sixth.)
class CheapestTiling {
public:
  explicit CheapestTiling(double slack) : slack(slack) {}
  /// `time`: of all tiles on one worker; `after`: of adding partial results. In any unit.
  void consider(const runtime::MatmulTiling &tiling, int64_t tiles, double time, double after) {
    double many = 0;
    for (int64_t workers : {16, 32, 64, 128})
      many += imbalance(tiles, workers) / static_cast<double>(workers);
    double few = 0.9 * imbalance(tiles, 2) + 0.1 * imbalance(tiles, 8);
    candidates.push_back({tiling, time * few + after, time * many + after});
  }
  bool empty() const { return candidates.empty(); }
  runtime::MatmulTiling best() const {
    const Candidate &cheapest = *std::min_element(candidates.begin(), candidates.end(),
                                                  [](const Candidate &a, const Candidate &b) { return a.few < b.few; });
    const Candidate *found = &cheapest;
    for (const Candidate &other : candidates)
      if (other.few <= slack * cheapest.few && other.many < found->many &&
          other.tiling.chunkK == cheapest.tiling.chunkK && other.tiling.blockK == cheapest.tiling.blockK)
        found = &other;
    return found->tiling;
  }

  std::vector<runtime::MatmulTiling> like(const runtime::MatmulTiling &usual, double mostLoss) const {
    std::vector<Candidate> found;
    double limit = 0;
    for (const Candidate &c : candidates) {
      if (c.tiling.chunkK == usual.chunkK && c.tiling.blockK == usual.blockK && c.tiling.tileBatch == usual.tileBatch)
        found.push_back(c);
      if (c.tiling.tileM == usual.tileM && c.tiling.tileN == usual.tileN && c.tiling.chunkK == usual.chunkK)
        limit = mostLoss * c.few;
    }
    std::erase_if(found, [&](const Candidate &c) { return c.few > limit; });
    std::stable_sort(found.begin(), found.end(), [](const Candidate &a, const Candidate &b) { return a.few < b.few; });
    std::vector<runtime::MatmulTiling> tilings;
    for (const Candidate &c : found)
      tilings.push_back(c.tiling);
    return tilings;
  }

private:
  struct Candidate {
    runtime::MatmulTiling tiling;
    double few, many;
  };
  double slack;
  std::vector<Candidate> candidates;
};

bool pairs(const MatmulShape &s) { return s.elementBytes == 2; }

bool rowsInPlace(const MatmulShape &s) {
  return packed::readsRowsInPlace({nullptr, 0, !s.transA, runtime::elementsOfA(s)}, s.k);
}

/// Cycles of one tile.
double tileCost(const MatmulShape &s, const MatmulTiling &t, const CpuModel &model) {
  double rowPanels = static_cast<double>(ceilDiv(t.tileM, kRows)), rows = static_cast<double>(t.tileM) / rowPanels;
  double vectors = static_cast<double>(ceilDiv(t.tileN, kVector));
  double columnPanels = static_cast<double>(ceilDiv(ceilDiv(t.tileN, kVector), kVectors));
  double width = vectors / columnPanels;
  double words = static_cast<double>(pairs(s) ? ceilDiv(t.chunkK, 2) : t.chunkK);
  double blocks = static_cast<double>(ceilDiv(t.chunkK, t.blockK));
  double step = std::max({rows * width, model.panels.stepLatency, 0.6 * (rows + width)});
  double stored = rows * width * model.panels.sumCycles * (2 * blocks - 1) + model.panels.panelCycles * blocks;
  double k = static_cast<double>(t.chunkK);
  auto waiting = [&](int64_t whole, double lanes, uint64_t elementBytes) {
    double bytes = static_cast<double>(elementBytes);
    bool streams = static_cast<double>(whole * s.k) * bytes > static_cast<double>(model.split.lastCacheBytes);
    return lanes * k * bytes * (streams ? model.panels.streamPerByte : model.panels.fetchPerByte);
  };
  double cycles =
      rowPanels * columnPanels * (words * step + stored) + waiting(s.m, static_cast<double>(t.tileM), s.elementBytes);
  if (!rowsInPlace(s))
    cycles += words * rowPanels * model.panels.packRows;
  // Packing the first panel of B stalls; further panels are copied during products, if their words need no shuffling.
  double waited = s.transB || pairs(s) ? vectors : width;
  cycles += words * (waited * model.panels.packColumns + (vectors - waited) * model.panels.copyAhead) +
            waiting(s.n, waited * kVector, s.roundsB ? 4 : s.elementBytes);
  return cycles + model.panels.tileCycles;
}

void consider(const MatmulShape &s, const MatmulTiling &t, const CpuModel &model, CheapestTiling &cheapest) {
  int64_t whole = ceilDiv(s.m, t.tileM) * ceilDiv(s.n, t.tileN);
  int64_t count = s.batch * whole * t.chunks(s);
  // A tail costs more than its share of a full tile, and less than a full one.
  double tiles =
      0.5 * (static_cast<double>(s.m * s.n) / static_cast<double>(t.tileM * t.tileN) + static_cast<double>(whole));
  double k = static_cast<double>(s.k) / static_cast<double>(t.chunkK);
  // Cost of writing partial sums and reading them again.
  double partial = t.chunks(s) > 1 ? 8000 + 0.4 * static_cast<double>(t.chunks(s) * s.m * s.n) * 2 : 0;
  cheapest.consider(t, count, tileCost(s, t, model) * tiles * k, partial);
}

/// The size of equal blocks of K that fill the caches.
int64_t blockOf(const MatmulShape &s, int64_t chunkK, const CpuModel &model) {
  int64_t most = (rowsInPlace(s) ? model.panels.blockWordsInPlace : model.panels.blockWords) * (pairs(s) ? 2 : 1);
  return std::min(chunkK, roundUp(ceilDiv(chunkK, ceilDiv(chunkK, most)), 16));
}

bool fits(const MatmulShape &s, const MatmulTiling &t, const CpuModel &model) {
  int64_t words = pairs(s) ? ceilDiv(t.blockK, 2) : t.blockK, panels = rowsInPlace(s) ? 0 : t.tileM * words * 4;
  int64_t sums = t.blockK < t.chunkK ? t.tileM * t.tileN * 4 : 0; // an upper bound: C itself may hold them
  return panels <= model.panels.panelBytes && panels + sums <= model.panels.slotBytes;
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

static CheapestTiling panelTilings(const MatmulShape &s, const CpuModel &model) {
  double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  CheapestTiling cheapest(model.panels.slack);
  auto tryOut = [&](const MatmulTiling &t) {
    if (fits(s, t, model))
      consider(s, t, model, cheapest);
  };
  int64_t block = blockOf(s, s.k, model);
  if (int64_t group = productsOfATile(s); group > 1 && block == s.k)
    tryOut({group, s.m, s.n, s.k, s.k});
  else if (flops < model.split.tileFlops)
    tryOut({1, s.m, s.n, s.k, block});
  if (!cheapest.empty())
    return cheapest;
  for (int64_t tileM : candidates(s.m, kRows, 32))
    for (int64_t tileN : candidates(s.n, kVector, 48)) {
      std::vector<int64_t> chunkSizes = {s.k};
      int64_t tiles = s.batch * ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN);
      if (tiles < 8 && (s.batch * s.m * s.n <= model.split.partialElements ||
                        s.m * s.n * model.split.partialShare <= (s.m + s.n) * s.k))
        for (int64_t chunks : {2, 4, 8, 16})
          if (s.k / chunks >= 512)
            chunkSizes.push_back(roundUp(ceilDiv(s.k, chunks), 64));
      for (int64_t chunkK : chunkSizes)
        tryOut({1, tileM, tileN, chunkK, blockOf(s, chunkK, model)});
    }
  return cheapest;
}

runtime::MatmulTiling choosePanelTiling(const MatmulShape &s, const CpuModel &model) {
  return panelTilings(s, model).best();
}

std::vector<MatmulTiling> panelTilingsLike(const MatmulShape &s, const MatmulTiling &usual, const CpuModel &model) {
  return panelTilings(s, model).like(usual, model.panels.scratchSlack);
}

bool suitsPanels(const MatmulShape &s, const CpuModel &model) {
  // Measured on Zen 4, two cores, operands in memory. The library is as fast or faster if it is called once for a tile
  // that needs no copies, if C is so narrow that few products hide the packing, or if B has to be transposed, which
  // nothing hides.
  if (s.m < model.panels.fewRows || s.batch > 1)
    return false;
  // The library would need widened copies.
  if (s.widened)
    return true;
  // The library interleaves bf16 anew for each tile.
  if (pairs(s))
    return s.n >= model.panels.narrowRow &&
           (s.transA   ? s.n >= model.panels.pairsWideRow || s.k >= model.panels.pairsLongSum
            : s.transB ? s.k >= model.panels.pairsSum
                       : s.k >= model.panels.shortSum);
  if (s.transB)
    return s.n >= model.panels.wideRow && s.k < model.panels.sum;
  return s.n >= model.panels.wideRow || (s.n >= model.panels.narrowRow && s.k >= model.panels.shortSum);
}

} // namespace tcc::target::cpu
