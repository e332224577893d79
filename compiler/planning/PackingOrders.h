//===- PackingOrders.h - best-fit in orders that learn from failures --*- C++ -*-===//
//
// Best-fit in one order after another, each made of what stuck out in the last; see PackingOrders.cpp.
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

/// For each buffer the largest scratch during its life: what the arena must have above its end.
std::vector<Bytes> scratchAbove(const PackingProblem &problem);

/// Most bytes live at once, scratch included, sizes rounded up to the alignment.
Bytes mostLive(const PackingProblem &problem);

/// What no packing goes below: the most bytes live at once; or, of buffers that live at once and all have at least some
/// scratch above them, sometime, the sum and that scratch: it lies above the highest of them.
Bytes leastArena(const PackingProblem &problem);

/// An arena that is small enough: no more time is spent on a smaller one. Without scratch that is the bound, which is
/// nearly always within reach; with scratch a five-hundredth above it.
Bytes goodArena(const PackingProblem &problem, Bytes bound);

/// Places buffers in `order`, each into the smallest gap between its already placed neighbours in time that holds it.
/// Nothing where the arena would not be smaller than `below`.
std::optional<PackingSolution> placeInOrder(const PackingProblem &problem, const std::vector<size_t> &order,
                                            Bytes below = ~Bytes(0));

/// Places buffers as they are born, each into the smallest gap between those that live then which does not enlarge the
/// arena, else into the lowest. Larger than by other orders, but the time grows with the buffers, not with their pairs.
PackingSolution placeByBirth(const PackingProblem &problem);

/// The orders that best-fit is tried in: by size, size times lifetime, lifetime, and birth; with scratch also by the
/// scratch above, then by size.
std::vector<std::vector<size_t>> packingOrders(const PackingProblem &problem);

/// Makes `best`, a packing of all buffers, smaller where other orders do. Takes what it uses from `work` (visits of a
/// buffer). The same problem and `work` give the same answer, but for `stop`, which is asked now and then.
void improveOrder(const PackingProblem &problem, PackingSolution &best, uint64_t &work,
                  const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKINGORDERS_H
