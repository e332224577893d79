//===- SchedulingOrders.cpp - first orders for the search -----------------===//
//
// List scheduling by memory, forwards and backwards: of the ready instructions the one that leaves least alive, then
// takes least while it runs, then the program's own order. And two ways to tidy an order without a search.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/SchedulingOrders.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

namespace tcc::planning {

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
  /// Puts what has to run before `id` in front of it, in order; `waiting` others will follow. False if that is too much,
  /// which is known without a look at a whole chain, or at each of thousands that what ends an update waits for.
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

  /// True if less lives once `id` has run with what it waits for, which `group` has then, and no step takes more than
  /// `most`.
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

  /// Frees more than it makes: looked at again when a predecessor has run or an operand gets one reader fewer.
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

namespace {

/// The instructions that may come next, the best first: least bytes beside it, then while it runs, then by `tie`. What an
/// instruction changes is asked again only when an operand's readers have changed, so that thousands of branches side
/// by side are not compared at each step.
template <typename Ask> class Ready {
public:
  Ready(const SchedulingGraph &graph, int tie, Ask ask) : graph(graph), tie(tie), ask(std::move(ask)), keys(graph.size()) {}

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

  /// The readers of `value` see others gone, or back.
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
  const int tie; ///< 1: of equal ones the first; -1: the last
  Ask ask;
  std::vector<std::optional<Key>> keys; ///< of those that are ready
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
