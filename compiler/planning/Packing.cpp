//===- Packing.cpp --------------------------------------------------------===//
#include "compiler/planning/Packing.h"

#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tcc::planning {

namespace {

Bytes roundUp(Bytes bytes, Bytes alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool overlapInTime(const PackingBuffer &a, const PackingBuffer &b) { return a.first <= b.last && b.first <= a.last; }

Bytes mostLive(const PackingProblem &problem) {
  std::map<Time, int64_t> change;
  for (const PackingBuffer &buffer : problem.buffers) {
    int64_t bytes = roundUp(buffer.bytes, problem.alignment);
    change[buffer.first] += bytes;
    change[buffer.last + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (auto &[time, delta] : change)
    most = std::max(most, live += delta);
  return most;
}

/// Places buffers in `order`, each into the smallest gap between its already placed neighbours in time that holds it.
PackingSolution placeInOrder(const PackingProblem &problem, const std::vector<size_t> &order) {
  struct Placed {
    Bytes start, end;
    Time first, last;
  };
  PackingSolution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  std::vector<Placed> placed; // by offset
  placed.reserve(order.size());
  for (size_t index : order) {
    const PackingBuffer &buffer = problem.buffers[index];
    const Bytes bytes = roundUp(buffer.bytes, problem.alignment);
    Bytes end = 0, best = 0, bestGap = ~Bytes(0);
    for (const Placed &other : placed) {
      if (other.first > buffer.last || buffer.first > other.last)
        continue;
      if (other.start > end && other.start - end >= bytes && other.start - end < bestGap) {
        best = end;
        bestGap = other.start - end;
        if (bestGap == bytes)
          break;
      }
      end = std::max(end, other.end);
    }
    const Bytes offset = bestGap != ~Bytes(0) ? best : end;
    solution.offsets[index] = offset;
    solution.bytes = std::max(solution.bytes, offset + bytes);
    auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                               [](Bytes start, const Placed &other) { return start < other.start; });
    placed.insert(at, {offset, offset + bytes, buffer.first, buffer.last});
  }
  return solution;
}

} // namespace

PackingSolution packGreedily(const PackingProblem &problem) {
  const std::vector<PackingBuffer> &buffers = problem.buffers;
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](size_t i) { return double(buffers[i].last - buffers[i].first + 1); };
  auto by = [&](auto key) {
    std::vector<size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
    return sorted;
  };
  Bytes bound = mostLive(problem);
  PackingSolution best;
  bool first = true;
  for (const std::vector<size_t> &candidate :
       {by([&](size_t i) { return double(buffers[i].bytes); }),
        by([&](size_t i) { return buffers[i].bytes * length(i); }), by([&](size_t i) { return length(i); }),
        by([&](size_t i) { return -double(buffers[i].first); })}) {
    PackingSolution solution = placeInOrder(problem, candidate);
    if (first || solution.bytes < best.bytes)
      best = std::move(solution);
    first = false;
    if (best.bytes == bound)
      break;
  }
  best.lowerBound = bound;
  return best;
}

PackingSolution pack(const PackingProblem &problem, uint64_t work, const std::function<bool()> &stop) {
  PackingSolution best = packGreedily(problem);
  // The bound first, which is nearly always reachable; then half-way between what is out of reach and what is there.
  Bytes unreached = best.lowerBound ? best.lowerBound - 1 : 0;
  for (Bytes capacity = best.lowerBound; best.bytes > best.lowerBound && work > 0;) {
    SearchAnswer answer = packWithin(problem, capacity, work / 2, stop);
    if (answer.work == 0 && answer.result == SearchResult::Exhausted)
      break; // too little for one answer
    work -= std::min(work, std::max<uint64_t>(answer.work, 1));
    if (answer.result == SearchResult::Found) {
      best.offsets = std::move(answer.offsets);
      best.bytes = 0;
      for (size_t i = 0; i < best.offsets.size(); ++i)
        best.bytes = std::max(best.bytes, best.offsets[i] + roundUp(problem.buffers[i].bytes, problem.alignment));
    } else {
      if (answer.result == SearchResult::Infeasible)
        best.lowerBound = std::max(best.lowerBound, capacity + problem.alignment);
      unreached = capacity;
    }
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
    for (size_t j = i + 1; j < buffers.size(); ++j)
      if (overlapInTime(buffers[i], buffers[j]) && solution.offsets[i] < solution.offsets[j] + buffers[j].bytes &&
          solution.offsets[j] < solution.offsets[i] + buffers[i].bytes)
        return buffers[i].name + " and " + buffers[j].name + " live at the same time and overlap";
  }
  return "";
}

} // namespace tcc::planning
