//===- PackingSearch.h - packing within a capacity --------------*- C++ -*-===//
//
// Decides whether buffers fit into an arena of a given capacity, by exact search with restarts; see PackingSearch.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_PACKINGSEARCH_H
#define TCC_PLANNING_PACKINGSEARCH_H

#include "compiler/planning/Packing.h"

#include <functional>
#include <optional>

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

} // namespace tcc::planning

#endif // TCC_PLANNING_PACKINGSEARCH_H
