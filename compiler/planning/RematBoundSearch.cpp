//===- RematBoundSearch.cpp - best-first search for a bound ---------------===//
//
// The relaxation ignores the memory between milestones, where a repetition needs room for its inputs while other
// outputs are held. This search does not: A* (Hart, Nilsson, Raphael 1968) over the pebble game played backwards, as in
// RematReverse.cpp, for first executions in the given order. A state (b, S) stands for all ways to execute the nodes
// [0, b) for the first time, in order and with repetitions, such that the outputs S are live at the end:
//
//     (b, S)  →  (b − 1, S − last + inputs of last)   the first execution of `last` = b − 1 came last
//             →  (b, S − l + inputs of l)             a repetition of l in S came last; costs what l costs
//
// each if the live bytes during that execution fit. The search starts from all nodes with the outputs live at exit. The
// relaxation's multipliers bound the cost of repetitions in (b, S) from below (`RematPrefixBounds`), so the minimum
// over open states of cost so far plus that bound never exceeds the optimum: a bound at any time, the optimum once (0,
// {}) is reached, and a proof that there is no schedule if no state is left.
//
// Pruned without losing the optimum:
//  - all moves but the first execution of `last`, if its inputs are in S and it fits: it may as well come last;
//  - repetitions of `last` itself: the repetitions since its first execution may as well have come before it;
//  - states that cost no less than one that needs all but one of the same outputs.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundModel.h"

#include "compiler/planning/Random.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>

using namespace tcc;
using namespace tcc::planning;

namespace {

uint64_t bitOf(int node) { return uint64_t{1} << (node % 64); }

class BoundSearch {
public:
  BoundSearch(const RematProblem &problem, Bytes budget, const RematPrefixBounds &bounds);
  RematSearchBound run(double known, uint64_t work, const std::function<bool()> &stop);

private:
  /// Memory of a state, expressed in visits.
  static constexpr uint64_t kVisitsOfState = 64;

  struct State {
    int begun = 0;       ///< the first executions of the nodes [0, begun) are in it
    bool closed = false; ///< expanded
    Cost extra = 0;      ///< cost of the repetitions after it
    Bytes bytes = 0;
    uint64_t hash = 0;
    size_t set = 0; ///< start of its outputs in `sets`
  };
  using Known = std::unordered_map<uint64_t, size_t>;
  using Entry = std::tuple<double, int, size_t>; ///< bound, begun, state: least bound first, then least `begun`

  void start();
  void open(size_t state);
  void expand(size_t from);
  void undo(size_t from, int node, bool first);
  double leastOf(const State &state) const;
  bool isDominated(const State &state) const;
  bool has(const State &state, int node) const { return sets[state.set + at(node) / 64] & bitOf(node); }
  template <typename Visit> void forEach(const State &state, Visit visit) const {
    for (size_t w = 0; w < words; ++w)
      for (uint64_t bits = sets[state.set + w]; bits; bits &= bits - 1)
        visit(static_cast<int>(w * 64) + std::countr_zero(bits));
  }

  const RematProblem &problem;
  const Bytes budget;
  const RematPrefixBounds &bounds;
  const size_t words;
  std::vector<size_t> prefixOf;  ///< number of milestones among the first n nodes, by n
  std::vector<uint64_t> random;  ///< of each node, for hashes
  std::vector<uint64_t> sets;    ///< one after another
  std::vector<uint64_t> scratch; ///< one of them
  std::vector<State> states;
  std::vector<Known> known; ///< by `begun`
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  uint64_t visits = 0;
};

BoundSearch::BoundSearch(const RematProblem &problem, Bytes budget, const RematPrefixBounds &bounds)
    : problem(problem), budget(budget), bounds(bounds), words((problem.nodes.size() + 63) / 64), scratch(words),
      known(problem.nodes.size() + 1) {
  size_t passed = 0;
  prefixOf.push_back(0);
  for (size_t node = 0; node < problem.nodes.size(); ++node) {
    random.push_back(RandomBits::at(node));
    while (passed + 1 < bounds.milestones.size() && at(bounds.milestones[passed + 1]) <= node)
      ++passed;
    prefixOf.push_back(passed);
  }
}

double BoundSearch::leastOf(const State &state) const {
  const RematPrefixBounds::Prefix &prefix = bounds.prefixes[prefixOf[at(state.begun)]];
  double sum = prefix.least;
  forEach(state, [&](int node) { sum += prefix.rise[at(node)]; });
  return std::max(sum, 0.0);
}

bool BoundSearch::isDominated(const State &state) const {
  const Known &others = known[at(state.begun)];
  bool dominated = false;
  forEach(state, [&](int node) {
    auto found = dominated ? others.end() : others.find(state.hash ^ random[at(node)]);
    if (found == others.end() || states[found->second].extra > state.extra)
      return;
    // Compare the sets: hashes may collide.
    const uint64_t *set = &sets[states[found->second].set];
    dominated = true;
    for (size_t w = 0; w < words; ++w)
      dominated = dominated && set[w] == (sets[state.set + w] & ~(w == at(node) / 64 ? bitOf(node) : 0));
  });
  return dominated;
}

void BoundSearch::open(size_t index) {
  State &state = states[index];
  state.closed = isDominated(state);
  double bound = static_cast<double>(state.extra) + leastOf(state);
  if (!state.closed && bound < std::numeric_limits<double>::infinity())
    queue.emplace(bound, state.begun, index);
}

void BoundSearch::undo(size_t from, int node, bool first) {
  const State &now = states[from];
  const RematNode &what = problem.nodes[at(node)];
  State next = now;
  std::copy_n(sets.begin() + static_cast<long>(now.set), words, scratch.begin());
  for (int input : problem.inputs[at(node)])
    if (!has(now, input)) {
      next.bytes += problem.nodes[at(input)].bytes;
      next.hash ^= random[at(input)];
      scratch[at(input) / 64] |= bitOf(input);
    }
  const bool held = has(now, node);
  Bytes during = next.bytes + (held ? 0 : what.bytes) + what.workspace;
  if (what.overwrites >= 0 && !has(now, what.overwrites))
    during -= std::min(what.bytes, problem.nodes[at(what.overwrites)].bytes);
  visits += problem.inputs[at(node)].size() + 2 * words + 8;
  if (during > budget)
    return;
  if (held) {
    next.bytes -= what.bytes;
    next.hash ^= random[at(node)];
    scratch[at(node) / 64] &= ~bitOf(node);
  }
  next.begun -= first;
  next.extra += first ? 0 : what.cost;
  auto [entry, fresh] = known[at(next.begun)].try_emplace(next.hash, states.size());
  size_t index = entry->second;
  if (!fresh && std::equal(scratch.begin(), scratch.end(), sets.begin() + static_cast<long>(states[index].set))) {
    if (states[index].extra <= next.extra)
      return;
    states[index].extra = next.extra;
  } else { // new, or a hash collision: then it is not found again
    index = states.size();
    next.set = sets.size();
    sets.insert(sets.end(), scratch.begin(), scratch.end());
    states.push_back(next);
    visits += kVisitsOfState;
  }
  open(index);
  visits += 16 * words;
}

void BoundSearch::expand(size_t from) {
  const State state = states[from];
  const int last = state.begun - 1;
  const RematNode &what = problem.nodes[at(last)];
  bool atOnce = state.bytes + (has(state, last) ? 0 : what.bytes) + what.workspace <= budget;
  for (int input : problem.inputs[at(last)])
    atOnce = atOnce && has(state, input);
  undo(from, last, true);
  if (atOnce)
    return;
  std::vector<int> repeated;
  forEach(state, [&](int node) {
    const RematNode &other = problem.nodes[at(node)];
    if (node != last && other.repeatable && (other.repeatBefore < 0 || other.repeatBefore >= state.begun))
      repeated.push_back(node);
  });
  for (int node : repeated)
    undo(from, node, false);
}

void BoundSearch::start() {
  State all;
  all.begun = static_cast<int>(problem.nodes.size());
  sets.assign(words, 0);
  for (size_t node = 0; node < problem.nodes.size(); ++node)
    if (problem.nodes[node].liveAtExit) {
      sets[node / 64] |= bitOf(static_cast<int>(node));
      all.bytes += problem.nodes[node].bytes;
      all.hash ^= random[node];
    }
  if (all.bytes > budget)
    return;
  states.push_back(all);
  known[at(all.begun)].emplace(all.hash, 0);
  open(0);
}

RematSearchBound BoundSearch::run(double wanted, uint64_t work, const std::function<bool()> &stop) {
  RematSearchBound result;
  start();
  while (!queue.empty()) {
    auto [bound, begun, index] = queue.top();
    queue.pop();
    if (states[index].closed)
      continue;
    states[index].closed = true;
    result.extra = std::max(result.extra, bound);
    result.optimal = begun == 0;
    if (result.optimal || visits > work || (visits > work / 8 && result.extra < wanted) || (stop && stop()))
      return result;
    expand(index);
  }
  result.infeasible = true;
  return result;
}

} // namespace

RematSearchBound tcc::planning::boundBySearch(const RematProblem &problem, Bytes budget,
                                              const RematPrefixBounds &bounds, double known, uint64_t work,
                                              const std::function<bool()> &stop) {
  return BoundSearch(problem, budget, bounds).run(known, work, stop);
}
