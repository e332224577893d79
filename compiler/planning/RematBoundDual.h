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
  double extra = 0.0;         ///< no solution costs less; errors of rounding are taken off
  bool infeasible = false;    ///< there is none
  std::vector<double> prices; ///< of a byte at each milestone; [0] unused
};

/// Improves the multipliers for at most `work` visits. Once the bound reaches `enough`, it stops.
RematDualBound boundByDual(const RematModel &model, uint64_t work, double enough, const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATBOUNDDUAL_H
