//===- MinimumCut.h - minimum cuts of a flow network ------------*- C++ -*-===//
//
// Dinic's algorithm (Dinic 1970): blocking flows along shortest paths, level by level, until none is left. The nodes
// that the source then reaches in the residual network are the smallest source side of a minimum cut; the nodes that
// reach the sink are the smallest sink side.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_MINIMUMCUT_H
#define TCC_PLANNING_MINIMUMCUT_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcc::planning {

class FlowNetwork {
public:
  using Capacity = int64_t;
  /// The capacity of an edge that no cut may contain. Sums of other capacities must stay well below; nothing checks
  /// that.
  static constexpr Capacity kUnlimited = INT64_MAX / 4;

  /// Back to a network without nodes; keeps its memory.
  void clear();
  int addNode();
  /// A directed edge; `from` and `to` are nodes, `capacity` is not negative.
  void addEdge(int from, int to, Capacity capacity);

  /// The capacity of a minimum cut; at least kUnlimited if no cut separates source and sink. Once per network.
  /// `work`, here and below, grows by the edges looked at.
  Capacity solve(int source, int sink, uint64_t *work = nullptr);
  /// After solve: whether the node is on the smallest source side.
  bool reachedFromSource(int node) const { return level[size_t(node)] >= 0; }
  /// After solve, for each node: whether it is on the smallest sink side.
  std::vector<bool> reachingSink(int sink, uint64_t *work = nullptr) const;

  /// Calls solve and returns reachingSink: the smallest sink side. `cutCapacity`, if given, gets what solve returns.
  std::vector<bool> cut(int source, int sink, Capacity *cutCapacity = nullptr);

private:
  struct Edge {
    int to;
    int next;      ///< next edge that leaves the same node; −1: none
    Capacity left; ///< residual capacity; the reverse edge is index ^ 1
  };

  bool assignLevels(int source, int sink);
  Capacity block(int source, int sink);

  std::vector<Edge> edges;
  std::vector<int> heads; ///< per node: the edge that leaves it and was added last
  std::vector<int> level, open, path, queue;
  uint64_t looked = 0;
};

} // namespace tcc::planning

#endif // TCC_PLANNING_MINIMUMCUT_H
