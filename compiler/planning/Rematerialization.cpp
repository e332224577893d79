//===- Rematerialization.cpp - definitions, and the way through the solver ===//
#include "compiler/planning/Rematerialization.h"

#include "compiler/planning/RematPrices.h"
#include "compiler/planning/RematSearch.h"

#include <algorithm>

namespace tcc::planning {

RematMeasure measure(const RematProblem &problem, const RematSchedule &schedule) {
  const size_t length = schedule.size();
  std::vector<size_t> lastUse(length), newest(problem.nodes.size(), 0);
  RematMeasure result;
  for (size_t step = 0; step < length; ++step) {
    size_t v = size_t(schedule[step]);
    for (int input : problem.inputs[v])
      lastUse[newest[size_t(input)]] = step;
    lastUse[step] = step;
    newest[v] = step;
    result.cost += problem.nodes[v].cost;
  }
  // What lives at exit is there after the last step too.
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    if (problem.nodes[v].liveAtExit)
      lastUse[newest[v]] = length;
  std::vector<Bytes> freed(length + 1, 0);
  std::fill(newest.begin(), newest.end(), 0);
  Bytes live = 0;
  for (size_t step = 0; step < length; ++step) {
    const RematNode &node = problem.nodes[size_t(schedule[step])];
    Bytes now = live + node.bytes + node.workspace;
    if (node.overwrites >= 0 && lastUse[newest[size_t(node.overwrites)]] == step)
      now -= std::min(node.bytes, problem.nodes[size_t(node.overwrites)].bytes);
    result.peak = std::max(result.peak, now);
    newest[size_t(schedule[step])] = step;
    freed[lastUse[step]] += node.bytes;
    live += node.bytes;
    live -= freed[step];
  }
  return result;
}

std::string validate(const RematProblem &problem, const RematSchedule &schedule) {
  std::vector<bool> done(problem.nodes.size(), false);
  for (size_t step = 0; step < schedule.size(); ++step) {
    int v = schedule[step];
    if (v < 0 || size_t(v) >= problem.nodes.size())
      return "step " + std::to_string(step) + " executes a node that does not exist";
    const RematNode &node = problem.nodes[size_t(v)];
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

/// Inputs, output and workspace of one step, at most.
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

/// A first answer is not left out, however little work is allowed.
uint64_t workOfFirst(const RematProblem &problem) { return 20'000 * problem.nodes.size(); }

RematOptions with(const RematOptions &options, uint64_t work) {
  RematOptions result = options;
  result.work = work;
  return result;
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
  // By prices in an instant, where that leads anywhere; else, or where there is time, one by one.
  constexpr uint64_t kPlentyOfWork = 200'000'000;
  RematSchedule best = scheduleByPrices(problem, budget);
  Cost bestCost = best.empty() ? 0 : measure(problem, best).cost;
  const uint64_t greedily = std::max(options.work / 4, workOfFirst(problem));
  if ((best.empty() || options.work >= kPlentyOfWork) && repairGreedily(graph, timeline, greedily) &&
      (best.empty() || timeline.cost() <= bestCost)) {
    best = timeline.schedule();
    bestCost = timeline.cost();
  } else if (!best.empty()) {
    uint64_t spent = timeline.visits();
    timeline = RematTimeline(graph, best);
    timeline.count(spent);
    timeline.setLimit(budget);
  }
  auto left = [&] { return options.work - std::min(options.work, timeline.visits()); };
  if (best.empty()) {
    RematTimeline other(graph);
    RematSchedule near = descend(graph, other, budget, with(options, left() / 2));
    uint64_t spent = timeline.visits() + other.visits();
    timeline = RematTimeline(graph, near);
    timeline.count(spent);
    timeline.setLimit(budget);
    if (timeline.overflow() == 0) {
      best = timeline.schedule();
      bestCost = timeline.cost();
    }
  }
  anneal(graph, timeline, with(options, left()), best, bestCost);
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

RematSolution leastMemory(const RematProblem &problem, const RematOptions &options) {
  RematGraph graph(problem);
  RematTimeline timeline(graph);
  const Bytes target = largestStep(problem);
  const uint64_t greedily = std::max(options.work / 8, workOfFirst(problem));
  // Greedily as far as that goes, then by annealing.
  RematSchedule best = timeline.schedule();
  Bytes reached = timeline.peak();
  if (RematSchedule priced = leastByPrices(problem); !priced.empty() && measure(problem, priced).peak < reached) {
    best = std::move(priced);
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
  return solutionOf(problem, std::move(best));
}

} // namespace tcc::planning
