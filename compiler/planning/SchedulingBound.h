//===- SchedulingBound.h - lower bounds of the peak of any order --*- C++ -*-===//
//
// Two lower bounds of the memory at an instruction's step in every order. Simple: values that its ancestors make and
// its descendants (or itself) read are live in every order. Exact for the step: the minimum over all sets of
// instructions that may have run before it. The bytes live after a set are the cost of a cut between the set and the
// rest (a value is cut if its producer is on one side and a reader on the other), so a minimum cut gives that set
// (Kayaaslan, Lambert, Marchal, Uçar 2018, for series-parallel graphs; project selection, Picard 1976, in general).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGBOUND_H
#define TCC_PLANNING_SCHEDULINGBOUND_H

#include "compiler/planning/MinimumCut.h"
#include "compiler/planning/SchedulingGraph.h"

namespace tcc::planning {

/// Which instructions precede which in every order: one bit for each pair of instructions.
class Precedence {
public:
  explicit Precedence(const SchedulingGraph &graph);

  bool comesBefore(int earlier, int later) const {
    return ancestors[size_t(later) * words + size_t(earlier) / 64] >> (earlier % 64) & 1;
  }
  size_t wordCount() const { return words; }
  const uint64_t *before(int node) const { return &ancestors[size_t(node) * words]; }
  const uint64_t *after(int node) const { return &descendants[size_t(node) * words]; }

private:
  size_t words = 0;
  std::vector<uint64_t> ancestors, descendants;
};

/// For each instruction a lower bound of the memory of its step in every order.
std::vector<int64_t> stepBounds(const SchedulingGraph &graph, const Precedence &precedence);

/// A part of an order: the instructions at the positions [begin, end), which may change places among themselves.
struct Segment {
  size_t begin = 0, end = 0;
};

/// The least memory during an instruction's step over all orders of a segment, and a set of the segment's instructions
/// that has run before it in such an order.
class LeastSteps {
public:
  explicit LeastSteps(const SchedulingGraph &graph);

  /// Sets the order that find() works on. `liveBefore[position]`: live bytes before the step there.
  void setOrder(const Sequence &order, const std::vector<int64_t> &liveBefore);

  /// Least memory during the step of the instruction at `position`, which is in the segment. `early`: finds the
  /// smallest of several minimal sets, else the largest.
  int64_t find(Segment segment, size_t position, bool early, uint64_t &work);
  /// After find: does the instruction at this position of the segment run before the step?
  bool runsBefore(size_t position) const { return before[position]; }

private:
  const SchedulingGraph &graph;
  const Sequence *order = nullptr;
  const std::vector<int64_t> *liveBefore = nullptr;
  std::vector<size_t> positionOf; ///< by instruction
  std::vector<char> before;       ///< by position
  std::vector<int> place;         ///< by position: node of the network
  std::vector<uint64_t> seen;     ///< by value: number of the last call of find() that handled it
  uint64_t question = 0;
  FlowNetwork network; ///< of the last call: kept to reuse its memory
};

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGBOUND_H
