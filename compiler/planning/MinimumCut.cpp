//===- MinimumCut.cpp - minimum cuts by Dinic's algorithm --------------------===//
#include "compiler/planning/MinimumCut.h"

#include <algorithm>

namespace tcc::planning {

void FlowNetwork::clear() {
  edges.clear();
  heads.clear();
  looked = 0;
}

int FlowNetwork::addNode() {
  heads.push_back(-1);
  return int(heads.size()) - 1;
}

void FlowNetwork::addEdge(int from, int to, Capacity capacity) {
  edges.push_back({to, heads[size_t(from)], capacity});
  heads[size_t(from)] = int(edges.size()) - 1;
  edges.push_back({from, heads[size_t(to)], 0});
  heads[size_t(to)] = int(edges.size()) - 1;
}

/// Distances from the source along edges with capacity left.
bool FlowNetwork::assignLevels(int source, int sink) {
  level.assign(heads.size(), -1);
  level[size_t(source)] = 0;
  queue.assign(1, source);
  for (size_t at = 0; at < queue.size(); ++at)
    for (int e = heads[size_t(queue[at])]; e >= 0; e = edges[size_t(e)].next) {
      const Edge &edge = edges[size_t(e)];
      ++looked;
      if (edge.left > 0 && level[size_t(edge.to)] < 0) {
        level[size_t(edge.to)] = level[size_t(queue[at])] + 1;
        queue.push_back(edge.to);
      }
    }
  return level[size_t(sink)] >= 0;
}

/// A blocking flow, path by path. Iterative, since paths are as long as models are deep.
FlowNetwork::Capacity FlowNetwork::block(int source, int sink) {
  Capacity flow = 0;
  open = heads; // per node: the first edge that may still lead on
  path.clear();
  int at = source;
  while (flow < kUnlimited) {
    if (at == sink) {
      Capacity sent = kUnlimited;
      for (int e : path)
        sent = std::min(sent, edges[size_t(e)].left);
      flow += sent;
      size_t keep = path.size();
      for (size_t k = path.size(); k-- > 0;) {
        edges[size_t(path[k])].left -= sent;
        edges[size_t(path[k] ^ 1)].left += sent;
        if (edges[size_t(path[k])].left == 0)
          keep = k;
      }
      looked += path.size();
      if (keep == path.size()) // no edge of the path limits the flow
        return flow;
      at = edges[size_t(path[keep] ^ 1)].to;
      path.resize(keep);
      continue;
    }
    int &e = open[size_t(at)];
    while (e >= 0 && (edges[size_t(e)].left == 0 || level[size_t(edges[size_t(e)].to)] != level[size_t(at)] + 1)) {
      e = edges[size_t(e)].next;
      ++looked;
    }
    if (e >= 0) {
      path.push_back(e);
      at = edges[size_t(e)].to;
      continue;
    }
    if (at == source)
      break;
    level[size_t(at)] = -2; // a dead end
    at = edges[size_t(path.back() ^ 1)].to;
    path.pop_back();
  }
  return flow;
}

FlowNetwork::Capacity FlowNetwork::solve(int source, int sink, uint64_t *work) {
  Capacity total = 0;
  while (total < kUnlimited && assignLevels(source, sink))
    total += block(source, sink);
  if (work)
    *work += looked;
  return total;
}

std::vector<bool> FlowNetwork::reachingSink(int sink, uint64_t *work) const {
  std::vector<bool> reaches(heads.size(), false);
  reaches[size_t(sink)] = true;
  std::vector<int> queue{sink};
  uint64_t visits = 0;
  for (size_t at = 0; at < queue.size(); ++at)
    for (int e = heads[size_t(queue[at])]; e >= 0; e = edges[size_t(e)].next) {
      const int from = edges[size_t(e)].to;
      ++visits;
      if (edges[size_t(e ^ 1)].left > 0 && !reaches[size_t(from)]) {
        reaches[size_t(from)] = true;
        queue.push_back(from);
      }
    }
  if (work)
    *work += visits;
  return reaches;
}

std::vector<bool> FlowNetwork::cut(int source, int sink, Capacity *cutCapacity) {
  const Capacity capacity = solve(source, sink);
  if (cutCapacity)
    *cutCapacity = capacity;
  return reachingSink(sink);
}

} // namespace tcc::planning
