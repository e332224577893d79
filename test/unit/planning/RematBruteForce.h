//===- RematBruteForce.h - least cost of small problems ---------*- C++ -*-===//
//
// Exhaustive search over everything that a schedule can do: which nodes have been executed, which outputs live, and
// which lie on the host.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_UNIT_PLANNING_REMATBRUTEFORCE_H
#define TCC_TEST_UNIT_PLANNING_REMATBRUTEFORCE_H

#include "compiler/planning/Rematerialization.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace tcc::planning {

/// Least cost of a schedule within the budget, by Dijkstra's algorithm; nothing if there is none. With `keepOrder` the
/// first executions follow the nodes' order. For up to about 8 nodes.
inline std::optional<Cost> leastCostByBruteForce(const RematProblem &problem, Bytes budget, bool keepOrder) {
  using Set = unsigned;
  using State = std::tuple<Set, Set, Set>; // executed, live, stored on the host
  const auto &nodes = problem.nodes;
  size_t n = nodes.size();
  Set all = (Set{1} << n) - 1, atExit = 0;
  std::vector<Set> inputs(n, 0);
  for (size_t node = 0; node < n; ++node) {
    atExit |= nodes[node].liveAtExit ? Set{1} << node : 0;
    for (int input : problem.inputs[node])
      inputs[node] |= Set{1} << input;
  }
  std::vector<Bytes> bytesOf(all + 1, 0);
  for (Set set = 1; set <= all; ++set)
    for (size_t node = 0; node < n; ++node)
      bytesOf[set] += (set >> node & 1) ? nodes[node].bytes : 0;

  std::map<State, Cost> known;
  std::priority_queue<std::pair<Cost, State>, std::vector<std::pair<Cost, State>>, std::greater<>> queue;
  auto reach = [&](State state, Cost cost) {
    auto [it, added] = known.try_emplace(state, cost);
    if (!added && it->second <= cost)
      return;
    it->second = cost;
    queue.emplace(cost, state);
  };
  reach({0, 0, 0}, 0);
  while (!queue.empty()) {
    auto [cost, state] = queue.top();
    queue.pop();
    if (known[state] < cost)
      continue;
    auto [executed, live, stored] = state;
    if (executed == all && (atExit & ~live) == 0)
      return cost;
    for (size_t node = 0; node < n; ++node) {
      Set self = Set{1} << node;
      if (live & self)
        reach({executed, live & ~self, stored}, cost); // frees the output
      if (problem.linkBytesPerCost && (executed & self) && bytesOf[live | self] <= budget) {
        const Bytes link = problem.linkBytesPerCost, transfer = (nodes[node].bytes + link - 1) / link;
        reach({executed, live | self, stored | self}, cost + transfer + (stored & self ? 0 : transfer));
      }
      if (inputs[node] & ~live)
        continue;
      bool repeated = executed & self;
      if (repeated &&
          (!nodes[node].repeatable || (nodes[node].repeatBefore >= 0 && (executed >> nodes[node].repeatBefore & 1))))
        continue;
      if (!repeated && keepOrder && executed != self - 1)
        continue;
      Bytes bytes = bytesOf[live | self] + nodes[node].workspace;
      if (bytes <= budget)
        reach({executed | self, live | self, stored}, cost + nodes[node].cost);
      if (int input = nodes[node].overwrites; input >= 0) {
        bytes -= std::min(nodes[node].bytes, nodes[static_cast<size_t>(input)].bytes);
        if (bytes <= budget)
          reach({executed | self, (live | self) & ~(Set{1} << input), stored}, cost + nodes[node].cost);
      }
    }
  }
  return {};
}

} // namespace tcc::planning

#endif // TCC_TEST_UNIT_PLANNING_REMATBRUTEFORCE_H
