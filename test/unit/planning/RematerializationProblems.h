//===- RematerializationProblems.h - random problems, exhaustive search ---===//
//
// References for the rematerialisation tests, which share no code with the solver.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PLANNING_REMATERIALIZATIONPROBLEMS_H
#define TCC_TEST_UNIT_PLANNING_REMATERIALIZATIONPROBLEMS_H

#include "compiler/planning/Rematerialization.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <random>

namespace tcc::planning {

inline RematProblem randomProblem(std::mt19937 &random, int nodes, double density, bool special) {
  auto below = [&](int count) { return int(random() % unsigned(count)); };
  RematProblem problem;
  for (int v = 0; v < nodes; ++v) {
    RematNode node;
    node.name = "n" + std::to_string(v);
    node.cost = Cost(below(10));
    node.bytes = Bytes(1 + below(9));
    std::vector<int> inputs;
    for (int u = 0; u < v; ++u)
      if (double(below(1000)) < density * 1000 || (u == v - 1 && below(2)))
        inputs.push_back(u);
    if (special) {
      if (below(4) == 0)
        node.workspace = Bytes(below(5));
      node.repeatable = below(5) != 0;
      node.liveAtExit = below(5) == 0;
      if (!inputs.empty() && below(3) == 0)
        node.overwrites = inputs[size_t(below(int(inputs.size())))];
      if (v + 1 < nodes && below(4) == 0)
        node.repeatBefore = v + 1 + below(nodes - v - 1);
    }
    problem.nodes.push_back(node);
    problem.inputs.push_back(inputs);
  }
  return problem;
}

/// A graph like that of training: a chain of layers with skips, and a backward node for each layer that reads its
/// inputs.
inline RematProblem trainingGraph(std::mt19937 &random, int layers, int skip) {
  RematProblem problem;
  for (int v = 0; v < 2 * layers; ++v) {
    RematNode node;
    node.name = (v < layers ? "f" : "b") + std::to_string(v < layers ? v : 2 * layers - 1 - v);
    node.cost = Cost(20 + random() % 200) * (v < layers ? 1 : 2);
    node.bytes = Bytes(100 + random() % 900);
    std::vector<int> inputs;
    if (v > 0)
      inputs.push_back(v - 1);
    if (v < layers && skip && v >= skip && v % skip == 0)
      inputs.push_back(v - skip);
    if (v >= layers) {
      int layer = 2 * layers - 1 - v;
      inputs.push_back(layer);
      if (layer > 0)
        inputs.push_back(layer - 1);
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    problem.nodes.push_back(node);
    problem.inputs.push_back(inputs);
  }
  return problem;
}

inline RematSchedule inOrder(const RematProblem &problem) {
  RematSchedule schedule;
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    schedule.push_back(int(v));
  return schedule;
}

/// Least cost within a budget by Dijkstra's algorithm over (executed, live) sets of up to about seven nodes: after each
/// execution any subset of what was live stays so.
inline std::optional<Cost> leastCost(const RematProblem &problem, Bytes budget, bool keepOrder) {
  using Set = unsigned;
  using State = std::pair<Set, Set>; // executed, live
  const int nodes = int(problem.nodes.size());
  const Set all = (Set(1) << nodes) - 1;
  auto bytesOf = [&](Set set) {
    Bytes bytes = 0;
    for (int v = 0; v < nodes; ++v)
      bytes += set >> v & 1 ? problem.nodes[size_t(v)].bytes : 0;
    return bytes;
  };
  Set kept = 0;
  for (int v = 0; v < nodes; ++v)
    kept |= Set(problem.nodes[size_t(v)].liveAtExit) << v;
  std::map<State, Cost> reached{{{0, 0}, 0}};
  std::priority_queue<std::pair<Cost, State>, std::vector<std::pair<Cost, State>>, std::greater<>> next;
  next.push({0, {0, 0}});
  while (!next.empty()) {
    auto [cost, state] = next.top();
    next.pop();
    if (reached[state] != cost)
      continue;
    auto [done, live] = state;
    if (done == all && (live & kept) == kept)
      return cost;
    for (int v = 0; v < nodes; ++v) {
      const RematNode &node = problem.nodes[size_t(v)];
      const Set self = Set(1) << v;
      Set inputs = 0;
      for (int input : problem.inputs[size_t(v)])
        inputs |= Set(1) << input;
      bool again = done & self;
      if ((inputs & live) != inputs || (again && !node.repeatable) ||
          (node.repeatBefore >= 0 && done >> node.repeatBefore & 1) || (!again && keepOrder && (self - 1) & ~done))
        continue;
      bool destroys = false; // overwrites operands of nodes that have not been executed yet
      for (int other = 0; other < nodes; ++other)
        destroys |= !again && problem.nodes[size_t(other)].repeatBefore == v && !(done >> other & 1);
      if (destroys)
        continue;
      const Set candidates = live | self;
      for (Set after = candidates;; after = (after - 1) & candidates) {
        Bytes bytes = bytesOf((after & live) | inputs | self) + node.workspace;
        if (node.overwrites >= 0 && !(after >> node.overwrites & 1))
          bytes -= std::min(node.bytes, problem.nodes[size_t(node.overwrites)].bytes);
        if (bytes <= budget) {
          State then{done | self, after};
          auto [at, fresh] = reached.insert({then, cost + node.cost});
          if (fresh || cost + node.cost < at->second) {
            at->second = cost + node.cost;
            next.push({at->second, then});
          }
        }
        if (!after)
          break;
      }
    }
  }
  return std::nullopt;
}

} // namespace tcc::planning

#endif // TCC_TEST_UNIT_PLANNING_REMATERIALIZATIONPROBLEMS_H
