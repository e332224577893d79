//===- MinimumCut.cpp -----------------------------------------------------===//
#include "compiler/planning/MinimumCut.h"

#include <algorithm>

namespace tcc::planning {

int FlowNetwork::addNode() {
  leaving.emplace_back();
  return int(leaving.size()) - 1;
}

void FlowNetwork::addEdge(int from, int to, Capacity capacity) {
  leaving[size_t(from)].push_back(int(edges.size()));
  edges.push_back({to, capacity});
  leaving[size_t(to)].push_back(int(edges.size()));
  edges.push_back({from, 0});
}

/// Distances from the source along edges with capacity left.
bool FlowNetwork::assignLevels(int source, int sink) {
  level.assign(leaving.size(), -1);
  level[size_t(source)] = 0;
  std::vector<int> queue{source};
  for (size_t at = 0; at < queue.size(); ++at)
    for (int edge : leaving[size_t(queue[at])]) {
      int to = edges[size_t(edge)].to;
      if (edges[size_t(edge)].left > 0 && level[size_t(to)] < 0) {
        level[size_t(to)] = level[size_t(queue[at])] + 1;
        queue.push_back(to);
      }
    }
  return level[size_t(sink)] >= 0;
}

/// Sends what one shortest path takes; 0 where this level has none left. Without recursion: paths are as long as models
/// are deep.
FlowNetwork::Capacity FlowNetwork::augment(int source, int sink) {
  std::vector<int> path; // edges
  int at = source;
  while (at != sink) {
    bool advanced = false;
    for (size_t &i = next[size_t(at)]; i < leaving[size_t(at)].size(); ++i) {
      const Edge &edge = edges[size_t(leaving[size_t(at)][i])];
      if (edge.left > 0 && level[size_t(edge.to)] == level[size_t(at)] + 1) {
        path.push_back(leaving[size_t(at)][i]);
        at = edge.to;
        advanced = true;
        break;
      }
    }
    if (advanced)
      continue;
    if (path.empty())
      return 0;
    at = edges[size_t(path.back() ^ 1)].to;
    ++next[size_t(at)]; // a dead end
    path.pop_back();
  }
  Capacity sent = kUnlimited;
  for (int edge : path)
    sent = std::min(sent, edges[size_t(edge)].left);
  for (int edge : path) {
    edges[size_t(edge)].left -= sent;
    edges[size_t(edge ^ 1)].left += sent;
  }
  return sent;
}

std::vector<bool> FlowNetwork::cut(int source, int sink, Capacity *cutCapacity) {
  Capacity total = 0;
  while (total < kUnlimited && assignLevels(source, sink)) {
    next.assign(leaving.size(), 0);
    while (Capacity sent = augment(source, sink)) {
      total += sent;
      if (total >= kUnlimited)
        break;
    }
  }
  if (cutCapacity)
    *cutCapacity = total;
  std::vector<bool> reaches(leaving.size(), false);
  reaches[size_t(sink)] = true;
  std::vector<int> work{sink};
  while (!work.empty()) {
    int node = work.back();
    work.pop_back();
    for (int edge : leaving[size_t(node)]) {
      int from = edges[size_t(edge)].to;
      if (edges[size_t(edge ^ 1)].left > 0 && !reaches[size_t(from)]) {
        reaches[size_t(from)] = true;
        work.push_back(from);
      }
    }
  }
  return reaches;
}

} // namespace tcc::planning
