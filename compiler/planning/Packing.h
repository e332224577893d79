//===- Packing.h - offsets for buffers of known lifetime --------*- C++ -*-===//
//
// Dynamic storage allocation: place buffers with known live ranges in one arena so that no two that live at the same
// time overlap, and the arena is small. NP-hard (Garey and Johnson 1979, SR2); best-fit in several deterministic
// orders, the best answer kept. The largest sum of live bytes bounds every answer from below.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKING_H
#define TCC_PLANNING_PACKING_H

#include <cstdint>
#include <string>
#include <vector>

namespace tcc::planning {

using Bytes = uint64_t;
using Time = int64_t;

/// A block of memory that lives during [first, last], both included.
struct PackingBuffer {
  std::string name;
  Bytes bytes = 0;
  Time first = 0;
  Time last = 0;
};

struct PackingProblem {
  std::vector<PackingBuffer> buffers;
  Bytes alignment = 64; ///< offsets are multiples of it; sizes are rounded up to it
};

struct PackingSolution {
  std::vector<Bytes> offsets; ///< one per buffer
  Bytes bytes = 0;            ///< size of the arena
  Bytes lowerBound = 0;       ///< the most bytes live at once, sizes rounded up
};

/// Places every buffer. Time O(orders · n²) for n buffers; the same problem gives the same solution.
PackingSolution pack(const PackingProblem &problem);

/// Checks a solution by pairwise comparison, independently of how it was found. Empty if valid, else what is wrong,
/// with the names of the two clashing buffers.
std::string validate(const PackingProblem &problem, const PackingSolution &solution);

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKING_H
