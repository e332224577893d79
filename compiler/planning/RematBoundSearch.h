//===- RematBoundSearch.h - best-first search for a bound -------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATBOUNDSEARCH_H
#define TCC_PLANNING_REMATBOUNDSEARCH_H

#include "compiler/planning/RematBoundDual.h"

namespace tcc::planning {

struct RematSearchBound {
  double extra = 0.0;      ///< no schedule in the given order spends less on repetitions
  bool optimal = false;    ///< some schedule spends exactly that
  bool infeasible = false; ///< no schedule meets the budget
};

/// Searches for at most `work` visits, and gives up early if it is unlikely to exceed `known`, a bound found otherwise.
RematSearchBound boundBySearch(const RematProblem &problem, Bytes budget, const RematPrefixBounds &bounds, double known,
                               uint64_t work, const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATBOUNDSEARCH_H
