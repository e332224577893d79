//===- PackingRepair.h - repair a packing after live ranges change --*- C++ -*-===//
//
// Where a few buffers live longer, or at another time, than when they were packed, most may stay where they are. Of two
// that now clash the smaller one moves, the largest of those first: into the gap that fits it best, or to where others
// have to leave that hold the fewest bytes, and look for a place themselves (an ejection chain of bounded length).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKINGREPAIR_H
#define TCC_PLANNING_PACKINGREPAIR_H

#include "compiler/planning/Packing.h"

#include <vector>

namespace tcc::planning {

struct PackingRepair {
  std::vector<Bytes> offsets; ///< one per buffer
  std::vector<int> homeless;  ///< buffers that fit nowhere; the offsets are good where there are none
};

/// Offsets in an arena of `capacity`, scratch included, near those that were good for `before`: the same buffers with other lives.
/// O(n · c) for n buffers of which c live longer or move.
PackingRepair repairPacking(const PackingProblem &problem, const PackingProblem &before, std::vector<Bytes> offsets,
                            Bytes capacity);

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKINGREPAIR_H
