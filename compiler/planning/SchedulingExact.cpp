//===- SchedulingExact.cpp - exact search of an order within a limit ------===//
#include "compiler/planning/SchedulingSearch.h"

#include "compiler/planning/Random.h"

#include <algorithm>
#include <unordered_set>

namespace tcc::planning {

namespace {

/// Random bits of an instruction: sets hash to the xor of theirs.
uint64_t bitsOf(int id) { return RandomBits::at(uint64_t(id)); }

} // namespace

WithinLimit orderWithin(const SchedulingGraph &graph, Sequence &order, Segment segment, int64_t limit, bool valleys,
                        uint64_t mostWork, uint64_t &work) {
  const size_t count = segment.end - segment.begin;
  const uint64_t end = work + mostWork;
  LiveBytes memory(graph);
  for (size_t at = 0; at < segment.begin; ++at)
    memory.run(order[at]);
  work += segment.begin;
  std::vector<int> positionOf(graph.size(), -1);
  for (size_t at = segment.begin; at < segment.end; ++at)
    positionOf[size_t(order[at])] = int(at);
  std::vector<int> ready; // in the given order
  auto earlier = [&](int a, int b) { return positionOf[size_t(a)] < positionOf[size_t(b)]; };
  for (size_t at = segment.begin; at < segment.end; ++at)
    if (memory.ready(order[at]))
      ready.push_back(order[at]);

  Sequence path;
  uint64_t hash = 0;
  auto run = [&](int id) {
    ready.erase(std::lower_bound(ready.begin(), ready.end(), id, earlier));
    memory.run(id);
    path.push_back(id);
    hash ^= bitsOf(id);
    for (int later : graph.nodes[size_t(id)].after)
      if (positionOf[size_t(later)] >= 0 && memory.ready(later))
        ready.insert(std::lower_bound(ready.begin(), ready.end(), later, earlier), later);
    work += 4 + graph.nodes[size_t(id)].after.size();
  };
  auto takeBack = [&] {
    int id = path.back();
    for (int later : graph.nodes[size_t(id)].after)
      if (positionOf[size_t(later)] >= 0 && memory.ready(later))
        ready.erase(std::lower_bound(ready.begin(), ready.end(), later, earlier));
    memory.takeBack(id);
    path.pop_back();
    hash ^= bitsOf(id);
    ready.insert(std::lower_bound(ready.begin(), ready.end(), id, earlier), id);
    work += 4;
  };
  // Runs every ready instruction that fits and does not raise the live bytes.
  auto runWhatIsFree = [&] {
    for (bool again = true; again;) {
      again = false;
      work += ready.size();
      for (int id : ready)
        if (memory.afterwards(id) <= memory.live() && memory.during(id) <= limit) {
          run(id);
          again = true;
          break;
        }
    }
  };
  struct Choice {
    size_t length; ///< of the path before the next attempt
    int64_t live;
    std::vector<int> options; ///< the next one last
  };
  std::vector<Choice> stack;
  std::unordered_set<uint64_t> failed;
  auto open = [&] {
    runWhatIsFree();
    Choice choice{path.size(), memory.live(), {}};
    if (path.size() < count && failed.insert(hash).second) {
      std::vector<std::pair<int64_t, int>> fitting;
      for (int id : ready)
        if (memory.during(id) <= limit)
          fitting.push_back({memory.afterwards(id), id});
      work += 2 * ready.size();
      std::stable_sort(fitting.begin(), fitting.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
      for (size_t k = fitting.size(); k-- > 0;)
        choice.options.push_back(fitting[k].second);
    }
    stack.push_back(std::move(choice));
  };
  open();
  while (path.size() < count) {
    if (work >= end)
      return WithinLimit::Exhausted;
    Choice &top = stack.back();
    while (path.size() > top.length)
      takeBack();
    if (top.options.empty()) {
      int64_t live = top.live;
      stack.pop_back();
      if (valleys)
        while (!stack.empty() && stack.back().live >= live)
          stack.pop_back();
      if (stack.empty())
        return WithinLimit::Impossible;
      continue;
    }
    int id = top.options.back();
    top.options.pop_back();
    run(id);
    open();
  }
  std::copy(path.begin(), path.end(), order.begin() + long(segment.begin));
  return WithinLimit::Found;
}

} // namespace tcc::planning
