//===- Rematerialization.cpp - definitions, and the stages of the solver --===//
#include "compiler/planning/Rematerialization.h"

#include "compiler/planning/RematSearch.h"

#include <algorithm>

namespace tcc::planning {

Cost transferCost(Bytes bytes, Bytes bytesPerCost) { return bytes / bytesPerCost + (bytes % bytesPerCost != 0); }

Cost transferCost(const RematProblem &problem, size_t node) {
  return transferCost(problem.nodes[node].bytes, problem.linkBytesPerCost) + problem.nodes[node].transferExtra;
}

RematMeasure measure(const RematProblem &problem, const RematSchedule &schedule) {
  const size_t length = schedule.size();
  std::vector<size_t> lastUse(length), newest(problem.nodes.size(), 0);
  std::vector<bool> stored(problem.nodes.size(), false);
  RematMeasure result;
  for (size_t step = 0; step < length; ++step) {
    size_t v = size_t(nodeOfEntry(schedule[step]));
    lastUse[step] = step;
    newest[v] = step;
    if (isFetch(schedule[step])) {
      result.cost += transferCost(problem, v) * (stored[v] ? 1 : 2);
      stored[v] = true;
      continue;
    }
    for (int input : problem.inputs[v])
      lastUse[newest[size_t(input)]] = step;
    result.cost += problem.nodes[v].cost;
  }
  // Outputs that live at exit are there after the last step too.
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    if (problem.nodes[v].liveAtExit)
      lastUse[newest[v]] = length;
  std::vector<Bytes> freed(length + 1, 0);
  std::fill(newest.begin(), newest.end(), 0);
  Bytes live = 0;
  for (size_t step = 0; step < length; ++step) {
    const size_t v = size_t(nodeOfEntry(schedule[step]));
    const RematNode &node = problem.nodes[v];
    const bool fetched = isFetch(schedule[step]);
    Bytes now = live + node.bytes + (fetched ? 0 : node.workspace);
    if (!fetched && node.overwrites >= 0 && lastUse[newest[size_t(node.overwrites)]] == step)
      now -= std::min(node.bytes, problem.nodes[size_t(node.overwrites)].bytes);
    result.peak = std::max(result.peak, now);
    newest[v] = step;
    freed[lastUse[step]] += node.bytes;
    live += node.bytes;
    live -= freed[step];
  }
  return result;
}

std::string validate(const RematProblem &problem, const RematSchedule &schedule) {
  std::vector<bool> done(problem.nodes.size(), false);
  for (size_t step = 0; step < schedule.size(); ++step) {
    int v = nodeOfEntry(schedule[step]);
    if (v < 0 || size_t(v) >= problem.nodes.size())
      return "step " + std::to_string(step) + " executes a node that does not exist";
    const RematNode &node = problem.nodes[size_t(v)];
    if (isFetch(schedule[step])) {
      if (!problem.linkBytesPerCost)
        return "step " + std::to_string(step) + " fetches " + node.name + ", but there is no link";
      if (!done[size_t(v)])
        return "step " + std::to_string(step) + " fetches " + node.name + " before it was made";
      continue;
    }
    for (int input : problem.inputs[size_t(v)])
      if (!done[size_t(input)])
        return "step " + std::to_string(step) + " executes " + node.name + " before its input " +
               problem.nodes[size_t(input)].name;
    if (done[size_t(v)] && !node.repeatable)
      return node.name + " is executed twice, which it must not be";
    if (node.repeatBefore >= 0 && done[size_t(node.repeatBefore)])
      return node.name + " is executed after " + problem.nodes[size_t(node.repeatBefore)].name +
             " has destroyed what it reads";
    done[size_t(v)] = true;
  }
  for (size_t v = 0; v < done.size(); ++v)
    if (!done[v])
      return problem.nodes[v].name + " is never executed";
  return "";
}

namespace {

RematSolution solutionOf(const RematProblem &problem, RematSchedule schedule) {
  RematMeasure measured = measure(problem, schedule);
  return {true, std::move(schedule), measured.cost, measured.peak};
}

/// The most bytes of inputs, output and workspace of one step.
Bytes largestStep(const RematProblem &problem) {
  Bytes largest = 0;
  for (size_t v = 0; v < problem.nodes.size(); ++v) {
    const RematNode &node = problem.nodes[v];
    Bytes bytes = node.bytes + node.workspace;
    for (int input : problem.inputs[v])
      bytes += problem.nodes[size_t(input)].bytes;
    if (node.overwrites >= 0)
      bytes -= std::min(node.bytes, problem.nodes[size_t(node.overwrites)].bytes);
    largest = std::max(largest, bytes);
  }
  return largest;
}

/// Work of the first answer, which is computed even if less work is allowed.
uint64_t workOfFirst(const RematProblem &problem) { return 20'000 * problem.nodes.size(); }

RematOptions with(const RematOptions &options, uint64_t work) {
  RematOptions result = options;
  result.work = work;
  return result;
}

/// Searches from the end with ever wider beams until the work is spent. Empty if no search finds a schedule.
RematSchedule fromTheEnd(const RematProblem &problem, Bytes budget, bool keepOrder, uint64_t work, uint64_t &visits) {
  RematSchedule best;
  Cost bestCost = 0;
  for (size_t width : {30, 100, 300, 1000}) {
    const uint64_t before = visits;
    RematSchedule found = scheduleFromTheEnd(problem, budget, width, keepOrder, work, visits);
    if (Cost cost = found.empty() ? 0 : measure(problem, found).cost;
        !found.empty() && (best.empty() || cost < bestCost)) {
      best = std::move(found);
      bestCost = cost;
    }
    const uint64_t spent = visits - before;
    if (spent >= work)
      break;
    work -= spent;
    if (4 * spent > work)
      break;
  }
  return best;
}

/// Searches from the end in the given order, for several budgets: with scarce memory the schedules found are expensive,
/// and one for a smaller budget is often cheaper.
RematSchedule fromTheEndInOrder(const RematProblem &problem, Bytes budget, uint64_t work) {
  constexpr uint64_t kBudgets = 4, kParts = 32;
  RematSchedule best;
  Cost bestCost = 0;
  for (uint64_t less = 0; less < kBudgets; ++less)
    for (size_t width : {30, 100, 300, 1000}) {
      uint64_t visits = 0;
      RematSchedule found =
          scheduleFromTheEnd(problem, budget - budget / kParts * less, width, true, work / kBudgets / 4, visits);
      if (found.empty())
        continue;
      takeBack(problem, found, budget);
      if (Cost cost = measure(problem, found).cost; best.empty() || cost < bestCost) {
        best = std::move(found);
        bestCost = cost;
      }
    }
  return best;
}

} // namespace

RematSolution rematerialize(const RematProblem &problem, Bytes budget, const RematOptions &options) {
  RematGraph graph(problem);
  RematTimeline timeline(graph);
  if (timeline.peak() <= budget)
    return solutionOf(problem, timeline.schedule());
  if (largestStep(problem) > budget)
    return {};
  timeline.setLimit(budget);
  // Schedules by prices and by greedy repair: both are fast, and either may be cheaper.
  RematSchedule best;
  if (problem.linkBytesPerCost) {
    // Solve without the link first, so that a link never makes the answer more expensive.
    RematProblem alone = problem;
    alone.linkBytesPerCost = 0;
    best = rematerialize(alone, budget, options).schedule;
  } else {
    best = scheduleByPrices(problem, budget);
  }
  Cost bestCost = best.empty() ? 0 : measure(problem, best).cost;
  const uint64_t greedily = best.empty() ? std::max(options.work / 4, workOfFirst(problem))
                                         : std::max(options.work / 4, workOfFirst(problem) / 4);
  if (repairGreedily(graph, timeline, greedily)) {
    RematSchedule greedy = timeline.schedule();
    takeBack(problem, greedy, budget);
    if (Cost cost = measure(problem, greedy).cost; best.empty() || cost < bestCost) {
      best = std::move(greedy);
      bestCost = cost;
    }
  }
  uint64_t spent = timeline.visits();
  auto left = [&] { return options.work - std::min(options.work, spent); };
  auto restart = [&](const RematSchedule &schedule) {
    timeline = RematTimeline(graph, schedule);
    timeline.setLimit(budget);
  };
  if (!best.empty()) {
    restart(best);
  } else {
    RematTimeline other(graph);
    RematSchedule near = descend(graph, other, budget, with(options, left() / 2));
    spent += other.visits();
    restart(near);
    if (timeline.overflow() == 0) {
      best = timeline.schedule();
      bestCost = timeline.cost();
    }
  }
  anneal(graph, timeline, with(options, left()), best, bestCost);
  if (!problem.linkBytesPerCost && (!options.keepOrder || (options.atAnyCost && best.empty()))) {
    // The search from the end finds schedules through narrow places, which annealing rarely does.
    uint64_t visits = 0;
    RematSchedule found = options.keepOrder ? fromTheEndInOrder(problem, budget, options.work / 4)
                                            : fromTheEnd(problem, budget, false, options.work / 8, visits);
    if (Cost cost = found.empty() ? 0 : measure(problem, found).cost;
        !found.empty() && (best.empty() || cost < bestCost)) {
      restart(found);
      best = std::move(found);
      bestCost = cost;
      anneal(graph, timeline, with(options, options.work / 2), best, bestCost);
    }
  }
  if (best.empty())
    return {};
  return solutionOf(problem, std::move(best));
}

RematSolution improve(const RematProblem &problem, Bytes budget, const RematSchedule &schedule,
                      const RematOptions &options) {
  RematGraph graph(problem);
  RematTimeline timeline(graph, schedule);
  timeline.setLimit(budget);
  RematSchedule best = schedule;
  Cost bestCost = timeline.cost();
  anneal(graph, timeline, options, best, bestCost);
  return solutionOf(problem, std::move(best));
}

RematSolution repair(const RematProblem &problem, Bytes budget, const RematSchedule &schedule) {
  RematGraph graph(problem);
  RematTimeline timeline(graph, schedule);
  timeline.setLimit(budget);
  if (!repairGreedily(graph, timeline, workOfFirst(problem) / 4))
    return {};
  RematSchedule repaired = timeline.schedule();
  takeBack(problem, repaired, budget);
  return solutionOf(problem, std::move(repaired));
}

RematSolution leastMemory(const RematProblem &problem, const RematOptions &options) {
  return leastMemory(problem, options, sweepPrices(problem));
}

RematSolution leastMemory(const RematProblem &problem, const RematOptions &options,
                          const std::vector<RematSchedule> &sweep) {
  RematGraph graph(problem);
  RematTimeline timeline(graph);
  const Bytes target = largestStep(problem);
  const uint64_t greedily = std::max(options.work / 8, workOfFirst(problem));
  // Lower the limit by greedy repair as far as that works, then by annealing.
  RematSchedule best = timeline.schedule();
  Bytes reached = timeline.peak();
  if (const RematSchedule *priced = leastOf(problem, sweep); priced && measure(problem, *priced).peak < reached) {
    best = *priced;
    timeline = RematTimeline(graph, best);
    reached = timeline.peak();
  }
  for (uint64_t parts = 16; parts <= 256 && reached > target;) {
    timeline.setLimit(reached - std::min(reached, std::max<Bytes>(1, reached / parts)));
    if (timeline.visits() < greedily && repairGreedily(graph, timeline, greedily / 2)) {
      best = timeline.schedule();
      reached = timeline.peak();
    } else {
      uint64_t spent = timeline.visits();
      timeline = RematTimeline(graph, best);
      timeline.count(spent);
      parts *= 4;
    }
  }
  best = descend(graph, timeline, target, with(options, options.work - std::min(options.work, timeline.visits())));
  if (!options.keepOrder || options.atAnyCost) {
    // Bisect between the proved bound and the peak reached, by the search from the end.
    Bytes out = boundPeak(problem);
    if (measure(problem, best).peak > out)
      out -= std::min<Bytes>(out, 1);
    for (Bytes within = measure(problem, best).peak;
         within - std::min(within, out) > std::max<Bytes>(1, within / 2048);) {
      const Bytes budget = out + (within - out) / 2;
      uint64_t visits = 0;
      if (RematSchedule found = fromTheEnd(problem, budget, options.keepOrder, options.work / 16, visits);
          !found.empty()) {
        best = std::move(found);
        within = measure(problem, best).peak;
      } else {
        out = budget;
      }
    }
  }
  return solutionOf(problem, std::move(best));
}

} // namespace tcc::planning
