//===- PackingRepair.h - repair a packing after live ranges change --*- C++ -*-===//
//
// If only a few live ranges grow or move after packing, most buffers can keep their offsets. Of two buffers that now
// clash the smaller one moves, largest first: into the best-fitting gap, or to the offset where it ejects the fewest
// bytes of other buffers, which then move in turn (an ejection chain of bounded length).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKINGREPAIR_H
#define TCC_PLANNING_PACKINGREPAIR_H

#include "compiler/planning/Packing.h"

#include <vector>

namespace tcc::planning {

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

#endif // TCC_PLANNING_PACKINGREPAIR_H
