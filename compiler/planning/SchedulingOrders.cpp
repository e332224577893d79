//===- SchedulingOrders.cpp - first orders for the search -----------------===//
//
// List scheduling by memory, forwards and backwards: picks the ready instruction that leaves the fewest live bytes,
// then needs the fewest while it runs, then the first in the program's own order. And two local improvements of an
// order.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/SchedulingSearch.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

namespace tcc::planning {

namespace {

/// Most instructions that run early so that one that frees memory can run.
constexpr size_t kMostHelpers = 16;

/// Implements freeEarly.
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
  /// Adds `id` to the group after its missing predecessors; `waiting` others will follow. False if the group would get
  /// too large; detects that without visiting whole chains or thousands of predecessors.
  bool addMissing(int id, Sequence &group, size_t waiting = 0) {
    if (group.size() + waiting > kMostHelpers || memory.missing(id) > kMostHelpers)
      return false;
    if (!memory.ready(id))
      for (int earlier : graph.nodes[size_t(id)].before)
        if (!memory.done(earlier) && std::find(group.begin(), group.end(), earlier) == group.end() &&
            !addMissing(earlier, group, waiting + 1))
          return false;
    group.push_back(id);
    return true;
  }

  /// Puts `id` and its missing predecessors into `group`. True if running it lowers the live bytes, and no step needs
  /// more than `most`.
  bool tryGroup(int id, int64_t most) {
    group.clear();
    if (memory.freedBy(id) == 0 || !addMissing(id, group))
      return false;
    const int64_t before = memory.live();
    size_t ran = 0;
    bool fits = true;
    for (; ran < group.size() && fits; ++ran) {
      fits = memory.during(group[ran]) <= most;
      memory.tryRun(group[ran]);
    }
    fits = fits && memory.live() < before;
    while (ran > 0)
      memory.untry(group[--ran]);
    return fits;
  }

  /// Adds `id` to `frees` if it frees more than it makes. Called again when a predecessor has run or only one reader of
  /// an operand is left.
  void look(int id) {
    if (!memory.done(id) && tryGroup(id, std::numeric_limits<int64_t>::max()))
      frees.insert(positionOf[size_t(id)]);
  }

  bool runOneThatFrees() {
    for (int at : frees)
      if (tryGroup(order[size_t(at)], limit)) {
        const Sequence fitting = group;
        for (int id : fitting)
          memory.run(id);
        for (int id : fitting)
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
  // The bytes by which running `id` raises the live bytes.
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
    // The operand is live again, so its other readers no longer free it.
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

namespace {

/// A priority queue of the ready instructions: fewest live bytes next to them first, then fewest while they run, then
/// by `tie`. A key is only recomputed when readers of an operand have run or were taken back, so that a step does not
/// compare thousands of parallel branches.
template <typename Ask> class Ready {
public:
  Ready(const SchedulingGraph &graph, int tie, Ask ask)
      : graph(graph), tie(tie), ask(std::move(ask)), keys(graph.size()) {}

  bool empty() const { return queue.empty(); }

  void add(int id) {
    const LiveBytes::Change change = ask(id);
    keys[size_t(id)] = Key{change.beside, change.during, tie * id};
    queue.insert(*keys[size_t(id)]);
  }

  int takeBest() {
    const int id = tie * std::get<2>(*queue.begin());
    queue.erase(queue.begin());
    keys[size_t(id)].reset();
    return id;
  }

  /// Recomputes the keys of the readers of `value`, some of which have run or were taken back.
  void askReadersOf(int value) {
    for (int reader : graph.values[size_t(value)].readers)
      if (std::optional<Key> &key = keys[size_t(reader)]) {
        queue.erase(*key);
        add(reader);
      }
  }

private:
  using Key = std::tuple<int64_t, int64_t, int>;
  const SchedulingGraph &graph;
  const int tie; ///< 1: prefers the first of equal ones; -1: the last
  Ask ask;
  std::vector<std::optional<Key>> keys; ///< of ready instructions
  std::set<Key> queue;
};

} // namespace

Sequence growLeast(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  Ready ready(graph, 1, [&](int id) { return memory.byRunning(id); });
  for (size_t id = 0; id < graph.size(); ++id)
    if (memory.ready(int(id)))
      ready.add(int(id));
  Sequence result;
  while (!ready.empty()) {
    const int id = ready.takeBest();
    memory.run(id);
    result.push_back(id);
    for (int v : graph.nodes[size_t(id)].reads)
      if (memory.readersLeft(v) == 1)
        ready.askReadersOf(v);
    for (int later : graph.nodes[size_t(id)].after)
      if (memory.ready(later))
        ready.add(later);
  }
  return result;
}

Sequence shrinkLeast(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  for (int id : graph.given)
    memory.run(id);
  Ready ready(graph, -1, [&](int id) { return memory.byTakingBack(id); });
  std::vector<int> waiting;
  for (size_t id = 0; id < graph.size(); ++id) {
    waiting.push_back(int(graph.nodes[id].after.size()));
    if (waiting[id] == 0)
      ready.add(int(id));
  }
  Sequence result;
  while (!ready.empty()) {
    const int id = ready.takeBest();
    memory.takeBack(id);
    result.push_back(id);
    for (int v : graph.nodes[size_t(id)].reads)
      if (memory.readersLeft(v) == 1)
        ready.askReadersOf(v);
    for (int earlier : graph.nodes[size_t(id)].before)
      if (--waiting[size_t(earlier)] == 0)
        ready.add(earlier);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

} // namespace tcc::planning
