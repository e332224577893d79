//===- RematBoundDual.h - dual of the relaxation ----------------*- C++ -*-===//
//
// Lower bounds of the program of RematBoundModel.h by multipliers of its rows.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_REMATBOUNDDUAL_H
#define TCC_PLANNING_REMATBOUNDDUAL_H

#include "compiler/planning/RematBoundModel.h"

#include <functional>

namespace tcc::planning {

struct RematDualBound {
  double extra = 0.0;         ///< no solution costs less; rounding errors are subtracted
  bool infeasible = false;    ///< there is none
  std::vector<double> prices; ///< of a byte at each milestone; [0] unused
};

/// Improves the multipliers for at most `work` visits. Once the bound reaches `enough`, it stops.
RematDualBound boundByDual(const RematModel &model, uint64_t work, double enough, const std::function<bool()> &stop);

/// Bounds of every prefix of the schedules in the given order: of the executions from the start up to some time
/// between the milestones m and m + 1.
struct RematPrefixBounds {
  struct Prefix {
    double least = 0.0;       ///< lower bound of the cost of its repetitions
    std::vector<double> rise; ///< increase of the bound for each output that has to be available at its end
  };
  std::vector<int> milestones;  ///< node of each; [0] is −1
  std::vector<Prefix> prefixes; ///< by m
};

/// Prefix bounds by good multipliers of a whole model in the given order. Spans are omitted, since one that reaches
/// beyond a prefix does not constrain it.
RematPrefixBounds boundPrefixes(RematModel model, uint64_t work, const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATBOUNDDUAL_H
