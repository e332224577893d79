//===- RematTimeline.h - a schedule that can be edited ----------*- C++ -*-===//
//
// A schedule with recomputations as a list of executions that keeps its cost, the bytes live during each step and their
// excess over a limit up to date. Executions can be inserted and removed; live ranges follow from the definitions of
// Rematerialization.h. It uses flat arrays: an edit costs a few passes over the schedule's length, which for
// some thousand steps is faster than any tree.
//
// An additional last step uses all outputs that live at exit.
//
//   step        0   1   2   3   4   5
//   executes    a   b   c   a'  d  exit
//   a: made 0, last use 1;  a': made 3, last use 4;  recomputing a before d freed it during 2
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_REMATTIMELINE_H
#define TCC_PLANNING_REMATTIMELINE_H

#include "compiler/planning/Rematerialization.h"

#include <vector>

namespace tcc::planning {

/// A problem with adjacency lists of each node, and the exit as an additional last node.
struct RematGraph {
  explicit RematGraph(const RematProblem &problem);

  std::vector<RematNode> nodes;
  std::vector<std::vector<int>> inputs, users; ///< ascending
  std::vector<std::vector<int>> limits;        ///< nodes whose `repeatBefore` each node is
  std::vector<Cost> transfer;                  ///< of each node, where there is a link; else empty
  int exit() const { return int(nodes.size()) - 1; }
  /// Whether a node's output can be recomputed or fetched at all.
  bool mayReturn(int node) const { return nodes[size_t(node)].repeatable || mayFetch(node); }
  bool mayFetch(int node) const { return !transfer.empty() && node != exit(); }
};

class RematTimeline {
public:
  /// Starts with the nodes in their order, each executed once.
  explicit RematTimeline(const RematGraph &graph);
  /// Starts with a valid schedule (without the exit).
  RematTimeline(const RematGraph &graph, const RematSchedule &schedule);

  void setLimit(Bytes limit);
  Cost cost() const { return total; }
  Bytes peak() const;
  /// Sum over the steps of the bytes beyond the limit.
  int64_t overflow() const { return excess; }
  RematSchedule schedule() const;
  int length() const { return int(order.size()); }
  /// Visits so far: what edits have cost.
  uint64_t visits() const { return visited; }
  void count(uint64_t visits) { visited += visits; }

  int nodeAt(int step) const { return nodeOf[size_t(order[size_t(step)])]; }
  int executionAt(int step) const { return order[size_t(step)]; }
  int64_t liveAt(int step) const { return live[size_t(step)]; }
  int64_t limitBytes() const { return limit; }
  int stepOf(int execution) const { return made[size_t(execution)]; }
  int node(int execution) const { return nodeOf[size_t(execution)]; }
  int lastUseOf(int execution) const { return last[size_t(execution)]; }
  const std::vector<int> &executionsOf(int node) const { return executions[size_t(node)]; }
  const std::vector<int> &recomputations() const { return repeats; }
  bool isFetched(int execution) const { return fetched[size_t(execution)]; }
  /// What an execution reads: nothing where it is a fetch.
  const std::vector<int> &inputsOf(int execution) const {
    return fetched[size_t(execution)] ? nothing : graph->inputs[size_t(nodeOf[size_t(execution)])];
  }
  /// The cost of an execution, without storing its output to the host.
  Cost costOf(int execution) const {
    const size_t node = size_t(nodeOf[size_t(execution)]);
    return fetched[size_t(execution)] ? graph->transfer[node] : graph->nodes[node].cost;
  }
  /// The cost of one more fetch of a node, plus that of storing its output if this is the first fetch.
  Cost costOfFetch(int node) const { return graph->transfer[size_t(node)] * (fetches[size_t(node)] ? 1 : 2); }
  /// The newest execution of a node before a step; −1: none.
  int newestBefore(int node, int step) const;
  /// The last step in (after, before) that uses a node's output; `after` if none does.
  int lastUseWithin(int node, int after, int before) const;
  /// The steps that use what an execution made, ascending.
  void usesOf(int execution, std::vector<int> &steps) const;
  bool isFirst(int execution) const { return executions[size_t(nodeOf[size_t(execution)])][0] == execution; }
  /// Whether the execution at a step can take over the memory of a node's output, if that dies there.
  bool mayTakeOver(int step, int node) const {
    return graph->nodes[size_t(nodeAt(step))].overwrites == node && !fetched[size_t(executionAt(step))];
  }
  /// The latest step, up to the one given, before which a node may be executed again; −1: none.
  int latestRepetition(int node, int step) const;
  /// Whether a node's output may be fetched before a step.
  bool mayFetch(int node, int step) const {
    return graph->mayFetch(node) && made[size_t(executions[size_t(node)][0])] < step;
  }
  /// By how much the overflow falls if `node`'s output, live now during the steps [from, to), is not live there.
  int64_t gainOfAbsence(int node, int from, int to) const;

  /// Cheap test: true if the limit is surely exceeded without a recomputation. If false, only `remove` can tell.
  bool isNeeded(int execution) const;

  /// Inserts a repetition (or a fetch) of `node` before the execution now at `step`. Returns the new execution.
  int insert(int node, int step, bool fetch = false);
  /// Removes a recomputation; its users then use the execution before it.
  void remove(int execution);

  /// The steps [from, to] before which the first execution of a node may be placed.
  void roomOfFirst(int node, int &from, int &to) const;
  /// Moves the first execution of a node to just before `step`, which must be within roomOfFirst(). Returns false if it
  /// is there already.
  bool moveFirst(int node, int step);

  /// Edits since `mark()` are undone by `rollback(mark)`.
  size_t mark() const { return log.size(); }
  void rollback(size_t mark);
  void forget() { log.clear(); }

private:
  struct Edit {
    bool inserted = false;
    int node = 0, step = 0;
    bool fetch = false;
  };

  int64_t over(int64_t bytes) const { return bytes > limit ? bytes - limit : 0; }
  void add(int from, int to, int64_t bytes); ///< to the live bytes of the steps in [from, to)
  void setLast(int execution, int step);
  void setTaken(int step, int execution, bool taken);
  void enlist(int execution); ///< among the recomputations
  void delist(int execution);
  void insertAt(int node, int step, bool fetch);
  void removeAt(int step);
  void build(const RematSchedule &schedule);

  const RematGraph *graph;
  std::vector<int> order;              ///< execution of each step
  std::vector<int64_t> live;           ///< bytes of each step
  std::vector<int> nodeOf, made, last; ///< of each execution; `last` is `made` where nothing uses it
  std::vector<char> fetched;           ///< of each execution
  std::vector<int> fetches;            ///< of each node
  std::vector<int> nothing;
  std::vector<int64_t> taken;               ///< of each execution: bytes of the input that its output takes over
  std::vector<int> unused;                  ///< numbers of removed executions
  std::vector<std::vector<int>> executions; ///< of each node, by step
  std::vector<int> repeats, placeInRepeats; ///< all recomputations; place of each execution among them
  std::vector<Edit> log;
  int64_t limit = std::numeric_limits<int64_t>::max();
  int64_t excess = 0;
  Cost total = 0;
  mutable uint64_t visited = 0;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATTIMELINE_H
