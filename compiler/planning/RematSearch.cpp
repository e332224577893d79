//===- RematSearch.cpp - greedy recomputation by cost for bytes -----------===//
//
// The first answer, in milliseconds for a thousand nodes. Of all gaps between two uses of an output that span steps
// beyond the limit, drop the output in the gap with the least cost for each byte and step of excess removed, counting
// inputs that must be kept alive or recomputed with it. Repeat until nothing exceeds the limit.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematSearch.h"

#include <algorithm>

namespace tcc::planning {

bool RematMoves::recompute(int node, int step) {
  attempts = kMaxAttempts;
  return bringBack(node, step);
}

bool RematMoves::bringBack(int node, int step) {
  if (!timeline.mayFetch(node, step))
    return recomputeWithInputs(node, step);
  const size_t mark = timeline.mark();
  timeline.insert(node, step, true);
  const double byLink = objective();
  timeline.rollback(mark);
  if (recomputeWithInputs(node, step)) {
    if (objective() <= byLink)
      return true;
    timeline.rollback(mark);
  }
  timeline.insert(node, step, true);
  return true;
}

bool RematMoves::recomputeWithInputs(int node, int step) {
  step = timeline.latestRepetition(node, step);
  if (step < 0)
    return false;
  int execution = timeline.insert(node, step);
  for (int input : graph.inputs[size_t(node)]) {
    int at = timeline.stepOf(execution);
    int maker = timeline.newestBefore(input, at);
    if (timeline.lastUseOf(maker) != at)
      continue; // it lives on
    int before = timeline.lastUseWithin(input, timeline.stepOf(maker), at);
    const RematNode &what = graph.nodes[size_t(input)];
    const double cost =
        graph.mayFetch(input) ? std::min(double(what.cost), double(timeline.costOfFetch(input))) : double(what.cost);
    if (!graph.mayReturn(input) ||
        price * double(timeline.gainOfAbsence(input, timeline.mayTakeOver(before, input) ? before : before + 1, at)) <=
            cost)
      continue;
    if (--attempts < 0)
      return true;
    size_t mark = timeline.mark();
    double kept = objective();
    if (bringBack(input, at) && objective() >= kept)
      timeline.rollback(mark);
  }
  return true;
}

bool RematMoves::otherWay(int execution, bool all) {
  const int node = timeline.node(execution);
  const bool fetch = !timeline.isFetched(execution);
  std::vector<int> chosen{execution};
  if (all)
    chosen.assign(timeline.executionsOf(node).begin() + 1, timeline.executionsOf(node).end());
  attempts = kMaxAttempts;
  for (int other : chosen) {
    if (timeline.isFetched(other) == fetch)
      continue;
    // Inserts the new kind just before the old one, which then has no uses.
    const int step = timeline.stepOf(other);
    if (fetch) {
      timeline.insert(node, step, true);
      drop(other);
    } else {
      if (!recomputeWithInputs(node, step))
        return false;
      timeline.remove(other);
    }
  }
  return true;
}

void RematMoves::drop(int execution) {
  int step = timeline.stepOf(execution);
  std::vector<int> makers;
  for (int input : timeline.inputsOf(execution))
    makers.push_back(timeline.newestBefore(input, step));
  timeline.remove(execution);
  for (int maker : makers)
    if (timeline.stepOf(maker) >= 0 && !timeline.isFirst(maker) && timeline.lastUseOf(maker) == timeline.stepOf(maker))
      drop(maker);
}

namespace {

/// Candidates tried in one round: worse ratios rarely help if a hundred better ones did not.
constexpr int kMostTries = 200;

struct Candidate {
  double score = 0; ///< cost for each byte-step of overflow that goes away
  double gain = 0;
  int execution = 0, use = 0; ///< the output, and the execution before which it would be made again
};

} // namespace

bool repairGreedily(const RematGraph &graph, RematTimeline &timeline, uint64_t work) {
  RematMoves moves(graph, timeline);
  const uint64_t end = timeline.visits() + work;
  std::vector<int64_t> excess, crowded; // prefix sums over the steps
  std::vector<int> uses;
  std::vector<Candidate> candidates;
  while (timeline.overflow() > 0 && timeline.visits() < end) {
    size_t length = size_t(timeline.length());
    excess.assign(length + 1, 0);
    crowded.assign(length + 1, 0);
    for (size_t step = 0; step < length; ++step) {
      int64_t over = timeline.liveAt(int(step)) - timeline.limitBytes();
      excess[step + 1] = excess[step] + std::max<int64_t>(over, 0);
      crowded[step + 1] = crowded[step] + (over > 0);
    }
    candidates.clear();
    for (size_t step = 0; step < length; ++step) {
      int execution = timeline.executionAt(int(step)), node = timeline.nodeAt(int(step));
      const RematNode &what = graph.nodes[size_t(node)];
      int last = timeline.lastUseOf(execution);
      if (!graph.mayReturn(node) || !what.bytes || crowded[size_t(last)] == crowded[step])
        continue;
      timeline.usesOf(execution, uses);
      int from = int(step) + 1; // first step of the gap before the next use
      for (int needed : uses) {
        const int latest = timeline.latestRepetition(node, needed);
        const bool byLinkAlone = graph.mayFetch(node) && latest < needed;
        int use = std::max(byLinkAlone ? needed : latest, from);
        int64_t steps = crowded[size_t(use)] - crowded[size_t(from)];
        if (steps > 0) {
          double gain = double(std::min(excess[size_t(use)] - excess[size_t(from)], steps * int64_t(what.bytes)));
          double cost = double(what.cost);
          const double byLink = graph.mayFetch(node) ? double(timeline.costOfFetch(node)) : 0, whole = gain;
          for (int input : graph.inputs[size_t(node)]) {
            int maker = timeline.newestBefore(input, use), alive = timeline.lastUseOf(maker);
            if (alive >= use)
              continue;
            // The input is either kept alive through crowded steps, or recomputed.
            double kept =
                double(crowded[size_t(use)] - crowded[size_t(alive) + 1]) * double(graph.nodes[size_t(input)].bytes);
            if (kept > 0.25 * gain)
              cost += double(graph.nodes[size_t(input)].cost) * 1.5;
            else
              gain -= kept;
          }
          if (graph.mayFetch(node) && (byLinkAlone || gain <= 0 || byLink * gain < cost * whole)) {
            cost = byLink;
            gain = whole;
          }
          if (gain > 0)
            candidates.push_back({(cost + 1e-3) / gain, gain, execution, timeline.executionAt(use)});
        }
        from = timeline.mayTakeOver(needed, node) ? needed : needed + 1;
      }
    }
    timeline.count(candidates.size() * 8 + length);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate &a, const Candidate &b) { return a.score < b.score; });
    // Apply several in a round while their scores are close to the first one's and their gains are still valid.
    int done = 0, tries = 0;
    const int most = 1 + int(length) / 64;
    double worst = 0;
    for (const Candidate &candidate : candidates) {
      if (timeline.visits() >= end || ++tries > kMostTries || done == most || (done && candidate.score > worst) ||
          timeline.overflow() == 0)
        break;
      int step = timeline.stepOf(candidate.use), node = timeline.node(candidate.execution);
      if (done) {
        if (timeline.newestBefore(node, step) != candidate.execution || timeline.lastUseOf(candidate.execution) < step)
          continue;
        int from = timeline.lastUseWithin(node, timeline.stepOf(candidate.execution), step) + 1;
        if (double(timeline.gainOfAbsence(node, from, step)) < 0.8 * candidate.gain)
          continue;
      }
      int64_t before = timeline.overflow();
      size_t mark = timeline.mark();
      moves.price = candidate.score;
      if (moves.recompute(node, step) && timeline.overflow() < before) {
        if (!done++)
          worst = candidate.score * 1.2;
        timeline.forget();
      } else {
        timeline.rollback(mark);
      }
    }
    if (!done)
      return false;
  }
  return timeline.overflow() == 0;
}

void takeBack(const RematProblem &problem, RematSchedule &schedule, Bytes budget) {
  constexpr size_t kMostAttempts = 400;
  constexpr int kMostRounds = 8;
  const RematGraph graph(problem);
  bool changed = true;
  for (int round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    RematTimeline timeline(graph, schedule);
    timeline.setLimit(budget);
    std::vector<int> repeats = timeline.recomputations();
    std::stable_sort(repeats.begin(), repeats.end(),
                     [&](int a, int b) { return timeline.costOf(a) > timeline.costOf(b); });
    for (size_t i = 0; i < std::min(repeats.size(), kMostAttempts); ++i) {
      if (timeline.isNeeded(repeats[i]))
        continue;
      const Cost cost = timeline.costOf(repeats[i]);
      timeline.forget();
      timeline.remove(repeats[i]);
      if (timeline.overflow() == 0)
        changed = cost > 0 || changed;
      else
        timeline.rollback(0);
    }
    schedule = timeline.schedule();
  }
}

} // namespace tcc::planning
