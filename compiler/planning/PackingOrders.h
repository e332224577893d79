//===- PackingOrders.h - best-fit in orders that learn from failures --*- C++ -*-===//
//
// Best-fit in one order after another; buffers beyond the best arena move forward. See PackingOrders.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKINGORDERS_H
#define TCC_PLANNING_PACKINGORDERS_H

#include "compiler/planning/Packing.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace tcc::planning {

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

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKINGORDERS_H
