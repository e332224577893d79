//===- SchedulingOrders.cpp - first orders for the search -----------------===//
//
// List scheduling by memory, forwards and backwards: of the ready instructions the one that leaves least alive, then
// takes least while it runs, then the program's own order. And two ways to tidy an order without a search.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/SchedulingOrders.h"

#include <algorithm>
#include <limits>
#include <set>

namespace tcc::planning {

/// Of the instructions that may come next, at most this many are compared: thousands of branches side by side must not
/// make each step look at all of them.
static constexpr size_t kMostCompared = 1024;

namespace {

/// Most instructions that run early for the sake of one that frees memory.
constexpr size_t kMostHelpers = 16;

/// One walk of freeEarly.
class EarlyFrees {
public:
  EarlyFrees(const SchedulingGraph &graph, const Sequence &order, int64_t limit)
      : graph(graph), order(order), limit(limit), memory(graph), positionOf(graph.size()) {
    for (size_t at = 0; at < order.size(); ++at)
      positionOf[size_t(order[at])] = int(at);
  }

  Sequence walk() {
    for (size_t id = 0; id < graph.size(); ++id)
      look(int(id));
    for (int id : order) {
      while (!memory.done(id) && runOneThatFrees()) {
      }
      if (!memory.done(id))
        run(id);
    }
    return std::move(result);
  }

private:
  /// Puts what has to run before `id` in front of it, in order. False if that is too much.
  bool addMissing(int id, Sequence &group) {
    if (!memory.ready(id))
      for (int earlier : graph.nodes[size_t(id)].before)
        if (!memory.done(earlier) && std::find(group.begin(), group.end(), earlier) == group.end() &&
            (group.size() > kMostHelpers || !addMissing(earlier, group)))
          return false;
    group.push_back(id);
    return group.size() <= kMostHelpers + 1;
  }

  /// Runs `id` with what it waits for, if less lives then and no step takes more than `most`; `keep`: leaves it so.
  bool tryGroup(int id, int64_t most, bool keep) {
    group.clear();
    if (memory.freedBy(id) == 0 || !addMissing(id, group))
      return false;
    const int64_t before = memory.live();
    size_t ran = 0;
    bool fits = true;
    for (; ran < group.size() && fits; ++ran) {
      fits = memory.during(group[ran]) <= most;
      memory.run(group[ran]);
    }
    fits = fits && memory.live() < before;
    if (fits && keep)
      return true;
    while (ran > 0)
      memory.takeBack(group[--ran]);
    return fits;
  }

  /// Frees more than it makes: looked at again when a predecessor has run or an operand gets one reader fewer.
  void look(int id) {
    if (!memory.done(id) && tryGroup(id, std::numeric_limits<int64_t>::max(), /*keep=*/false))
      frees.insert(positionOf[size_t(id)]);
  }

  bool runOneThatFrees() {
    for (int at : frees)
      if (tryGroup(order[size_t(at)], limit, /*keep=*/true)) {
        const Sequence ran = group;
        for (int id : ran)
          record(id);
        return true;
      }
    return false;
  }

  void run(int id) {
    memory.run(id);
    record(id);
  }

  void record(int id) {
    result.push_back(id);
    frees.erase(positionOf[size_t(id)]);
    for (int later : graph.nodes[size_t(id)].after)
      look(later);
    for (int v : graph.nodes[size_t(id)].reads)
      if (memory.readersLeft(v) == 1)
        for (int reader : graph.values[size_t(v)].readers)
          look(reader);
  }

  const SchedulingGraph &graph;
  const Sequence &order;
  const int64_t limit;
  LiveBytes memory;
  std::vector<int> positionOf;
  std::set<int> frees; ///< positions
  Sequence group, result;
};

} // namespace

Sequence freeEarly(const SchedulingGraph &graph, const Sequence &order, int64_t limit) {
  return EarlyFrees(graph, order, limit).walk();
}

Sequence allocateLate(const SchedulingGraph &graph, const Sequence &order) {
  std::vector<int> positionOf(graph.size()), waiting(graph.size());
  for (size_t at = 0; at < order.size(); ++at)
    positionOf[size_t(order[at])] = int(at);
  LiveBytes memory(graph);
  for (int id : order)
    memory.run(id);
  for (size_t id = 0; id < graph.size(); ++id)
    waiting[id] = int(graph.nodes[id].after.size());
  std::vector<char> taken(graph.size(), 0);
  // Bytes that live before `id` and not after it, less those that live after and not before.
  auto growth = [&](int id) {
    int64_t bytes = 0;
    for (int v : graph.nodes[size_t(id)].writes)
      if (graph.values[size_t(v)].outlives())
        bytes += graph.values[size_t(v)].bytes;
    for (int v : graph.nodes[size_t(id)].reads) {
      const SchedulingGraph::Value &value = graph.values[size_t(v)];
      if (memory.readersLeft(v) == 0)
        bytes -= value.bytes;
    }
    return bytes;
  };
  std::set<int> grows;
  auto look = [&](int id) {
    if (taken[size_t(id)] || waiting[size_t(id)])
      return;
    if (growth(id) > 0)
      grows.insert(-positionOf[size_t(id)]);
    else
      grows.erase(-positionOf[size_t(id)]);
  };
  Sequence result;
  auto take = [&](int id) {
    memory.takeBack(id);
    taken[size_t(id)] = 1;
    result.push_back(id);
    grows.erase(-positionOf[size_t(id)]);
    for (int earlier : graph.nodes[size_t(id)].before) {
      --waiting[size_t(earlier)];
      look(earlier);
    }
    // An operand lives again: its other readers free nothing any more.
    for (int v : graph.nodes[size_t(id)].reads)
      if (memory.readersLeft(v) == 1)
        for (int reader : graph.values[size_t(v)].readers)
          look(reader);
  };
  for (size_t id = 0; id < graph.size(); ++id)
    look(int(id));
  for (size_t at = order.size(); at-- > 0;) {
    int id = order[at];
    while (!taken[size_t(id)] && !grows.empty())
      take(order[size_t(-*grows.begin())]);
    if (!taken[size_t(id)])
      take(id);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

Sequence growLeast(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  std::vector<int> ready;
  for (size_t id = 0; id < graph.size(); ++id)
    if (memory.ready(int(id)))
      ready.push_back(int(id));
  Sequence result;
  while (!ready.empty()) {
    size_t best = 0;
    int64_t least = 0, step = 0;
    for (size_t k = 0; k < std::min(ready.size(), kMostCompared); ++k) {
      int64_t after = memory.afterwards(ready[k]), during = memory.during(ready[k]);
      if (k == 0 || after < least || (after == least && during < step)) {
        best = k;
        least = after;
        step = during;
      }
    }
    int id = ready[best];
    ready.erase(ready.begin() + long(best));
    memory.run(id);
    result.push_back(id);
    for (int later : graph.nodes[size_t(id)].after)
      if (memory.ready(later))
        ready.insert(std::upper_bound(ready.begin(), ready.end(), later), later);
  }
  return result;
}

Sequence shrinkLeast(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  std::vector<int> waiting, ready;
  for (int id : graph.given)
    memory.run(id);
  for (size_t id = 0; id < graph.size(); ++id) {
    waiting.push_back(int(graph.nodes[id].after.size()));
    if (waiting[id] == 0)
      ready.push_back(int(id));
  }
  Sequence result;
  while (!ready.empty()) {
    size_t best = 0;
    int64_t least = 0, step = 0;
    for (size_t k = ready.size(), end = k - std::min(k, kMostCompared); k-- > end;) {
      memory.takeBack(ready[k]);
      int64_t before = memory.live(), during = memory.during(ready[k]);
      memory.run(ready[k]);
      if (k + 1 == ready.size() || before < least || (before == least && during < step)) {
        best = k;
        least = before;
        step = during;
      }
    }
    int id = ready[best];
    ready.erase(ready.begin() + long(best));
    memory.takeBack(id);
    result.push_back(id);
    for (int earlier : graph.nodes[size_t(id)].before)
      if (--waiting[size_t(earlier)] == 0)
        ready.insert(std::upper_bound(ready.begin(), ready.end(), earlier), earlier);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

} // namespace tcc::planning
