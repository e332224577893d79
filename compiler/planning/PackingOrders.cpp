//===- PackingOrders.cpp - orders for best-fit that learn -----------------===//
//
// Squeaky wheel optimisation (Joslin and Clements, "Squeaky Wheel Optimization", JAIR 1999): construct, analyse,
// prioritise. Buffers are placed by best-fit; those that end beyond the best arena so far are to blame and move forward
// in the order, by amounts that differ; so does one buffer by chance, or the same few orders would come again. Long
// schedules with recomputation, which the exact search is lost in, come from 10 to 20 % above the most live at once to
// within 1 % of it in some hundred orders.
//
// Orders are tried on the large buffers alone, for these decide. The small ones take what gaps are left, largest first.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/PackingOrders.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tcc::planning {

Bytes roundUp(Bytes bytes, Bytes alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool overlapInTime(const PackingBuffer &a, const PackingBuffer &b) { return a.first <= b.last && b.first <= a.last; }

namespace {

/// Buffers smaller than this part of the bound are small.
constexpr Bytes kSmallPart = 256;
/// Orders without progress before another one is started from.
constexpr unsigned kPatience = 1000;

/// Repeatable numbers (Marsaglia, "Xorshift RNGs", 2003).
class Chance {
public:
  uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
  }

private:
  uint64_t state = 88172645463325252u;
};

/// Best-fit of some buffers, quick to repeat: which pairs overlap in time is known.
class Placer {
public:
  Placer(const PackingProblem &problem, const std::vector<size_t> &chosen) : count(chosen.size()) {
    overlaps.resize(count * count);
    for (size_t i = 0; i < count; ++i) {
      bytes.push_back(roundUp(problem.buffers[chosen[i]].bytes, problem.alignment));
      for (size_t j = 0; j < count; ++j)
        overlaps[i * count + j] = overlapInTime(problem.buffers[chosen[i]], problem.buffers[chosen[j]]);
    }
  }

  /// Fills `ends`; the size of the arena.
  Bytes place(const std::vector<size_t> &order) {
    placed.clear();
    ends.assign(count, 0);
    Bytes most = 0;
    for (size_t index : order) {
      const char *overlap = &overlaps[index * count];
      Bytes end = 0, best = 0, bestGap = ~Bytes(0);
      // The neighbours in time first, without a branch: which they are is beyond prediction.
      neighbours.resize(placed.size() + 1);
      size_t found = 0;
      for (const std::pair<Bytes, size_t> &other : placed) {
        neighbours[found] = other;
        found += size_t(overlap[other.second]);
      }
      for (size_t i = 0; i < found; ++i) {
        const auto &[start, other] = neighbours[i];
        if (start > end && start - end >= bytes[index] && start - end < bestGap) {
          best = end;
          bestGap = start - end;
        }
        end = std::max(end, ends[other]);
      }
      std::pair<Bytes, size_t> at(bestGap != ~Bytes(0) ? best : end, index);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), at), at);
      ends[index] = at.first + bytes[index];
      most = std::max(most, ends[index]);
    }
    return most;
  }

  size_t count;
  std::vector<Bytes> ends;

private:
  std::vector<Bytes> bytes;
  std::vector<char> overlaps;
  std::vector<std::pair<Bytes, size_t>> placed, neighbours; ///< (offset, buffer), by offset
};

} // namespace

Bytes mostLive(const PackingProblem &problem) {
  std::map<Time, int64_t> change;
  for (const PackingBuffer &buffer : problem.buffers) {
    int64_t bytes = int64_t(roundUp(buffer.bytes, problem.alignment));
    change[buffer.first] += bytes;
    change[buffer.last + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (auto &[time, delta] : change)
    most = std::max(most, live += delta);
  return Bytes(most);
}

std::optional<PackingSolution> placeInOrder(const PackingProblem &problem, const std::vector<size_t> &order,
                                            Bytes below) {
  struct Placed {
    Bytes start, end;
    Time first, last;
  };
  PackingSolution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  std::vector<Placed> placed, neighbours; // by offset
  placed.reserve(order.size());
  neighbours.resize(order.size() + 1);
  for (size_t index : order) {
    const PackingBuffer &buffer = problem.buffers[index];
    const Bytes bytes = roundUp(buffer.bytes, problem.alignment);
    Bytes end = 0, best = 0, bestGap = ~Bytes(0);
    size_t found = 0; // neighbours in time, gathered without a branch
    for (const Placed &other : placed) {
      neighbours[found] = other;
      found += size_t(other.first <= buffer.last) & size_t(buffer.first <= other.last);
    }
    for (size_t i = 0; i < found; ++i) {
      const Placed &other = neighbours[i];
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
    if (solution.bytes >= below)
      return std::nullopt;
    auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                               [](Bytes start, const Placed &other) { return start < other.start; });
    placed.insert(at, {offset, offset + bytes, buffer.first, buffer.last});
  }
  return solution;
}

std::vector<std::vector<size_t>> packingOrders(const PackingProblem &problem) {
  const std::vector<PackingBuffer> &buffers = problem.buffers;
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](size_t i) { return double(buffers[i].last - buffers[i].first + 1); };
  auto by = [&](auto key) {
    std::vector<size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
    return sorted;
  };
  return {by([&](size_t i) { return double(buffers[i].bytes); }),
          by([&](size_t i) { return double(buffers[i].bytes) * length(i); }), by([&](size_t i) { return length(i); }),
          by([&](size_t i) { return -double(buffers[i].first); })};
}

void improveOrder(const PackingProblem &problem, PackingSolution &best, uint64_t &work,
                  const std::function<bool()> &stop) {
  const Bytes bound = mostLive(problem);
  PackingProblem large{{}, problem.alignment};
  std::vector<size_t> chosen, small; // of `problem`
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    bool isLarge = problem.buffers[i].bytes * kSmallPart >= bound;
    (isLarge ? chosen : small).push_back(i);
    if (isLarge)
      large.buffers.push_back(problem.buffers[i]);
  }
  std::stable_sort(small.begin(), small.end(), [&](size_t a, size_t b) {
    return problem.buffers[a].bytes > problem.buffers[b].bytes;
  });
  const size_t count = chosen.size();
  const uint64_t placing = count * count / 2 + 1, placingAll = problem.buffers.size() * problem.buffers.size() / 2 + 1;
  auto spend = [&](uint64_t visits) {
    bool enough = visits <= work;
    work -= std::min(work, visits);
    return enough;
  };
  if (count < 2 || !spend(4 * placing + count * count))
    return;
  Placer placer(problem, chosen);
  const Bytes largeBound = mostLive(large);

  std::vector<std::pair<Bytes, std::vector<size_t>>> starts;
  for (std::vector<size_t> &order : packingOrders(large)) {
    Bytes bytes = placer.place(order);
    starts.emplace_back(bytes, std::move(order));
  }
  std::stable_sort(starts.begin(), starts.end(), [](const auto &a, const auto &b) { return a.first < b.first; });

  Bytes leastLarge = starts.front().first;
  std::vector<int64_t> rank(count); // where in the order a buffer wants to stand, in thousandths
  Chance chance;
  for (size_t start = 0; leastLarge > largeBound && best.bytes > bound; start = (start + 1) % starts.size()) {
    std::vector<size_t> order = starts[start].second;
    for (size_t place = 0; place < count; ++place)
      rank[order[place]] = int64_t(place) * 1000;
    placer.place(order);
    for (unsigned stale = 0; stale < kPatience && leastLarge > largeBound; ++stale) {
      if (!spend(placing) || (stop && stop()))
        return;
      const int64_t all = int64_t(count) * 1000;
      for (size_t i = 0; i < count; ++i)
        if (placer.ends[i] + problem.alignment > leastLarge)
          rank[i] -= all / 50 + all / 10 * int64_t(chance.below(1000)) / 1000;
      rank[chance.below(count)] -= all / 20 * int64_t(chance.below(1000)) / 1000;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
      Bytes bytes = placer.place(order);
      if (bytes >= leastLarge)
        continue;
      leastLarge = bytes;
      stale = 0;
      if (!spend(placingAll))
        return;
      std::vector<size_t> whole;
      for (size_t i : order)
        whole.push_back(chosen[i]);
      whole.insert(whole.end(), small.begin(), small.end());
      if (std::optional<PackingSolution> all = placeInOrder(problem, whole, best.bytes)) {
        best.bytes = all->bytes;
        best.offsets = std::move(all->offsets);
      }
    }
  }
}

} // namespace tcc::planning
