//===- PackingSearch.h - the three ways to pack buffers ---------*- C++ -*-===//
//
// An exact search with restarts decides whether buffers fit into an arena of a given capacity (PackingSearch.cpp);
// best-fit packs them in one order after another (PackingOrders.cpp); a repair adapts a packing to other live ranges
// (PackingRepair.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKINGSEARCH_H
#define TCC_PLANNING_PACKINGSEARCH_H

#include "compiler/planning/Packing.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace tcc::planning {

enum class SearchResult {
  Found,      ///< `offsets` is an answer
  Infeasible, ///< proved: no packing fits
  Exhausted   ///< `work` was spent without an answer
};

struct SearchAnswer {
  SearchResult result = SearchResult::Exhausted;
  std::vector<Bytes> offsets; ///< one per buffer where Found
  uint64_t work = 0;          ///< spent
};

/// Looks for offsets below `capacity` bytes. `work` limits the search in visits of a buffer at one point in time (some
/// hundred million a second), never in seconds: the same problem gives the same answer. `stop`, if given, is polled and
/// ends the search early; the answer then depends on time.
SearchAnswer packWithin(const PackingProblem &problem, Bytes capacity, uint64_t work,
                        const std::function<bool()> &stop = nullptr);

// Best-fit in one order after another; buffers beyond the best arena move forward.

Bytes roundUp(Bytes bytes, Bytes alignment);
bool overlapInTime(const PackingBuffer &a, const PackingBuffer &b);

/// For each buffer the largest scratch during its life: bytes that must stay free above its end.
std::vector<Bytes> scratchAbove(const PackingProblem &problem);

/// Most bytes live at once, scratch included, sizes rounded up to the alignment.
Bytes mostLive(const PackingProblem &problem);

/// A lower bound of every arena: the most bytes live at once, or the sum of simultaneously live buffers plus the least
/// scratch that any of them has above it in its life, since the highest of them needs that much room above.
Bytes leastArena(const PackingProblem &problem);

/// The arena size at which the search stops. Without scratch it is the bound, which is nearly always reachable; with
/// scratch a five-hundredth above it.
Bytes goodArena(const PackingProblem &problem, Bytes bound);

/// Places buffers in `order`, each into the smallest gap between its already placed neighbours in time that holds it.
/// Returns nothing if the arena would not be smaller than `below`.
std::optional<PackingSolution> placeInOrder(const PackingProblem &problem, const std::vector<size_t> &order,
                                            Bytes below = ~Bytes(0));

/// Places buffers in order of birth, each into the smallest gap between live buffers that does not enlarge the arena,
/// else into the lowest. Gives larger arenas than other orders, but does not visit pairs of buffers.
PackingSolution placeByBirth(const PackingProblem &problem);

/// The initial orders of best-fit: by size, size times lifetime, lifetime, and birth; with scratch also by the scratch
/// above, then by size.
std::vector<std::vector<size_t>> packingOrders(const PackingProblem &problem);

/// Replaces `best`, a packing of all buffers, by a smaller one if other orders give it. Deducts its visits of a buffer
/// from `work`. The same problem and `work` give the same answer, unless `stop`, which is polled, ends the search.
void improveOrder(const PackingProblem &problem, PackingSolution &best, uint64_t &work,
                  const std::function<bool()> &stop);

// Repair. If only a few live ranges grow or move after packing, most buffers can keep their offsets. Of two buffers
// that now clash the smaller one moves, largest first: into the best-fitting gap, or to the offset where it ejects the
// fewest bytes of other buffers, which then move in turn (an ejection chain of bounded length).

struct PackingRepair {
  std::vector<Bytes> offsets; ///< one per buffer
  std::vector<int> homeless;  ///< buffers that fit nowhere; the offsets are valid only if empty
};

/// Adapts `offsets`, valid for `before`, to `problem`: the same buffers with other live ranges, in an arena of
/// `capacity` that includes scratch. `changed`: the buffers that may overlap others in time than before, although all
/// positions may have shifted; null: any buffer. O(n · c) for n buffers of which c are changed; the repair does not
/// depend on `changed`.
PackingRepair repairPacking(const PackingProblem &problem, const PackingProblem &before, std::vector<Bytes> offsets,
                            Bytes capacity, const std::vector<bool> *changed = nullptr);

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKINGSEARCH_H
