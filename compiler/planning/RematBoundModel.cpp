//===- RematBoundModel.cpp - relaxation of recomputation ------------------===//
//
// Why each schedule within the budget gives a solution of the program in the header whose cost is at most the
// schedule's cost of repetitions. Remove repeatedly all repetitions whose output is not read before the node's next
// execution (except the last one of a node that lives at exit): neither cost nor peak grows, and the first executions
// stay in place.
//
//  - Intervals are cut by *first* executions alone, so nothing is assumed of the order, or of the number, of executions
//    inside one. redo[k,i] = 1 says "at least once"; more of them cost more.
//  - hold[k,i] = 1 says that i lives during the milestone's step: made before it and, without being made anew in
//    between, read by it or after it. So the live bytes there are Σ bytes · hold plus the milestone's own output. An
//    output that may take over an input's memory counts as if it always did.
//  - An execution in interval k that reads i finds an output of an execution in the same interval (redo[k,i] = 1, or
//    the first execution of i), or of an earlier one, which then lives during milestone k−1. The same goes for an
//    output that lives during milestone k. So both kinds of rows hold; they are left out where i's first execution may
//    lie in the interval or later: "first" is the last interval in which it can.
//  - The memory between milestones is not constrained, which only weakens the bound.
//  - Spans say the same of several intervals taken as one. Every schedule obeys them, but fractions don't: a half-held
//    output can serve a half of a repetition in one interval and the other half in the next, and an output that is
//    needed again can be recomputed in small fractions over several intervals. So few milestones often give a better
//    bound than many, and spans of 2, 4, 8, … intervals, each overlapping the next by half, come close to the best.
//  - After the last first execution of a descendant of i, nothing reads i: a repetition there would have been removed.
//    Repetitions that the problem forbids have no variable either.
//  - With a link, redo[k,i] means "executed again or fetched", at the lesser of the two costs. Storing is not counted,
//    and the row that a repetition reads its inputs is omitted, since a fetch does not.
//
// In the given order the interval of each first execution is known. In any order, only a path of the graph has a known
// order; a node's first execution is after its last ancestor and before its first descendant on the path. Only if these
// two delimit one interval is it known where the node reads its inputs; its executions up to the later one count as
// free.
//
// The formulation is that of Checkmate (Jain et al. 2020) without its order inside a stage, over chosen stages.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundModel.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::planning;

Bytes tcc::planning::bytesOfStep(const RematProblem &problem, size_t node) {
  const RematNode &self = problem.nodes[node];
  Bytes bytes = self.bytes + self.workspace;
  for (int input : problem.inputs[node])
    bytes += problem.nodes[static_cast<size_t>(input)].bytes;
  if (self.overwrites >= 0)
    bytes -= std::min(self.bytes, problem.nodes[static_cast<size_t>(self.overwrites)].bytes);
  return bytes;
}

namespace {

/// The intervals in which the first execution of each node may be: earliest … latest. A milestone belongs to the
/// interval before it.
struct Placement {
  std::vector<int> milestones; ///< [0] is −1
  std::vector<int> earliest, latest;
  bool order = false; ///< first executions follow the given order
};

/// The least cost of executing a node again, or fetching its output.
Cost leastCostOfReturn(const RematProblem &problem, size_t node) {
  const RematNode &self = problem.nodes[node];
  if (!problem.linkBytesPerCost)
    return self.cost;
  const Cost fetched = transferCost(problem, node);
  return self.repeatable ? std::min(self.cost, fetched) : fetched;
}

RematModel build(const RematProblem &problem, Bytes budget, Placement placement) {
  size_t n = problem.nodes.size();
  RematModel model;
  model.milestones = std::move(placement.milestones);
  model.stages = static_cast<int>(model.milestones.size()) - 1;
  model.capacity.assign(model.milestones.size(), 0.0);
  std::vector<int> stageOf(n, -1);
  for (int k = 1; k <= model.stages; ++k) {
    const RematNode &node = problem.nodes[at(model.milestones[at(k)])];
    stageOf[at(model.milestones[at(k)])] = k;
    Bytes own = node.bytes + node.workspace;
    if (node.overwrites >= 0)
      own -= std::min(node.bytes, problem.nodes[at(node.overwrites)].bytes);
    model.capacity[at(k)] = static_cast<double>(budget) - static_cast<double>(own);
  }

  // The last interval in which a reader may need the output.
  std::vector<int> last(placement.latest);
  for (size_t node = n; node-- > 0;) {
    if (problem.nodes[node].liveAtExit)
      last[node] = model.stages + 1;
    for (int input : problem.inputs[node])
      last[at(input)] = std::max(last[at(input)], last[node]);
  }

  model.values.resize(n);
  size_t size = 0;
  for (size_t node = 0; node < n; ++node) {
    RematModel::Value &value = model.values[node];
    model.bytes.push_back(static_cast<double>(problem.nodes[node].bytes));
    model.cost.push_back(static_cast<double>(leastCostOfReturn(problem, node)));
    value = {placement.latest[node], last[node], size, stageOf[node] == placement.latest[node]};
    if (value.last > value.first)
      size += at(value.last - value.first + 1);
  }
  model.held.assign(size, 0.0f);
  model.needed.assign(size, 0.0f);
  model.mayRedo.assign(size, 1.0f);
  for (size_t node = 0; node < n; ++node) {
    const RematModel::Value &value = model.values[node];
    if (value.last <= value.first)
      continue;
    const RematNode &self = problem.nodes[node];
    if (value.ownStep || value.first == 0)
      model.held[value.offset] = 1.0f;
    model.mayRedo[value.offset] = 0.0f;
    // In the given order a repetition that must precede a node's first execution is at most in the interval of it.
    int limit = model.stages + 1;
    if (problem.linkBytesPerCost)
      limit = model.stages + 1; // a fetch is never forbidden
    else if (!self.repeatable)
      limit = 0;
    else if (self.repeatBefore >= 0 && placement.order)
      limit = placement.latest[at(self.repeatBefore)];
    for (int k = std::max(limit, value.first) + 1; k <= value.last; ++k)
      model.mayRedo[value.offset + at(k - value.first)] = 0.0f;
    if (self.liveAtExit && value.last == model.stages + 1)
      model.needed[value.offset + at(value.last - value.first)] = 1.0f;
  }
  for (size_t node = 0; node < n; ++node)
    for (int input : problem.inputs[node]) {
      const RematModel::Value &value = model.values[at(input)];
      if (value.last <= value.first) {
        if (stageOf[node] == value.first) // an input lives during that step in any case
          model.capacity[at(value.first)] -= model.bytes[at(input)];
        continue;
      }
      // A fetch reads nothing, so with a link only first executions are known to read their inputs.
      if (!problem.linkBytesPerCost && model.values[node].last > model.values[node].first)
        model.edges.emplace_back(input, static_cast<int>(node));
      if (placement.earliest[node] != placement.latest[node])
        continue;
      int k = placement.latest[node];
      if (k > value.first)
        model.needed[value.offset + at(k - value.first)] = 1.0f;
      if (stageOf[node] == k && k >= value.first)
        model.held[value.offset + at(k - value.first)] = 1.0f;
    }
  int end = model.stages + 1;
  for (int length = 2; length <= end; length *= 2)
    for (int begin = 0; begin + length / 2 < end; begin += length / 2) // the last one may be shorter
      model.spans.emplace_back(begin, std::min(begin + length, end));
  return model;
}

/// At most `most` of the candidates: the heaviest of each run of neighbours.
std::vector<size_t> thinned(const std::vector<size_t> &candidates, const std::vector<Bytes> &weight, int most) {
  if (candidates.size() <= at(most))
    return candidates;
  std::vector<size_t> chosen;
  for (size_t run = 0; run < at(most); ++run) {
    size_t begin = run * candidates.size() / at(most), end = (run + 1) * candidates.size() / at(most);
    size_t best = begin;
    for (size_t other = begin; other < end; ++other)
      if (weight[candidates[other]] > weight[candidates[best]])
        best = other;
    chosen.push_back(candidates[best]);
  }
  return chosen;
}

} // namespace

RematModel tcc::planning::modelOfGivenOrder(const RematProblem &problem, Bytes budget, int maxStages) {
  size_t n = problem.nodes.size();
  // The bytes that could live during each first execution, and those that do without repetitions.
  std::vector<size_t> lastNeed(n), lastUse(n);
  for (size_t node = n; node-- > 0;) {
    lastNeed[node] = problem.nodes[node].liveAtExit ? n : std::max(lastNeed[node], node);
    for (int input : problem.inputs[node]) {
      lastNeed[at(input)] = std::max(lastNeed[at(input)], lastNeed[node]);
      lastUse[at(input)] = std::max(lastUse[at(input)], node);
    }
    lastUse[node] = problem.nodes[node].liveAtExit ? n : std::max(lastUse[node], node);
  }
  std::vector<Bytes> possible(n, 0), live(n, 0);
  for (size_t node = 0; node < n; ++node) {
    for (size_t step = node; step <= lastNeed[node] && step < n; ++step)
      possible[step] += problem.nodes[node].bytes;
    for (size_t step = node; step <= lastUse[node] && step < n; ++step)
      live[step] += problem.nodes[node].bytes;
    possible[node] += problem.nodes[node].workspace;
    live[node] += problem.nodes[node].workspace;
  }
  std::vector<size_t> tight;
  for (size_t step = 0; step < n; ++step)
    if (possible[step] > budget)
      tight.push_back(step);
  size_t start = tight.empty() ? n : tight.front(); // before it everything may be held
  tight = thinned(tight, live, std::max(maxStages, 1));

  Placement placement;
  placement.order = true;
  placement.milestones.push_back(-1);
  placement.latest.resize(n);
  for (size_t step = 0, next = 0; step < n; ++step) {
    placement.latest[step] = step < start ? 0 : static_cast<int>(next) + 1;
    if (next < tight.size() && tight[next] == step) {
      placement.milestones.push_back(static_cast<int>(step));
      ++next;
    }
  }
  placement.earliest = placement.latest;
  return build(problem, budget, std::move(placement));
}

RematModel tcc::planning::modelOfAnyOrder(const RematProblem &problem, Bytes budget, int maxStages) {
  size_t n = problem.nodes.size();
  // Ancestors, as bits.
  size_t words = (n + 63) / 64;
  std::vector<uint64_t> ancestors(n * words, 0);
  for (size_t node = 0; node < n; ++node)
    for (int input : problem.inputs[node]) {
      for (size_t word = 0; word < words; ++word)
        ancestors[node * words + word] |= ancestors[at(input) * words + word];
      ancestors[node * words + at(input) / 64] |= uint64_t{1} << (at(input) % 64);
    }
  auto isAncestor = [&](size_t node, size_t of) { return (ancestors[of * words + node / 64] >> (node % 64) & 1) != 0; };
  // The bytes live during a node's first execution in every order without repetitions: its inputs, its output, and the
  // outputs of ancestors that a descendant reads.
  std::vector<Bytes> live(n, 0);
  for (size_t node = 0; node < n; ++node)
    live[node] = bytesOfStep(problem, node);
  std::vector<size_t> seen(n, n);
  std::vector<std::vector<int>> users(n);
  for (size_t node = 0; node < n; ++node)
    for (int input : problem.inputs[node])
      users[at(input)].push_back(static_cast<int>(node));
  for (size_t value = 0; value < n; ++value) {
    if (users[value].empty() && !problem.nodes[value].liveAtExit)
      continue;
    for (size_t node = value + 1; node < n; ++node) {
      if (!isAncestor(value, node))
        continue;
      bool alive = problem.nodes[value].liveAtExit, reads = false;
      for (int user : users[value]) {
        alive |= at(user) > node && isAncestor(node, at(user));
        reads |= at(user) == node;
      }
      if (alive && !reads)
        live[node] += problem.nodes[value].bytes;
    }
  }
  // The path with the most live bytes. Steps far below the budget count little.
  std::vector<double> best(n, 0.0);
  std::vector<int> before(n, -1);
  int end = -1;
  for (size_t node = 0; node < n; ++node) {
    for (int input : problem.inputs[node])
      if (best[at(input)] > best[node]) {
        best[node] = best[at(input)];
        before[node] = input;
      }
    double over = live[node] > budget ? static_cast<double>(live[node] - budget) : 0.0;
    best[node] += over + 0.01 * static_cast<double>(live[node]) + 1.0;
    if (end < 0 || best[node] > best[at(end)])
      end = static_cast<int>(node);
  }
  std::vector<size_t> path;
  for (int node = end; node >= 0; node = before[at(node)])
    path.push_back(at(node));
  std::reverse(path.begin(), path.end());
  path = thinned(path, live, std::max(maxStages, 1));

  Placement placement;
  placement.milestones.push_back(-1);
  for (size_t node : path)
    placement.milestones.push_back(static_cast<int>(node));
  int stages = static_cast<int>(path.size());
  placement.earliest.assign(n, 1);
  placement.latest.assign(n, stages + 1);
  for (size_t node = 0; node < n; ++node)
    for (int k = 1; k <= stages; ++k) {
      size_t milestone = path[at(k) - 1];
      if (isAncestor(milestone, node))
        placement.earliest[node] = k + 1;
      if (milestone == node)
        placement.earliest[node] = placement.latest[node] = k;
      else if (isAncestor(node, milestone))
        placement.latest[node] = std::min(placement.latest[node], k);
    }
  return build(problem, budget, std::move(placement));
}
