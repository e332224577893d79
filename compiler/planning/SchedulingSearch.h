//===- SchedulingSearch.h - first orders, and how to improve them -*- C++ -*-===//
//
// Two ways to lower the peak. Cuts: at the step that most limits an order, a minimum cut gives the instructions that
// have to run before and after it to minimise the step's memory; both sides are then cut recursively, and a part that
// is already within the target is unchanged. Windows: a short run of instructions around the peak is solved exactly.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGSEARCH_H
#define TCC_PLANNING_SCHEDULINGSEARCH_H

#include "compiler/planning/Scheduling.h"
#include "compiler/planning/SchedulingBound.h"
#include "compiler/planning/SchedulingGraph.h"

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

// The exact search (SchedulingExact.cpp).
//
// Depth-first search over the closed sets of a segment; failed sets are remembered by a 64-bit hash. An instruction
// that fits and does not raise the live bytes runs at once, and no alternative is tried: live bytes are submodular in
// the set of executed instructions, so every order of the rest needs no more memory after it; and results that may take
// over an operand's memory still may.

enum class WithinLimit { Found, Impossible, Exhausted };

/// Looks for an order of the segment whose steps keep within `limit`, with the rest of `order` unchanged, and updates
/// `order` if it finds one. `valleys`: a failed set also rules out the sets on the way to it with as many or more live
/// bytes. That is nearly always right and prunes much, but Impossible is then no proof.
WithinLimit orderWithin(const SchedulingGraph &graph, Sequence &order, Segment segment, int64_t limit, bool valleys,
                        uint64_t mostWork, uint64_t &work);

// First orders (SchedulingOrders.cpp).

/// The same order, but an instruction that frees memory runs as soon as its operands are ready, if its step keeps
/// within `limit`. A few missing predecessors run with it if the live bytes still fall: such as the slice of the table
/// of learning rates that an update reads. No other step needs more than before, since fewer bytes are live.
Sequence freeEarly(const SchedulingGraph &graph, const Sequence &order, int64_t limit);

/// The same order, but an instruction that allocates memory runs as late as its readers allow.
Sequence allocateLate(const SchedulingGraph &graph, const Sequence &order);

/// An order in which the next instruction is the one that adds the fewest live bytes.
Sequence growLeast(const SchedulingGraph &graph);

/// The same from the end: the last instruction is the one with the fewest live bytes before it.
Sequence shrinkLeast(const SchedulingGraph &graph);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGSEARCH_H
