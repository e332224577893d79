//===- RematReverse.cpp - a beam search backwards through the schedule ----===//
//
// The pebble game played backwards (as in RematBoundPeak.cpp), as a beam search. A state is the set S of outputs that
// have to be live. Undoing the execution of l in S leads to S − l + inputs(l); while it ran, S and the inputs of l were
// live. The search goes from the outputs live at exit to the empty set, and the undone executions, read backwards, are
// a schedule. l has to be executed again, earlier, if and only if a descendant of l is still in S: only then does
// undoing it cost anything. So the cost is known exactly, and first executions may come in any order.
//
//     forward:   a  b  c  b' d          d reads b and c, c reads a and b
//     backward:  {d} → {b,c} → {a?..}   undoing b before c costs b once more, undoing c first costs nothing
//
// If first executions have to keep the nodes' order, undoing t at its level is its first execution, whether anything
// still needs it or not, and undoing any other node is a repetition and costs as much.
//
// Levels go from the last node to the first: after level t no state holds a node ≥ t. Within a level other members may
// be undone before t, which gives recomputation and other orders. States are expanded in turn by three kinds of keys:
// by cost; by cost plus the excess of memory if nothing more was recomputed, at several prices; and by the smallest of
// the largest nodes in S, which heads straight for the beginning of the graph and is often the only way through a
// narrow place. Each next level keeps the best states of each kind.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematSearch.h"

#include "compiler/planning/Random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <queue>
#include <unordered_map>

namespace tcc::planning {

namespace {

class ReverseSearch {
public:
  ReverseSearch(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work);
  RematSchedule run(uint64_t &visits);

private:
  static constexpr size_t kPrices = 6;
  /// Limit on the states that a level may expand while none reaches the next level, in multiples of the width.
  static constexpr size_t kNarrow = 50;
  /// Prices of a byte of excess, in mean cost per mean size of a node.
  static constexpr std::array<double, kPrices> kPriceOfByte{0.0, 0.01, 0.05, 0.2, 1.0, 10.0};

  /// States of one level. `sets` concatenates their bit sets.
  struct Level {
    std::vector<uint64_t> sets, hashes;
    std::vector<Cost> extra;
    std::vector<Bytes> bytes;
    std::vector<double> excess;      ///< bytes × steps beyond the budget if nothing more is executed again
    std::vector<int> parent, undone; ///< entry of the history that the state comes from, and the node undone since
    std::unordered_map<uint64_t, int> known;
    size_t size() const { return extra.size(); }
  };
  struct Step {
    int parent, undone;
  };

  bool in(const uint64_t *set, int node) const { return set[at(node) / 64] >> (node % 64) & 1; }
  /// Whether an execution of `other` may follow the first one of `node`, so that it may be undone next.
  bool mayUndo(int other, int node) const {
    const RematNode &what = problem.nodes[at(other)];
    return !keepOrder || (what.repeatable && (what.repeatBefore < 0 || what.repeatBefore > node));
  }
  int enter(int parent, int undone) {
    history.push_back({parent, undone});
    return int(history.size()) - 1;
  }
  /// Undoes `node` in state `from`. Returns the new state of `to`; −1 if it does not fit or is known at no more cost.
  int undo(const Level &level, int from, int parent, int node, bool first, Level &to);
  double key(const Level &level, int state, size_t price) const {
    return double(level.extra[at(state)]) + kPriceOfByte[price] * unit * level.excess[at(state)];
  }
  bool lower(const Level &level, int a, int b) const;
  void lookAhead(int steps);
  double excessOf(const uint64_t *set) const;
  Level pass(const Level &from, int node, bool everyone);
  std::vector<int> select(const Level &level) const;

  const RematProblem &problem;
  const Bytes budget;
  const size_t width, words;
  const bool keepOrder;
  const uint64_t work;
  std::vector<uint64_t> descendants, random;
  std::vector<char> used;
  std::vector<Step> history;
  std::vector<uint64_t> scratch;
  int ahead = 0;                     ///< the steps [0, ahead) are still to come
  std::vector<int> lastUse;          ///< last use of each node within these steps
  std::vector<int64_t> load;         ///< bytes that these steps themselves need beyond the budget, by step
  mutable std::vector<int64_t> more; ///< change of held bytes, by step
  double unit = 0;
  uint64_t visited = 0;
};

ReverseSearch::ReverseSearch(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work)
    : problem(problem), budget(budget), width(width), words((problem.nodes.size() + 63) / 64), keepOrder(keepOrder),
      work(work) {
  const size_t n = problem.nodes.size();
  descendants.assign(n * words, 0);
  used.assign(n, 0);
  scratch.resize(words);
  double cost = 1e-9, bytes = 1e-9;
  for (size_t v = 0; v < n; ++v) {
    cost += double(problem.nodes[v].cost);
    bytes += double(problem.nodes[v].bytes);
    random.push_back(RandomBits::at(v));
  }
  unit = cost / bytes;
  for (size_t v = n; v-- > 0;)
    for (int input : problem.inputs[v]) {
      used[at(input)] = 1;
      for (size_t w = 0; w < words; ++w)
        descendants[at(input) * words + w] |= descendants[v * words + w];
      descendants[at(input) * words + v / 64] |= uint64_t(1) << (v % 64);
    }
}

int ReverseSearch::undo(const Level &level, int from, int parent, int node, bool first, Level &to) {
  const uint64_t *set = &level.sets[at(from) * words];
  const RematNode &what = problem.nodes[at(node)];
  Bytes bytes = level.bytes[at(from)];
  uint64_t hash = level.hashes[at(from)];
  const bool held = in(set, node);
  Bytes added = 0;
  for (int input : problem.inputs[at(node)])
    if (!in(set, input)) {
      added += problem.nodes[at(input)].bytes;
      hash ^= random[at(input)];
    }
  visited += problem.inputs[at(node)].size() + 1;
  Bytes during = bytes + added + (held ? 0 : what.bytes) + what.workspace;
  if (what.overwrites >= 0 && !in(set, what.overwrites))
    during -= std::min(what.bytes, problem.nodes[at(what.overwrites)].bytes);
  if (during > budget)
    return -1;
  bytes += added;
  if (held) {
    bytes -= what.bytes;
    hash ^= random[at(node)];
  }
  Cost extra = level.extra[at(from)];
  bool again = keepOrder && !first;
  const uint64_t *below = &descendants[at(node) * words];
  for (size_t w = 0; w < words && !keepOrder && !again; ++w)
    again = set[w] & below[w];
  extra += again ? what.cost : 0;
  auto [entry, fresh] = to.known.try_emplace(hash, int(to.size()));
  if (!fresh) {
    if (to.extra[at(entry->second)] <= extra)
      return -1;
    to.extra[at(entry->second)] = extra;
    to.parent[at(entry->second)] = parent;
    to.undone[at(entry->second)] = node;
    return entry->second;
  }
  std::memcpy(scratch.data(), set, words * sizeof(uint64_t));
  scratch[at(node) / 64] &= ~(uint64_t(1) << (node % 64));
  for (int input : problem.inputs[at(node)])
    scratch[at(input) / 64] |= uint64_t(1) << (input % 64);
  to.sets.insert(to.sets.end(), scratch.begin(), scratch.end());
  to.hashes.push_back(hash);
  to.extra.push_back(extra);
  to.bytes.push_back(bytes);
  to.excess.push_back(excessOf(scratch.data()));
  to.parent.push_back(parent);
  to.undone.push_back(node);
  visited += 2 * words + 8 + size_t(ahead);
  return entry->second;
}

/// Restricts `ahead`, `lastUse` and `load` to the steps [0, steps).
void ReverseSearch::lookAhead(int steps) {
  ahead = steps;
  lastUse.assign(problem.nodes.size(), 0);
  load.assign(at(steps) + 1, 0);
  more.assign(at(steps) + 1, 0);
  for (int v = 0; v < steps; ++v) {
    lastUse[at(v)] = v;
    for (int input : problem.inputs[at(v)])
      lastUse[at(input)] = v;
  }
  for (int v = 0; v < steps; ++v) {
    load[at(v)] += int64_t(problem.nodes[at(v)].bytes);
    load[at(lastUse[at(v)]) + 1] -= int64_t(problem.nodes[at(v)].bytes);
  }
  for (int v = 1; v < steps; ++v)
    load[at(v)] += load[at(v) - 1];
  for (int v = 0; v < steps; ++v)
    load[at(v)] += int64_t(problem.nodes[at(v)].workspace) - int64_t(budget);
}

double ReverseSearch::excessOf(const uint64_t *set) const {
  for (size_t w = 0; w < words; ++w)
    for (uint64_t bits = set[w]; bits; bits &= bits - 1)
      if (int node = int(w * 64) + std::countr_zero(bits); node < ahead)
        more[at(lastUse[at(node)]) + 1] += int64_t(problem.nodes[at(node)].bytes);
  int64_t held = 0, excess = 0;
  for (int step = 0; step < ahead; ++step) {
    held += more[at(step)];
    more[at(step)] = 0;
    excess += std::max<int64_t>(0, load[at(step)] + held);
  }
  more[at(ahead)] = 0;
  return double(excess);
}

/// Compares sets by their largest nodes, then by extra cost.
bool ReverseSearch::lower(const Level &level, int a, int b) const {
  const uint64_t *x = &level.sets[at(a) * words], *y = &level.sets[at(b) * words];
  for (size_t w = words; w-- > 0;)
    if (x[w] != y[w])
      return x[w] < y[w];
  return level.extra[at(a)] != level.extra[at(b)] ? level.extra[at(a)] < level.extra[at(b)] : a < b;
}

/// Expands the states before the level of `node`; returns those after it.
ReverseSearch::Level ReverseSearch::pass(const Level &from, int node, bool everyone) {
  Level here, after;
  using Queue = std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>;
  std::array<Queue, kPrices> queues;
  std::vector<int> lowest;
  auto higher = [&](int a, int b) { return lower(here, b, a); };
  auto push = [&](int state) {
    for (size_t price = 0; price < kPrices; ++price)
      queues[price].emplace(key(here, state, price), state);
    lowest.push_back(state);
    std::push_heap(lowest.begin(), lowest.end(), higher);
  };
  auto copy = [&](int state, Level &to) {
    auto [entry, fresh] = to.known.try_emplace(from.hashes[at(state)], int(to.size()));
    if (!fresh) {
      if (from.extra[at(state)] < to.extra[at(entry->second)]) {
        to.extra[at(entry->second)] = from.extra[at(state)];
        to.parent[at(entry->second)] = from.parent[at(state)];
        to.undone[at(entry->second)] = from.undone[at(state)];
      }
      return;
    }
    to.sets.insert(to.sets.end(), from.sets.begin() + long(at(state) * words),
                   from.sets.begin() + long((at(state) + 1) * words));
    to.hashes.push_back(from.hashes[at(state)]);
    to.extra.push_back(from.extra[at(state)]);
    to.bytes.push_back(from.bytes[at(state)]);
    to.excess.push_back(from.excess[at(state)]);
    to.parent.push_back(from.parent[at(state)]);
    to.undone.push_back(from.undone[at(state)]);
  };
  for (size_t state = 0; state < from.size(); ++state)
    copy(int(state), everyone || in(&from.sets[state * words], node) ? here : after);
  for (size_t state = 0; state < here.size(); ++state)
    push(int(state));
  std::vector<Cost> done; // extra cost with which a state was taken, plus one
  size_t taken = 0;
  const size_t began = here.size();
  for (size_t turn = 0, idle = 0; idle <= kPrices && visited <= work; ++turn) {
    int state = -1;
    if (size_t which = turn % (kPrices + 1); which < kPrices) {
      if (!queues[which].empty()) {
        state = queues[which].top().second;
        queues[which].pop();
      }
    } else if (!lowest.empty()) {
      std::pop_heap(lowest.begin(), lowest.end(), higher);
      state = lowest.back();
      lowest.pop_back();
    }
    if (state < 0) {
      ++idle;
      continue;
    }
    idle = 0;
    done.resize(here.size(), 0);
    if (done[at(state)] && done[at(state)] <= here.extra[at(state)] + 1)
      continue;
    done[at(state)] = here.extra[at(state)] + 1;
    const int parent = enter(here.parent[at(state)], here.undone[at(state)]);
    undo(here, state, parent, node, true, after);
    visited += 16;
    if (++taken > width + began / 4 && (after.size() || taken > kNarrow * width))
      continue;
    for (size_t w = 0; w < words; ++w)
      for (uint64_t bits = here.sets[at(state) * words + w]; bits; bits &= bits - 1)
        if (int other = int(w * 64) + std::countr_zero(bits); other != node && mayUndo(other, node))
          if (int made = undo(here, state, parent, other, false, here); made >= 0)
            push(made);
  }
  return after;
}

/// The best of each kind.
std::vector<int> ReverseSearch::select(const Level &level) const {
  std::vector<int> all(level.size()), kept;
  for (size_t state = 0; state < all.size(); ++state)
    all[state] = int(state);
  if (all.size() <= width)
    return all;
  std::vector<char> chosen(all.size(), 0);
  auto take = [&](auto less) {
    const size_t most = std::min(all.size(), width);
    std::partial_sort(all.begin(), all.begin() + long(most), all.end(), less);
    for (size_t i = 0, count = 0; i < most && count < width / (kPrices + 1); ++i)
      if (!chosen[at(all[i])]) {
        chosen[at(all[i])] = 1;
        kept.push_back(all[i]);
        ++count;
      }
  };
  for (size_t price = 0; price < kPrices; ++price)
    take([&](int a, int b) {
      double x = key(level, a, price), y = key(level, b, price);
      return x != y ? x < y : a < b;
    });
  take([&](int a, int b) { return lower(level, a, b); });
  return kept;
}

RematSchedule ReverseSearch::run(uint64_t &visits) {
  Level level;
  bool finished = false;
  level.sets.assign(words, 0);
  level.hashes = {0};
  level.extra = {0};
  level.bytes = {0};
  level.excess = {0};
  level.parent = level.undone = {-1};
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    if (problem.nodes[v].liveAtExit) {
      level.sets[v / 64] |= uint64_t(1) << (v % 64);
      level.hashes[0] ^= random[v];
      level.bytes[0] += problem.nodes[v].bytes;
    }
  for (int node = int(problem.nodes.size()) - 1; node >= 0; --node) {
    lookAhead(node + 1);
    Level passed = pass(level, node, keepOrder || (!used[at(node)] && !problem.nodes[at(node)].liveAtExit));
    level = {};
    for (int state : select(passed)) {
      level.sets.insert(level.sets.end(), passed.sets.begin() + long(at(state) * words),
                        passed.sets.begin() + long((at(state) + 1) * words));
      level.hashes.push_back(passed.hashes[at(state)]);
      level.extra.push_back(passed.extra[at(state)]);
      level.bytes.push_back(passed.bytes[at(state)]);
      level.excess.push_back(passed.excess[at(state)]);
      level.parent.push_back(passed.parent[at(state)]);
      level.undone.push_back(passed.undone[at(state)]);
    }
    if (level.size() == 0 || visited > work)
      break;
    finished = node == 0;
  }
  visits += visited;
  if (!finished)
    return {};
  RematSchedule schedule{level.undone.front()};
  for (int step = level.parent.front(); step >= 0 && history[at(step)].undone >= 0; step = history[at(step)].parent)
    schedule.push_back(history[at(step)].undone);
  return schedule;
}

} // namespace

RematSchedule scheduleFromTheEnd(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work,
                                 uint64_t &visits) {
  for (const RematNode &node : problem.nodes)
    if (!keepOrder && (!node.repeatable || node.repeatBefore >= 0))
      return {};
  if (problem.nodes.empty())
    return {};
  return ReverseSearch(problem, budget, width, keepOrder, work).run(visits);
}

} // namespace tcc::planning
