//===- RematBoundPeak.cpp - lower bound of any schedule's peak ------------===//
//
// The pebble game played backwards. Let all outputs of a set S be live at some time, and let l be the one of them that
// was executed last. During that execution S and the inputs of l were live; before it, S without l, and the inputs of
// l. So the peak of any schedule that has all of S live at some time is at least
//   f(S) = min over l in S of max(bytes(S + inputs of l), f(S − l + inputs of l)),   f({}) = 0
// whatever was repeated, and in any order. A best-first search by peak may stop at any time: the peak of the set that
// it would expand next is a bound. It starts from each node, and from the outputs live at exit.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundModel.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

using namespace tcc;
using namespace tcc::planning;

namespace {

using Set = std::vector<int>; // ascending

class PeakSearch {
public:
  explicit PeakSearch(const RematProblem &problem) : problem(problem) {}

  /// A lower bound, at least `known`, of the peak of every schedule that has all these outputs live at some time.
  Bytes bound(const Set &start, Bytes known, uint64_t work) const;

private:
  Bytes bytes(const Set &set) const {
    Bytes sum = 0;
    for (int node : set)
      sum += problem.nodes[at(node)].bytes;
    return sum;
  }
  const RematProblem &problem;
};

Bytes PeakSearch::bound(const Set &start, Bytes known, uint64_t work) const {
  // Least peak first, then the smaller set, which is closer to the end of the search.
  using State = std::tuple<Bytes, Bytes, Set>;
  std::priority_queue<State, std::vector<State>, std::greater<>> queue;
  std::set<Set> seen;
  queue.emplace(std::max(known, bytes(start)), bytes(start), start);
  uint64_t visits = 0;
  while (true) {
    auto [peak, size, set] = queue.top();
    queue.pop();
    if (set.empty() || visits > work)
      return peak;
    if (!seen.insert(set).second)
      continue;
    for (int last : set) {
      const RematNode &node = problem.nodes[at(last)];
      const std::vector<int> &inputs = problem.inputs[at(last)];
      Set before;
      std::set_union(set.begin(), set.end(), inputs.begin(), inputs.end(), std::back_inserter(before));
      Bytes during = bytes(before) + node.workspace;
      if (node.overwrites >= 0 && !std::binary_search(set.begin(), set.end(), node.overwrites))
        during -= std::min(node.bytes, problem.nodes[at(node.overwrites)].bytes);
      before.erase(std::lower_bound(before.begin(), before.end(), last));
      visits += 8 * before.size() + 32;
      if (!seen.contains(before))
        queue.emplace(std::max(peak, during), bytes(before), std::move(before));
    }
  }
}

} // namespace

Bytes tcc::planning::boundPeak(const RematProblem &problem) { return boundPeak(problem, 100'000'000); }

Bytes tcc::planning::boundPeak(const RematProblem &problem, uint64_t work) {
  PeakSearch search(problem);
  std::vector<std::pair<Bytes, size_t>> steps;
  Set atExit;
  for (size_t node = 0; node < problem.nodes.size(); ++node) {
    steps.emplace_back(bytesOfStep(problem, node), node);
    if (problem.nodes[node].liveAtExit)
      atExit.push_back(static_cast<int>(node));
  }
  std::stable_sort(steps.begin(), steps.end(), [](auto &a, auto &b) { return a.first > b.first; });
  if (problem.linkBytesPerCost) {
    // An output that was fetched needs no inputs. So only bound by the largest first execution and the bytes at exit.
    Bytes bound = steps.empty() ? 0 : steps.front().first, kept = 0;
    for (int node : atExit)
      kept += problem.nodes[at(node)].bytes;
    return std::max(bound, kept);
  }
  uint64_t each = work / (steps.size() + 1);
  Bytes bound = steps.empty() ? 0 : search.bound(atExit, steps.front().first, each);
  for (auto [bytes, node] : steps)
    bound = std::max(bound, search.bound({static_cast<int>(node)}, bound, each));
  return bound;
}
