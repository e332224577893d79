//===- RematAnneal.cpp - simulated annealing over schedules ---------------===//
//
// States are schedules, within the limit or not; the objective is cost plus a price for each byte and step beyond the
// limit. The price adapts: it rises while schedules exceed the limit too often and falls while they are within it
// (strategic oscillation, Glover 1977), so that it converges to the marginal cost of memory.
// Moves:
//   recompute  an output just before one of its uses, with those of its inputs that are better recomputed than kept
// drop a recomputation, and the recomputations that only it reads
//   shift      a recomputation to another use, or a few steps
//   other way  fetches a recomputed output from the host, or recomputes a fetched one (if there is a link)
//   reorder    a first execution within the room that its inputs and users leave it (unless the order is to be kept)
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Random.h"
#include "compiler/planning/RematSearch.h"

#include <algorithm>
#include <bit>

namespace tcc::planning {

namespace {

class Random {
public:
  explicit Random(uint64_t seed) : bits(seed) {}
  /// In [0, count).
  int below(int count) { return int((bits.next() >> 32) * uint64_t(count) >> 32); }
  /// Exponential with a mean of about 1, without a logarithm (whose last bit differs between libraries): its whole part
  /// from leading zeros, its fraction by a line.
  double exponential() {
    uint64_t drawn = bits.next() | 1;
    int zeros = std::countl_zero(drawn);
    return (double(zeros) + 1 - double((drawn << zeros) << 1 >> 11) * 0x1p-53) * 0.6931;
  }

private:
  RandomBits bits;
};

class Annealer {
public:
  Annealer(const RematGraph &graph, RematTimeline &timeline, bool keepOrder, uint64_t seed)
      : graph(graph), timeline(timeline), keepOrder(keepOrder), moves(graph, timeline), random(seed) {
    for (const RematNode &node : graph.nodes) {
      meanCost += double(node.cost) / double(graph.nodes.size());
      meanBytes += double(node.bytes) / double(graph.nodes.size());
    }
    meanCost = std::max(meanCost, 1e-6);
    meanBytes = std::max(meanBytes, 1e-6);
  }

  double meanCost = 0, meanBytes = 0;
  double &price() { return moves.price; }

  /// Tries one move; returns whether the timeline changed.
  bool step(double temperature) {
    double before = moves.objective();
    size_t mark = timeline.mark();
    timeline.count(4);
    if (!propose()) {
      timeline.rollback(mark);
      return false;
    }
    double rise = moves.objective() - before;
    bool accepted = rise <= 0 || rise < temperature * random.exponential();
    if (!accepted)
      timeline.rollback(mark);
    timeline.forget();
    return accepted;
  }

private:
  bool propose() {
    int kind = random.below(100);
    if (!keepOrder && kind < 45)
      return reorder();
    const std::vector<int> &repeats = timeline.recomputations();
    kind = random.below(100);
    if (kind < 40 || repeats.empty())
      return recompute();
    int execution = repeats[size_t(random.below(int(repeats.size())))];
    if (!graph.transfer.empty() && random.below(5) == 0)
      return moves.otherWay(execution, random.below(2));
    if (kind < 75) {
      moves.drop(execution);
      return true;
    }
    return shift(execution);
  }

  bool reorder() {
    int node = timeline.nodeAt(random.below(timeline.length() - 1)), from = 0, to = 0;
    timeline.roomOfFirst(node, from, to);
    if (to <= from)
      return false;
    int at = timeline.stepOf(timeline.executionsOf(node)[0]), step = 0;
    switch (random.below(4)) {
    case 0:
      step = from;
      break;
    case 1:
      step = to;
      break;
    case 2:
      step = std::clamp(at + random.below(21) - 10, from, to);
      break;
    default:
      step = from + random.below(to - from + 1);
    }
    return timeline.moveFirst(node, step);
  }

  bool recompute() {
    int execution = timeline.executionAt(random.below(timeline.length()));
    int node = timeline.node(execution);
    if (!graph.mayReturn(node))
      return false;
    timeline.usesOf(execution, uses);
    if (uses.empty())
      return false;
    size_t which = size_t(random.below(int(uses.size())));
    int before = which ? uses[which - 1] : timeline.stepOf(execution);
    if (uses[which] - before < 2 && !timeline.mayTakeOver(before, node))
      return false;
    return moves.recompute(node, uses[which]);
  }

  bool shift(int execution) {
    int node = timeline.node(execution), step = timeline.stepOf(execution);
    timeline.remove(execution);
    int earlier = timeline.newestBefore(node, step);
    int to = step + random.below(21) - 10;
    if (random.below(2)) {
      timeline.usesOf(earlier, uses);
      if (!uses.empty())
        to = uses[size_t(random.below(int(uses.size())))];
    }
    return moves.recompute(node, std::clamp(to, timeline.stepOf(earlier) + 1, timeline.length() - 1));
  }

  const RematGraph &graph;
  RematTimeline &timeline;
  const bool keepOrder;
  RematMoves moves;
  Random random;
  std::vector<int> uses;
};

/// Moves between two updates of price and temperature.
constexpr int kRound = 256;

/// Visits after which a longer annealing improves little; further work restarts it, up to kMostBeginnings times.
uint64_t workOfOne(const RematGraph &graph) { return 20'000 * graph.nodes.size() * graph.nodes.size(); }
constexpr uint64_t kMostBeginnings = 8;
/// With less than this part of one annealing's work, annealing is not worth starting.
constexpr uint64_t kLeastShare = 128;

/// One annealing of `work` visits; with `any`, the first schedule within the limit ends it.
void annealOnce(const RematGraph &graph, RematTimeline &timeline, uint64_t work, const RematOptions &options,
                uint64_t seed, bool any, RematSchedule &best, Cost &bestCost, Cost least) {
  Annealer annealer(graph, timeline, options.keepOrder, seed);
  annealer.price() = annealer.meanCost / annealer.meanBytes * 0.05;
  // With little work for many nodes start colder: the search could not recover from leaving the first local minimum.
  const double share = any ? 0.1 : std::min(0.1, double(work) / double(workOfOne(graph)));
  // Every second restart is hotter, so that it forgets its initial schedule.
  const double hotter = !any && seed % 2 ? 4 : 1;
  const double hot = annealer.meanCost * (0.005 + 5 * share * hotter), cold = annealer.meanCost * 0.005;
  const uint64_t begin = timeline.visits();
  for (uint64_t spent = 0; spent < work; spent = timeline.visits() - begin) {
    if ((options.stop && options.stop()) || (!best.empty() && bestCost == least))
      return;
    double rest = 1 - double(spent) / double(work);
    double temperature = cold + (hot - cold) * rest * rest * rest * rest;
    int within = 0;
    for (int move = 0; move < kRound; ++move) {
      if (annealer.step(temperature) && timeline.overflow() == 0 && (best.empty() || timeline.cost() < bestCost)) {
        best = timeline.schedule();
        bestCost = timeline.cost();
        if (any)
          return;
      }
      within += timeline.overflow() == 0;
    }
    annealer.price() *= within < kRound * 3 / 10 ? 1.1 : within > kRound / 2 ? 0.92 : 1;
  }
}

} // namespace

void anneal(const RematGraph &graph, const RematTimeline &from, const RematOptions &options, RematSchedule &best,
            Cost &bestCost) {
  if (options.work < workOfOne(graph) / kLeastShare)
    return;
  Cost least = 0;
  for (const RematNode &node : graph.nodes)
    least += node.cost;
  const uint64_t beginnings = std::clamp<uint64_t>(options.work / workOfOne(graph), 1, kMostBeginnings);
  const uint64_t work = std::max<uint64_t>(1, std::min(options.work / beginnings, 3 * workOfOne(graph)));
  for (uint64_t beginning = 0; beginning < beginnings; ++beginning) {
    RematTimeline timeline = from;
    annealOnce(graph, timeline, work, options, beginning, false, best, bestCost, least);
  }
}

RematSchedule descend(const RematGraph &graph, RematTimeline &timeline, Bytes target, const RematOptions &options) {
  RematSchedule best = timeline.schedule();
  Bytes reached = timeline.peak();
  Annealer annealer(graph, timeline, options.keepOrder, 0);
  annealer.price() = annealer.meanCost / annealer.meanBytes * 2;
  const uint64_t begin = timeline.visits();
  const uint64_t work = std::max<uint64_t>(1, std::min(options.work / 4, workOfOne(graph)));
  uint64_t since = begin; // time of the last progress
  uint64_t stride = 64;   // the next limit is lower by reached / stride
  auto aim = [&] {
    timeline.setLimit(std::max(target, reached - std::min(reached, std::max<Bytes>(1, reached / stride))));
  };
  aim();
  while (reached > target) {
    uint64_t now = timeline.visits();
    if (now - begin >= work || (options.stop && options.stop()))
      break;
    if (now - since > work / 12) {
      since = now;
      stride = std::min<uint64_t>(stride * 4, 4096);
      aim();
    }
    // The temperature oscillates, so that the search leaves local minima.
    double phase = double((now - begin) * 8 % work) / double(work);
    double temperature = annealer.meanCost * (0.02 + 0.5 * (1 - phase) * (1 - phase));
    for (int move = 0; move < kRound; ++move)
      if (annealer.step(temperature) && timeline.overflow() == 0) {
        best = timeline.schedule();
        reached = timeline.peak();
        since = timeline.visits();
        if (reached <= target)
          break;
        aim();
      }
  }
  // Then complete annealings, each with a limit slightly below the peak reached so far.
  uint64_t left = std::min(options.work - std::min(options.work, timeline.visits() - begin), 20 * workOfOne(graph));
  const uint64_t part = std::max<uint64_t>(left / 6, 1);
  uint64_t seed = 0;
  for (uint64_t parts = 16; reached > target && left > 0 && parts <= 1024;) {
    if (options.stop && options.stop())
      break;
    RematTimeline next(graph, best);
    next.setLimit(std::max(target, reached - std::min(reached, std::max<Bytes>(1, reached / parts))));
    RematSchedule found;
    Cost cost = 0;
    annealOnce(graph, next, std::min(part, left), options, ++seed, true, found, cost, 0);
    left -= std::min(left, next.visits() + 1);
    if (found.empty()) {
      parts *= 2;
    } else {
      best = std::move(found);
      reached = next.peak();
    }
  }
  return best;
}

} // namespace tcc::planning
