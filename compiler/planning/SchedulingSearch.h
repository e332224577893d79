//===- SchedulingSearch.h - improve an order by cuts and windows --*- C++ -*-===//
//
// Two ways to lower the peak. Cuts: at the step that most limits an order, a minimum cut gives the instructions that
// have to run before and after it to minimise the step's memory; both sides are then cut recursively, and a part that
// is already within the target is unchanged. Windows: a short run of instructions around the peak is solved exactly
// (SchedulingExact.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGSEARCH_H
#define TCC_PLANNING_SCHEDULINGSEARCH_H

#include "compiler/planning/Scheduling.h"
#include "compiler/planning/SchedulingBound.h"

namespace tcc::planning {

/// An order with the live bytes at each of its steps.
struct MeasuredOrder {
  Sequence order;
  std::vector<int64_t> live;  ///< before each step, and after the last
  std::vector<int64_t> steps; ///< during each step
  int64_t peak = 0;
  double average = 0; ///< of the steps

  bool betterThan(const MeasuredOrder &other) const {
    return peak != other.peak ? peak < other.peak : average < other.average;
  }
};
MeasuredOrder measured(const SchedulingGraph &graph, Sequence order);

class OrderSearch {
public:
  OrderSearch(const SchedulingGraph &graph, const SchedulingOptions &options);

  /// The best lower bound of every order's peak so far.
  int64_t lowerBound() const { return bound; }
  bool exhausted() const;
  void spend(uint64_t visits) { work += visits; }

  /// Splits by minimum cuts until every part is within the bound or can not be improved by a cut.
  MeasuredOrder splitByCuts(MeasuredOrder order, bool early);

  /// Solves windows around the peak exactly, as long as that helps.
  MeasuredOrder solveWindows(MeasuredOrder order, size_t window, uint64_t workPerWindow);

  /// Solves the whole program, ignoring values smaller than peak / part: improves the order, or proves that there is
  /// little to gain.
  MeasuredOrder solveCoarsely(MeasuredOrder order, int64_t part, uint64_t mostWork);

private:
  const SchedulingGraph &graph;
  const SchedulingOptions &options;
  std::vector<int64_t> bounds; ///< of each instruction's step, in any order
  LeastSteps cuts;
  int64_t bound = 0;
  uint64_t work = 0;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGSEARCH_H
