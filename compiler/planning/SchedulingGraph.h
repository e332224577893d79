//===- SchedulingGraph.h - a program as a graph for scheduling --*- C++ -*-===//
//
// If every instruction is executed once, the live values depend only on the set of executed instructions, not on their
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
    int64_t bytes = 0; ///< rounded up to the alignment of packing; 0 if the value is omitted
    int producer = -1; ///< −1: an input
    bool atExit = false;
    std::vector<int> readers; ///< ascending, each once
    /// True if it lives until its readers have run, or to the end; else it lives only during its own step (an input:
    /// during the first step).
    bool outlives() const { return atExit || !readers.empty(); }
  };
  struct Node {
    int64_t workspace = 0;
    std::vector<int> reads, writes; ///< values, without omitted ones
    std::vector<std::pair<int, int>> inPlace;
    std::vector<int> before, after; ///< instructions, ascending, each once
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  /// The program's own order; if that overwrites state too early, with the readers of that state moved up. Empty
  /// if dependences are cyclic.
  Sequence given;
  int64_t entryBytes = 0; ///< inputs
  int64_t exitBytes = 0;  ///< values that live to the end

  size_t size() const { return nodes.size(); }

  /// The same graph with smaller values counted as 0 bytes: a lower bound of its orders also holds for this graph.
  SchedulingGraph withoutSmallValues(int64_t leastBytes) const;
};

/// The live bytes while instructions are executed one by one (or taken back, last first).
class LiveBytes {
public:
  explicit LiveBytes(const SchedulingGraph &graph);

  bool ready(int node) const { return waiting[size_t(node)] == 0; }
  /// Number of `node`'s predecessors that have not run.
  size_t missing(int node) const { return size_t(waiting[size_t(node)]); }
  bool done(int node) const { return executed[size_t(node)]; }
  int64_t live() const { return bytes; }
  /// Live bytes during `node` if it runs next; its predecessors must have run.
  int64_t during(int node) const;
  /// Live bytes after `node` if it runs next.
  int64_t afterwards(int node) const;
  /// Bytes of the operands whose only remaining reader is `node`.
  int64_t freedBy(int node) const { return freed(node, 1); }
  /// Change of live bytes by an instruction: once it has run (or is taken back), and while it runs.
  struct Change {
    int64_t beside, during;
  };
  /// The change if `node` runs next. Depends only on `node` and the other readers of its operands.
  Change byRunning(int node) const { return {taken(node) - freed(node, 1), step(node, 1)}; }
  /// The change if `node` is taken back next. Depends on the same.
  Change byTakingBack(int node) const {
    const int64_t before = freed(node, 0) - taken(node);
    return {before, before + step(node, 0)};
  }
  void run(int node);
  void takeBack(int node);
  /// Update only the bytes: trying a node with thousands of successors and taking it back does not visit them.
  void tryRun(int node);
  void untry(int node);
  /// Number of `value`'s readers that have not run.
  int readersLeft(int value) const { return left[size_t(value)]; }

private:
  /// Bytes of operands with `readers` remaining readers. These die with `node`: 1 before it runs, 0 after.
  int64_t freed(int node, int readers) const;
  /// Bytes that `node` needs beyond those live before it; results may take over the memory of such operands.
  int64_t step(int node, int readers) const;
  /// Bytes of results that live on.
  int64_t taken(int node) const;

  const SchedulingGraph &graph;
  std::vector<int> left, waiting;
  std::vector<char> executed;
  int64_t bytes = 0;
  int64_t unread = 0; ///< bytes of unread inputs, which live only during the first step
  size_t steps = 0;
  mutable std::vector<uint64_t> takesPart; ///< by value: number of the last call of step() that used it in a pair
  mutable uint64_t question = 0;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULINGGRAPH_H
