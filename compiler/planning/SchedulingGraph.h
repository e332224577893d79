//===- SchedulingGraph.h - a program as a graph for scheduling --*- C++ -*-===//
//
// When every instruction is executed once, what lives depends on the set of executed instructions alone, not on their
// order, and a step's memory on that set and the instruction. So the orders of a program are the paths through its
// sets that are closed under predecessors, and a path's peak is the largest step on it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULINGGRAPH_H
#define TCC_PLANNING_SCHEDULINGGRAPH_H

#include "compiler/planning/Program.h"

namespace tcc::planning {

/// The program with sizes rounded as packing rounds them, and precedence from values and state as one relation.
struct SchedulingGraph {
  explicit SchedulingGraph(const Program &program);

  struct Value {
    int64_t bytes = 0; ///< rounded up to the alignment of packing; 0 where the value is left out
    int producer = -1; ///< −1: an input
    bool atExit = false;
    std::vector<int> readers; ///< ascending, each once
    /// It lives until somebody has read it, or to the end; else during its own step (an input: the first one) alone.
    bool outlives() const { return atExit || !readers.empty(); }
  };
  struct Node {
    int64_t workspace = 0;
    std::vector<int> reads, writes; ///< values; those left out are not among them
    std::vector<std::pair<int, int>> inPlace;
    std::vector<int> before, after; ///< instructions, ascending, each once
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  /// The program's own order; where that overwrites state too early, with what has to run before moved up. Empty where
  /// instructions wait for each other in a circle.
  Sequence given;
  int64_t entryBytes = 0; ///< inputs
  int64_t exitBytes = 0;  ///< values that live to the end

  size_t size() const { return nodes.size(); }

  /// The same with smaller values counted as 0 bytes: a lower bound of its orders is one of this graph's orders.
  SchedulingGraph withoutSmallValues(int64_t leastBytes) const;
};

/// The live bytes while instructions are executed one after another (or taken back, last first).
class LiveBytes {
public:
  explicit LiveBytes(const SchedulingGraph &graph);

  bool ready(int node) const { return waiting[size_t(node)] == 0; }
  /// How many of `node`'s predecessors are not done.
  size_t missing(int node) const { return size_t(waiting[size_t(node)]); }
  bool done(int node) const { return executed[size_t(node)]; }
  int64_t live() const { return bytes; }
  /// Live bytes while `node` would run next; its predecessors have to be done.
  int64_t during(int node) const;
  /// Live bytes once `node` has run next.
  int64_t afterwards(int node) const;
  /// Bytes of the operands that nobody but `node` still waits for.
  int64_t freedBy(int node) const { return freed(node, 1); }
  /// Live bytes beside an instruction, and while it runs, less those that live now.
  struct Change {
    int64_t beside, during;
  };
  /// Once `node` has run next. Follows from `node` and who else reads its operands alone.
  Change byRunning(int node) const { return {taken(node) - freed(node, 1), step(node, 1)}; }
  /// Before `node` ran, which is taken back next. Follows from the same.
  Change byTakingBack(int node) const {
    const int64_t before = freed(node, 0) - taken(node);
    return {before, before + step(node, 0)};
  }
  void run(int node);
  void takeBack(int node);
  /// The same for the bytes alone: a node that thousands wait for can be tried and taken back without telling them.
  void tryRun(int node);
  void untry(int node);
  /// How many of `value`'s readers are not done.
  int readersLeft(int value) const { return left[size_t(value)]; }

private:
  /// Bytes of operands that `readers` are left of: none but `node`, before it runs (1) and after (0).
  int64_t freed(int node, int readers) const;
  /// What `node` takes beside what lives before it, its results alone in place of such operands.
  int64_t step(int node, int readers) const;
  /// Bytes of results that live on.
  int64_t taken(int node) const;

  const SchedulingGraph &graph;
  std::vector<int> left, waiting;
  std::vector<char> executed;
  int64_t bytes = 0;
  int64_t unread = 0; ///< inputs that nobody reads live during the first step
  size_t steps = 0;
  mutable std::vector<uint64_t> takesPart; ///< by value: the question (a number) in which it is part of a pair
  mutable uint64_t question = 0;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGGRAPH_H
