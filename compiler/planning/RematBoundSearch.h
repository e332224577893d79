//===- RematBoundSearch.h - best-first search for a bound -------*- C++ -*-===//
#ifndef TCC_PLANNING_REMATBOUNDSEARCH_H
#define TCC_PLANNING_REMATBOUNDSEARCH_H

#include "compiler/planning/RematBoundDual.h"

namespace tcc::planning {

struct RematSearchBound {
  double extra = 0.0;      ///< no schedule in the given order spends less on repetitions
  bool optimal = false;    ///< one spends just that
  bool infeasible = false; ///< there is none
};

/// Searches for at most `work` visits, and gives up early where `known`, a bound found otherwise, stays out of reach.
RematSearchBound boundBySearch(const RematProblem &problem, Bytes budget, const RematPrefixBounds &bounds, double known,
                               uint64_t work, const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATBOUNDSEARCH_H
