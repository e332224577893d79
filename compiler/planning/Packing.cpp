//===- Packing.cpp - best-fit, exact search, validation -------------------===//
#include "compiler/planning/Packing.h"

#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

namespace tcc::planning {

std::vector<Bytes> scratchOffsets(const PackingProblem &problem, const std::vector<Bytes> &offsets) {
  std::vector<Bytes> result(problem.scratch.size(), 0);
  if (result.empty())
    return result;
  auto sorted = [](size_t count, auto key) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  };
  const std::vector<PackingBuffer> &buffers = problem.buffers;
  const std::vector<size_t> times = sorted(result.size(), [&](size_t i) { return problem.scratch[i].at; }),
                            births = sorted(buffers.size(), [&](size_t i) { return buffers[i].first; }),
                            deaths = sorted(buffers.size(), [&](size_t i) { return buffers[i].last; });
  auto endOf = [&](size_t i) { return offsets[i] + roundUp(buffers[i].bytes, problem.alignment); };
  std::map<Bytes, size_t> ends; // end offsets of the live buffers, and how many end there
  size_t born = 0, dead = 0;
  for (size_t i : times) {
    const Time at = problem.scratch[i].at;
    for (; born < births.size() && buffers[births[born]].first <= at; ++born)
      ++ends[endOf(births[born])];
    for (; dead < deaths.size() && buffers[deaths[dead]].last < at; ++dead)
      if (auto end = ends.find(endOf(deaths[dead])); --end->second == 0)
        ends.erase(end);
    result[i] = ends.empty() ? 0 : ends.rbegin()->first;
  }
  return result;
}

Bytes arenaBytes(const PackingProblem &problem, const std::vector<Bytes> &offsets) {
  Bytes bytes = 0;
  for (size_t i = 0; i < offsets.size(); ++i)
    bytes = std::max(bytes, offsets[i] + roundUp(problem.buffers[i].bytes, problem.alignment));
  const std::vector<Bytes> starts = scratchOffsets(problem, offsets);
  for (size_t i = 0; i < starts.size(); ++i)
    bytes = std::max(bytes, starts[i] + roundUp(problem.scratch[i].bytes, problem.alignment));
  return bytes;
}

PackingSolution packGreedily(const PackingProblem &problem) {
  constexpr uint64_t kMostVisits = 400'000'000; // of pairs of buffers: up to 12,000 buffers every order is tried
  const uint64_t visits = uint64_t(problem.buffers.size()) * problem.buffers.size() / 2 + 1;
  const Bytes bound = leastArena(problem);
  PackingSolution best;
  best.bytes = ~Bytes(0);
  uint64_t left = kMostVisits;
  for (const std::vector<size_t> &order : packingOrders(problem)) {
    if (best.bytes == bound || visits > left)
      break;
    left -= visits;
    if (std::optional<PackingSolution> solution = placeInOrder(problem, order, best.bytes))
      best = std::move(*solution);
  }
  if (visits > left && best.bytes > bound)
    if (PackingSolution solution = placeByBirth(problem); solution.bytes < best.bytes)
      best = std::move(solution);
  best.lowerBound = bound;
  return best;
}

PackingSolution pack(const PackingProblem &problem, uint64_t work, const std::function<bool()> &stop) {
  PackingSolution best = packGreedily(problem);
  // True if a packing within `capacity` was found; nothing if `share` is too little work to begin a search.
  auto search = [&](Bytes capacity, uint64_t share) -> std::optional<bool> {
    SearchAnswer answer = packWithin(problem, capacity, share, stop);
    if (answer.work == 0 && answer.result == SearchResult::Exhausted)
      return std::nullopt;
    work -= std::min(work, std::max<uint64_t>(answer.work, 1));
    if (answer.result == SearchResult::Infeasible)
      best.lowerBound = std::max(best.lowerBound, capacity + problem.alignment);
    if (answer.result != SearchResult::Found)
      return false;
    best.offsets = std::move(answer.offsets);
    best.bytes = arenaBytes(problem, best.offsets);
    return true;
  };
  // Try the lower bound first: it is nearly always reachable, in most programs quickly. Long schedules are too large
  // for the exact search, but other orders of best-fit come close.
  const Bytes bound = best.lowerBound;
  if (best.bytes <= goodArena(problem, bound) || work == 0 || search(bound, work / 8).value_or(false))
    return best;
  constexpr uint64_t kMostOrderWork = 400'000'000; // more improves little
  const uint64_t share = std::min(work / 2, kMostOrderWork);
  uint64_t left = share;
  improveOrder(problem, best, left, stop);
  work -= share - left;
  // With scratch the bound is mostly out of reach, and proving that takes long: start with capacities a little below
  // the best arena, and double the step.
  if (!problem.scratch.empty())
    for (Bytes step = (best.bytes - best.lowerBound) / 8;
         step >= problem.alignment && best.bytes > goodArena(problem, best.lowerBound); step *= 2) {
      const Bytes capacity = std::max(best.lowerBound, best.bytes - std::min(step, best.bytes));
      if (!search(capacity, work / 4).value_or(false))
        break;
    }
  // Then the bound again, and a bisection between the largest capacity out of reach and the best arena.
  Bytes unreached = bound ? bound - 1 : 0;
  for (Bytes capacity = best.lowerBound; best.bytes > goodArena(problem, best.lowerBound) && work > 0;) {
    std::optional<bool> found = search(capacity, work / 2);
    if (!found)
      break;
    if (!*found)
      unreached = capacity;
    capacity = unreached + (best.bytes - unreached) / 2 / problem.alignment * problem.alignment;
    if (capacity <= unreached || capacity >= best.bytes)
      break;
  }
  return best;
}

namespace {

/// Sweeps through time over the live buffers, sorted by offset. They are disjoint: only neighbours are compared.
class Sweep {
public:
  Sweep(const PackingProblem &problem, const PackingSolution &solution)
      : problem(problem), buffers(problem.buffers), solution(solution), births(buffers.size()) {
    std::iota(births.begin(), births.end(), size_t(0));
    deaths = births;
    auto by = [&](Time PackingBuffer::*time) {
      return [this, time](size_t a, size_t b) { return buffers[a].*time < buffers[b].*time; };
    };
    std::stable_sort(births.begin(), births.end(), by(&PackingBuffer::first));
    std::stable_sort(deaths.begin(), deaths.end(), by(&PackingBuffer::last));
  }

  /// Returns the violation, or an empty string.
  std::string run() {
    std::vector<PackingScratch> byTime = problem.scratch;
    std::stable_sort(byTime.begin(), byTime.end(), [](const auto &a, const auto &b) { return a.at < b.at; });
    for (const PackingScratch &scratch : byTime) {
      if (scratch.bytes > solution.bytes)
        return "scratch at time " + std::to_string(scratch.at) + " is larger than the arena";
      if (std::string wrong = bear(scratch.at); !wrong.empty())
        return wrong;
      bury(scratch.at);
      if (live.empty())
        continue;
      const auto [offset, highest] = *live.rbegin();
      if (offset + roundUp(buffers[highest].bytes, problem.alignment) + scratch.bytes > solution.bytes)
        return buffers[highest].name + " leaves no room for the scratch above it at time " + std::to_string(scratch.at);
    }
    return bear(std::numeric_limits<Time>::max());
  }

private:
  /// Adds the buffers that begin until `time`, and returns a clash. Empty buffers cannot clash.
  std::string bear(Time time) {
    for (; born < births.size() && buffers[births[born]].first <= time; ++born) {
      const size_t i = births[born];
      const Bytes offset = solution.offsets[i];
      bury(buffers[i].first);
      if (buffers[i].bytes == 0)
        continue;
      const auto next = live.lower_bound(offset);
      if (next != live.end() && next->first < offset + buffers[i].bytes)
        return clash(i, next->second);
      if (next != live.begin())
        if (const auto [start, j] = *std::prev(next); start + buffers[j].bytes > offset)
          return clash(j, i);
      live.emplace_hint(next, offset, i);
    }
    return "";
  }

  /// Removes the buffers that ended before `time`.
  void bury(Time time) {
    for (; dead < deaths.size() && buffers[deaths[dead]].last < time; ++dead)
      if (const auto at = live.find(solution.offsets[deaths[dead]]); at != live.end() && at->second == deaths[dead])
        live.erase(at);
  }

  std::string clash(size_t i, size_t j) const {
    return buffers[i].name + " and " + buffers[j].name + " live at the same time and overlap";
  }

  const PackingProblem &problem;
  const std::vector<PackingBuffer> &buffers;
  const PackingSolution &solution;
  std::vector<size_t> births, deaths; ///< buffers, by the time
  size_t born = 0, dead = 0;
  std::map<Bytes, size_t> live;
};

} // namespace

std::string validate(const PackingProblem &problem, const PackingSolution &solution) {
  const std::vector<PackingBuffer> &buffers = problem.buffers;
  if (solution.offsets.size() != buffers.size())
    return "the solution has " + std::to_string(solution.offsets.size()) + " offsets for " +
           std::to_string(buffers.size()) + " buffers";
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (solution.offsets[i] % problem.alignment)
      return buffers[i].name + " is not aligned";
    if (solution.offsets[i] + buffers[i].bytes > solution.bytes)
      return buffers[i].name + " ends beyond the arena";
  }
  return Sweep(problem, solution).run();
}

} // namespace tcc::planning
