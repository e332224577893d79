//===- RematTimeline.cpp - a schedule that can be edited ------------------===//
#include "compiler/planning/RematTimeline.h"

#include <algorithm>

namespace tcc::planning {

RematGraph::RematGraph(const RematProblem &problem)
    : nodes(problem.nodes), inputs(problem.inputs), users(problem.nodes.size() + 1), limits(problem.nodes.size() + 1) {
  RematNode exit;
  exit.name = "exit";
  exit.repeatable = false;
  std::vector<int> kept;
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    if (problem.nodes[v].liveAtExit)
      kept.push_back(int(v));
  nodes.push_back(exit);
  inputs.push_back(kept);
  for (size_t v = 0; v < problem.nodes.size() && problem.linkBytesPerCost; ++v)
    transfer.push_back(transferCost(problem, v));
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    if (int limiting = problem.nodes[v].repeatBefore; limiting >= 0)
      limits[size_t(limiting)].push_back(int(v));
  for (size_t v = 0; v < inputs.size(); ++v)
    for (int input : inputs[v])
      users[size_t(input)].push_back(int(v));
}

RematTimeline::RematTimeline(const RematGraph &graph) : graph(&graph) {
  RematSchedule schedule(graph.nodes.size());
  for (size_t v = 0; v < schedule.size(); ++v)
    schedule[v] = int(v);
  build(schedule);
}

RematTimeline::RematTimeline(const RematGraph &graph, const RematSchedule &schedule) : graph(&graph) {
  RematSchedule whole = schedule;
  whole.push_back(graph.exit());
  build(whole);
}

void RematTimeline::build(const RematSchedule &schedule) {
  size_t length = schedule.size();
  order.resize(length);
  live.assign(length, 0);
  nodeOf.clear();
  fetched.clear();
  fetches.assign(graph->nodes.size(), 0);
  for (int entry : schedule) {
    nodeOf.push_back(nodeOfEntry(entry));
    fetched.push_back(isFetch(entry));
  }
  made.resize(length);
  taken.assign(length, 0);
  placeInRepeats.assign(length, -1);
  executions.assign(graph->nodes.size(), {});
  for (size_t step = 0; step < length; ++step) {
    order[step] = made[step] = int(step);
    std::vector<int> &mine = executions[size_t(nodeOf[step])];
    if (!mine.empty()) {
      placeInRepeats[step] = int(repeats.size());
      repeats.push_back(int(step));
    }
    mine.push_back(int(step));
    if (fetched[step]) {
      total += costOfFetch(nodeOf[step]);
      ++fetches[size_t(nodeOf[step])];
    } else {
      total += graph->nodes[size_t(nodeOf[step])].cost;
    }
  }
  last = made;
  std::vector<int> newest(graph->nodes.size(), -1);
  for (size_t step = 0; step < length; ++step) {
    for (int input : inputsOf(int(step)))
      last[size_t(newest[size_t(input)])] = int(step);
    newest[size_t(nodeOf[step])] = int(step);
  }
  for (size_t e = 0; e < length; ++e) {
    const RematNode &node = graph->nodes[size_t(nodeOf[e])];
    for (int step = made[e]; step <= last[e]; ++step)
      live[size_t(step)] += int64_t(node.bytes);
    live[e] += fetched[e] ? 0 : int64_t(node.workspace);
  }
  for (size_t step = 0; step < length; ++step)
    if (int over = graph->nodes[size_t(nodeOf[step])].overwrites; over >= 0 && !fetched[step])
      if (int e = newestBefore(over, int(step)); last[size_t(e)] == int(step))
        setTaken(int(step), e, true);
}

void RematTimeline::setLimit(Bytes bytes) {
  limit = int64_t(std::min<Bytes>(bytes, Bytes(std::numeric_limits<int64_t>::max())));
  excess = 0;
  for (int64_t now : live)
    excess += over(now);
  visited += live.size();
}

Bytes RematTimeline::peak() const {
  visited += live.size();
  return Bytes(*std::max_element(live.begin(), live.end()));
}

RematSchedule RematTimeline::schedule() const {
  RematSchedule schedule;
  for (size_t step = 0; step + 1 < order.size(); ++step)
    schedule.push_back(fetched[size_t(order[step])] ? fetchOf(nodeOf[size_t(order[step])])
                                                    : nodeOf[size_t(order[step])]);
  return schedule;
}

int RematTimeline::newestBefore(int node, int step) const {
  const std::vector<int> &mine = executions[size_t(node)];
  for (size_t i = mine.size(); i-- > 0;)
    if (made[size_t(mine[i])] < step)
      return mine[i];
  return -1;
}

int RematTimeline::lastUseWithin(int node, int after, int before) const {
  int found = after;
  for (int user : graph->users[size_t(node)]) {
    const std::vector<int> &theirs = executions[size_t(user)];
    visited += theirs.size();
    for (size_t i = theirs.size(); i-- > 0;)
      if (int step = made[size_t(theirs[i])]; step < before && !fetched[size_t(theirs[i])]) {
        found = std::max(found, step);
        break;
      }
  }
  return found;
}

void RematTimeline::usesOf(int execution, std::vector<int> &steps) const {
  steps.clear();
  int node = nodeOf[size_t(execution)], from = made[size_t(execution)], to = last[size_t(execution)];
  for (int user : graph->users[size_t(node)])
    for (int other : executions[size_t(user)])
      if (int step = made[size_t(other)]; step > from && step <= to && !fetched[size_t(other)])
        steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  visited += steps.size() * 2 + graph->users[size_t(node)].size();
}

int RematTimeline::latestRepetition(int node, int step) const {
  const RematNode &what = graph->nodes[size_t(node)];
  if (what.repeatBefore >= 0)
    step = std::min(step, made[size_t(executions[size_t(what.repeatBefore)][0])]);
  return what.repeatable && made[size_t(executions[size_t(node)][0])] < step ? step : -1;
}

int64_t RematTimeline::gainOfAbsence(int node, int from, int to) const {
  int64_t gain = 0, bytes = int64_t(graph->nodes[size_t(node)].bytes);
  for (int step = from; step < to; ++step)
    gain += std::min(over(live[size_t(step)]), bytes);
  visited += size_t(std::max(to - from, 0)) / 2;
  return gain;
}

bool RematTimeline::isNeeded(int execution) const {
  const int node = nodeOf[size_t(execution)], step = made[size_t(execution)];
  if (last[size_t(execution)] == step)
    return false;
  // At best, the previous execution's output lives on up to here, and inputs that lived only for this step die earlier.
  int64_t change = int64_t(graph->nodes[size_t(node)].bytes);
  for (int input : inputsOf(execution))
    if (last[size_t(newestBefore(input, step))] == step)
      change -= int64_t(graph->nodes[size_t(input)].bytes);
  const int from = last[size_t(newestBefore(node, step))];
  for (int other = step - 1; other > from; --other) {
    ++visited;
    if (live[size_t(other)] + change > limit)
      return true;
  }
  return false;
}

void RematTimeline::add(int from, int to, int64_t bytes) {
  int64_t change = 0;
  for (int step = from; step < to; ++step) {
    int64_t before = live[size_t(step)], after = before + bytes;
    live[size_t(step)] = after;
    change += over(after) - over(before);
  }
  excess += change;
  if (to > from)
    visited += size_t(to - from) / 2;
}

/// Sets whether the output of the step takes over the memory of the input that `execution` made.
void RematTimeline::setTaken(int step, int execution, bool isTaken) {
  if (step == made[size_t(execution)])
    return;
  int taker = order[size_t(step)];
  const RematNode &node = graph->nodes[size_t(nodeOf[size_t(taker)])];
  int from = nodeOf[size_t(execution)];
  if (node.overwrites != from || fetched[size_t(taker)])
    return;
  int64_t bytes = isTaken ? int64_t(std::min(node.bytes, graph->nodes[size_t(from)].bytes)) : 0;
  add(step, step + 1, taken[size_t(taker)] - bytes);
  taken[size_t(taker)] = bytes;
}

void RematTimeline::setLast(int execution, int step) {
  int old = last[size_t(execution)];
  if (old == step)
    return;
  setTaken(old, execution, false);
  int64_t bytes = int64_t(graph->nodes[size_t(nodeOf[size_t(execution)])].bytes);
  if (step > old)
    add(old + 1, step + 1, bytes);
  else
    add(step + 1, old + 1, -bytes);
  last[size_t(execution)] = step;
  setTaken(step, execution, true);
}

void RematTimeline::enlist(int execution) {
  placeInRepeats[size_t(execution)] = int(repeats.size());
  repeats.push_back(execution);
}

void RematTimeline::delist(int execution) {
  int moved = repeats.back();
  repeats[size_t(placeInRepeats[size_t(execution)])] = moved;
  placeInRepeats[size_t(moved)] = placeInRepeats[size_t(execution)];
  repeats.pop_back();
  placeInRepeats[size_t(execution)] = -1;
}

bool RematTimeline::moveFirst(int node, int step) {
  int execution = executions[size_t(node)][0], from = made[size_t(execution)];
  if (step == from || step == from + 1)
    return false;
  log.push_back({true, node, step});
  insertAt(node, step, false);
  remove(execution);
  return true;
}

void RematTimeline::roomOfFirst(int node, int &from, int &to) const {
  from = 0;
  to = length() - 1;
  auto firstStep = [&](int other) { return made[size_t(executions[size_t(other)][0])]; };
  for (int input : graph->inputs[size_t(node)])
    from = std::max(from, firstStep(input) + 1);
  for (int user : graph->users[size_t(node)])
    to = std::min(to, firstStep(user));
  if (executions[size_t(node)].size() > 1)
    to = std::min(to, made[size_t(executions[size_t(node)][1])]);
  if (int limiting = graph->nodes[size_t(node)].repeatBefore; limiting >= 0)
    to = std::min(to, firstStep(limiting));
  for (int other : graph->limits[size_t(node)])
    from = std::max(from, made[size_t(executions[size_t(other)].back())] + 1);
  visited += graph->inputs[size_t(node)].size() + graph->users[size_t(node)].size();
}

int RematTimeline::insert(int node, int step, bool fetch) {
  log.push_back({true, node, step, fetch});
  insertAt(node, step, fetch);
  return order[size_t(step)];
}

void RematTimeline::remove(int execution) {
  int step = made[size_t(execution)];
  log.push_back({false, nodeOf[size_t(execution)], step, isFetched(execution)});
  removeAt(step);
}

void RematTimeline::rollback(size_t mark) {
  while (log.size() > mark) {
    Edit edit = log.back();
    log.pop_back();
    if (edit.inserted)
      removeAt(edit.step);
    else
      insertAt(edit.node, edit.step, edit.fetch);
  }
}

void RematTimeline::insertAt(int node, int step, bool fetch) {
  const RematNode &what = graph->nodes[size_t(node)];
  int displaced = order[size_t(step)];
  const RematNode &next = graph->nodes[size_t(nodeOf[size_t(displaced)])];
  int64_t through =
      live[size_t(step)] - int64_t(next.bytes + (isFetched(displaced) ? 0 : next.workspace)) + taken[size_t(displaced)];
  const size_t count = made.size();
  for (size_t e = 0; e < count; ++e) {
    made[e] += made[e] >= step;
    last[e] += last[e] >= step;
  }
  visited += count / 2 + 8;
  int execution;
  if (unused.empty()) {
    execution = int(made.size());
    nodeOf.push_back(node);
    made.push_back(step);
    last.push_back(step);
    taken.push_back(0);
    fetched.push_back(fetch);
    placeInRepeats.push_back(-1);
  } else {
    execution = unused.back();
    unused.pop_back();
    nodeOf[size_t(execution)] = node;
    made[size_t(execution)] = last[size_t(execution)] = step;
    taken[size_t(execution)] = 0;
    fetched[size_t(execution)] = fetch;
  }
  order.insert(order.begin() + step, execution);
  int64_t now = through + int64_t(what.bytes + (fetch ? 0 : what.workspace));
  live.insert(live.begin() + step, now);
  excess += over(now);
  total += fetch ? costOfFetch(node) : what.cost;
  fetches[size_t(node)] += fetch;

  std::vector<int> &mine = executions[size_t(node)];
  size_t place = mine.size();
  while (place > 0 && made[size_t(mine[place - 1])] > step)
    --place;
  enlist(place > 0 ? execution : mine[0]);
  mine.insert(mine.begin() + long(place), execution);
  int before = place > 0 ? mine[place - 1] : -1;
  if (int end = before < 0 ? -1 : last[size_t(before)]; end > step) {
    // The new execution takes over the later uses.
    last[size_t(execution)] = end;
    int use = lastUseWithin(node, made[size_t(before)], step);
    add(use + 1, step + 1, -int64_t(what.bytes));
    last[size_t(before)] = use;
    setTaken(use, before, true);
  }
  for (int input : inputsOf(execution)) {
    int e = newestBefore(input, step);
    if (last[size_t(e)] < step)
      setLast(e, step);
  }
}

void RematTimeline::removeAt(int step) {
  int execution = order[size_t(step)], node = nodeOf[size_t(execution)];
  const RematNode &what = graph->nodes[size_t(node)];
  for (int input : inputsOf(execution)) {
    int e = newestBefore(input, step);
    if (last[size_t(e)] == step)
      setLast(e, lastUseWithin(input, made[size_t(e)], step));
  }
  std::vector<int> &mine = executions[size_t(node)];
  size_t place = 0;
  while (mine[place] != execution)
    ++place;
  int before = place > 0 ? mine[place - 1] : -1; // a first execution that is removed has no uses
  if (int end = last[size_t(execution)]; end > step && before >= 0) {
    setTaken(last[size_t(before)], before, false);
    add(last[size_t(before)] + 1, step + 1, int64_t(what.bytes));
    last[size_t(before)] = end;
  }
  mine.erase(mine.begin() + long(place));
  excess -= over(live[size_t(step)]);
  order.erase(order.begin() + step);
  live.erase(live.begin() + step);
  made[size_t(execution)] = last[size_t(execution)] = -1;
  unused.push_back(execution);
  const size_t count = made.size();
  for (size_t e = 0; e < count; ++e) {
    made[e] -= made[e] > step;
    last[e] -= last[e] > step;
  }
  visited += count / 2 + 8;
  delist(place > 0 ? execution : mine[0]);
  fetches[size_t(node)] -= isFetched(execution);
  total -= isFetched(execution) ? costOfFetch(node) : what.cost;
}

} // namespace tcc::planning
