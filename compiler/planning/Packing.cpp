//===- Packing.cpp --------------------------------------------------------===//
#include "compiler/planning/Packing.h"

#include "compiler/planning/PackingOrders.h"
#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace tcc::planning {

PackingSolution packGreedily(const PackingProblem &problem) {
  Bytes bound = mostLive(problem);
  PackingSolution best;
  best.bytes = ~Bytes(0);
  for (const std::vector<size_t> &order : packingOrders(problem)) {
    if (std::optional<PackingSolution> solution = placeInOrder(problem, order, best.bytes))
      best = std::move(*solution);
    if (best.bytes == bound)
      break;
  }
  best.lowerBound = bound;
  return best;
}

PackingSolution pack(const PackingProblem &problem, uint64_t work, const std::function<bool()> &stop) {
  PackingSolution best = packGreedily(problem);
  // Whether an arena of `capacity` was found; none where `share` is too little for an answer.
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
    best.bytes = 0;
    for (size_t i = 0; i < best.offsets.size(); ++i)
      best.bytes = std::max(best.bytes, best.offsets[i] + roundUp(problem.buffers[i].bytes, problem.alignment));
    return true;
  };
  // The bound first, which is nearly always reachable, and in most programs soon. Long schedules are beyond the search:
  // other orders of best-fit come close.
  const Bytes bound = best.lowerBound;
  if (best.bytes == bound || work == 0 || search(bound, work / 8).value_or(false))
    return best;
  constexpr uint64_t kMostOrderWork = 400'000'000; // little comes after that
  const uint64_t share = std::min(work / 2, kMostOrderWork);
  uint64_t left = share;
  improveOrder(problem, best, left, stop);
  work -= share - left;
  // Then the bound again, and half-way between what is out of reach and what is there.
  Bytes unreached = bound ? bound - 1 : 0;
  for (Bytes capacity = best.lowerBound; best.bytes > best.lowerBound && work > 0;) {
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
  // All pairs, but for those of which one begins after the other has ended.
  std::vector<size_t> byBirth(buffers.size());
  std::iota(byBirth.begin(), byBirth.end(), size_t(0));
  std::stable_sort(byBirth.begin(), byBirth.end(),
                   [&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  for (size_t a = 0; a < byBirth.size(); ++a) {
    const size_t i = byBirth[a];
    for (size_t b = a + 1; b < byBirth.size() && buffers[byBirth[b]].first <= buffers[i].last; ++b)
      if (const size_t j = byBirth[b]; overlapInTime(buffers[i], buffers[j]) &&
                                       solution.offsets[i] < solution.offsets[j] + buffers[j].bytes &&
                                       solution.offsets[j] < solution.offsets[i] + buffers[i].bytes)
        return buffers[i].name + " and " + buffers[j].name + " live at the same time and overlap";
  }
  return "";
}

} // namespace tcc::planning
