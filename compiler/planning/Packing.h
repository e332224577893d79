//===- Packing.h - offsets for buffers of known lifetime --------*- C++ -*-===//
//
// Dynamic storage allocation: place buffers with known live ranges in one arena so that no two that live at the same
// time overlap, and the arena is small. NP-hard (Garey and Johnson 1979, SR2). Best-fit in several deterministic orders
// comes first. If its best arena is larger than the most bytes live at once, a lower bound of every packing, an exact
// search (PackingSearch.h) tries to reach that bound, then capacities in between.
//
// Scratch of an instruction is placed above all buffers live during it, so that it can grow with the number of threads
// without a new packing. A packing keeps that much of the arena free above each of these buffers.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKING_H
#define TCC_PLANNING_PACKING_H

#include <cstdint>
#include <functional>
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

/// A block of memory at one point in time, above every buffer that lives then.
struct PackingScratch {
  Time at = 0;
  Bytes bytes = 0;
};

struct PackingProblem {
  std::vector<PackingBuffer> buffers;
  Bytes alignment = 64; ///< offsets are multiples of it; sizes are rounded up to it
  std::vector<PackingScratch> scratch = {}; ///< at most one block for each point in time
};

/// How hard to try, in visits of a buffer at one point in time (a few hundred million take a second).
constexpr uint64_t kPackingWork = 200'000'000;

struct PackingSolution {
  std::vector<Bytes> offsets; ///< one per buffer
  Bytes bytes = 0;            ///< size of the arena, scratch included
  Bytes lowerBound = 0;       ///< no packing is smaller: the most bytes live at once, or more where that is proved
};

/// The end of the highest buffer that lives with each block of scratch: the lowest offset that the block may have.
std::vector<Bytes> scratchOffsets(const PackingProblem &problem, const std::vector<Bytes> &offsets);

/// Size of the arena for buffers at these offsets, scratch included.
Bytes arenaBytes(const PackingProblem &problem, const std::vector<Bytes> &offsets);

/// Best-fit alone: O(orders · n²) for n buffers.
PackingSolution packGreedily(const PackingProblem &problem);

/// Places every buffer, never worse than packGreedily. The same problem and `work` give the same solution. `stop`, if
/// given, is polled and ends the search early; the solution then depends on time.
PackingSolution pack(const PackingProblem &problem, uint64_t work = kPackingWork,
                     const std::function<bool()> &stop = nullptr);

/// Checks a solution by pairwise comparison, independently of how it was found. Returns an empty string if it is valid,
/// else the violation with the names of the two clashing buffers.
std::string validate(const PackingProblem &problem, const PackingSolution &solution);

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKING_H
