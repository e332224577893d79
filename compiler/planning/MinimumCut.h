//===- MinimumCut.h - the cheapest edges between a source and a sink -*- C++ -*-===//
//
// Dinic's algorithm (Dinic 1970): shortest augmenting paths, level by level, until none is left. What can still reach
// the sink then is its side of the minimum cut that lies nearest to it.
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
  /// What no cut may pay. Capacities that sum up to this are refused by nobody: keep them well below.
  static constexpr Capacity kUnlimited = INT64_MAX / 4;

  int addNode();
  /// A directed edge; `from` and `to` are nodes, `capacity` is not negative.
  void addEdge(int from, int to, Capacity capacity);

  /// For each node: true where it lies on the sink's side of the minimum cut that is nearest to the sink.
  /// `cutCapacity`, if given, gets the cut's capacity; at least kUnlimited where source and sink cannot be parted. Once
  /// per network.
  std::vector<bool> cut(int source, int sink, Capacity *cutCapacity = nullptr);

private:
  struct Edge {
    int to;
    Capacity left; ///< capacity that no flow takes; the edge back is the next one, or the one before: index ^ 1
  };

  bool assignLevels(int source, int sink);
  Capacity augment(int source, int sink);

  std::vector<Edge> edges;
  std::vector<std::vector<int>> leaving; ///< per node: indices of edges
  std::vector<int> level;
  std::vector<std::size_t> next; ///< per node: the first edge of `leaving` that may still lead on
};

} // namespace tcc::planning

#endif // TCC_PLANNING_MINIMUMCUT_H
