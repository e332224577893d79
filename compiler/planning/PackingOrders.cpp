//===- PackingOrders.cpp - best-fit in orders that learn from failures ----===//
//
// Squeaky wheel optimisation (Joslin and Clements, "Squeaky Wheel Optimization", JAIR 1999): construct, analyse,
// prioritise. Buffers are placed by best-fit; those that end beyond the best arena so far move forward in the order, by
// random amounts; so does one buffer picked at random, or the same few orders would recur. Long schedules with
// recomputation, which are too large for the exact search, improve from 10 to 20 % above the most live at once to
// within 1 % of it in some hundred orders.
//
// Orders are tried on the large buffers alone, which determine the arena. Small ones fill the remaining gaps, largest
// first.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

namespace tcc::planning {

Bytes roundUp(Bytes bytes, Bytes alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool overlapInTime(const PackingBuffer &a, const PackingBuffer &b) { return a.first <= b.last && b.first <= a.last; }

namespace {

/// Buffers smaller than this part of the bound are small, at first.
constexpr Bytes kSmallPart = 256;
/// Orders without progress before a restart from another initial order.
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

/// The buffers placed so far, by offset.
struct Extent {
  Bytes start, end;
};

/// The offset of the smallest gap between `count` extents (sorted by start) that holds `bytes` and begins no higher
/// than `highest`, the lowest of equal ones; else of the lowest gap, else above all extents. Branch-free, since no
/// branch predictor can tell which gap is better.
Bytes bestFit(const Extent *extents, size_t count, Bytes bytes, Bytes highest) {
  constexpr int64_t kNoGap = std::numeric_limits<int64_t>::max();
  Bytes end = 0, best = 0, lowest = 0;
  int64_t bestGap = kNoGap;
  bool fits = false; // anywhere between them
  for (size_t i = 0; i < count; ++i) {
    const int64_t gap = int64_t(extents[i].start - end); // below 0: they overlap
    const bool holds = gap >= int64_t(bytes);
    const bool isBetter = holds & (gap < bestGap) & (end <= highest);
    lowest = holds & !fits ? end : lowest;
    fits |= holds;
    best = isBetter ? end : best;
    bestGap = isBetter ? gap : bestGap;
    end = std::max(end, extents[i].end);
  }
  return bestGap != kNoGap ? best : fits ? lowest : end;
}

/// The highest offset at which a buffer of `bytes` leaves `above` free below `capacity`.
Bytes highestOffset(Bytes capacity, Bytes bytes, Bytes above) {
  return bytes + above <= capacity ? capacity - bytes - above : 0;
}

/// Number of extents (sorted by start) that start at `offset` or below.
size_t placeOf(const std::vector<Extent> &extents, Bytes offset) {
  const Extent *begin = extents.data();
  for (size_t left = extents.size(); left > 0;) {
    const size_t half = (left + 1) / 2;
    begin += begin[half - 1].start <= offset ? half : 0;
    left -= half;
  }
  return size_t(begin - extents.data());
}

/// Best-fit of a subset of the buffers, fast to repeat: precomputes which pairs overlap in time, and reuses the
/// placement of the prefix that an order shares with the previous one.
class Placer {
public:
  Placer(const PackingProblem &problem, const std::vector<size_t> &chosen)
      : count(chosen.size()), ends(count, 0), placeInOrder(count, 0), neighbours(count + 1) {
    overlaps.resize(count * count);
    const std::vector<Bytes> aboveAll = scratchAbove(problem);
    for (size_t i = 0; i < count; ++i) {
      bytes.push_back(roundUp(problem.buffers[chosen[i]].bytes, problem.alignment));
      above.push_back(aboveAll[chosen[i]]);
      for (size_t j = 0; j < count; ++j)
        overlaps[i * count + j] = overlapInTime(problem.buffers[chosen[i]], problem.buffers[chosen[j]]);
    }
  }

  /// Fills `ends`; the size of the arena. Gaps that keep it below `capacity` are preferred to others.
  Bytes place(const std::vector<size_t> &order, Bytes capacity = ~Bytes(0)) {
    size_t same = size_t(std::mismatch(last.begin(), last.end(), order.begin()).first - last.begin());
    if (capacity != lastCapacity)
      same = 0;
    lastCapacity = capacity;
    size_t kept = 0;
    Bytes most = 0;
    for (size_t i = 0; i < ids.size(); ++i)
      if (placeInOrder[ids[i]] < same) {
        most = std::max(most, ends[ids[i]]);
        placed[kept] = placed[i];
        ids[kept++] = ids[i];
      }
    placed.resize(kept);
    ids.resize(kept);
    for (size_t place = same; place < count; ++place) {
      const size_t index = order[place];
      const char *overlap = &overlaps[index * count];
      // Gather the neighbours in time first, also branch-free.
      size_t found = 0;
      for (size_t i = 0; i < place; ++i) {
        neighbours[found] = placed[i];
        found += size_t(overlap[ids[i]]);
      }
      const Bytes offset =
          bestFit(neighbours.data(), found, bytes[index], highestOffset(capacity, bytes[index], above[index]));
      const size_t at = placeOf(placed, offset);
      placed.insert(placed.begin() + long(at), {offset, offset + bytes[index]});
      ids.insert(ids.begin() + long(at), unsigned(index));
      placeInOrder[index] = place;
      ends[index] = offset + bytes[index] + above[index];
      most = std::max(most, ends[index]);
    }
    last = order;
    return most;
  }

  size_t count;
  std::vector<Bytes> ends; ///< with the scratch above

private:
  std::vector<Bytes> bytes, above;
  Bytes lastCapacity = ~Bytes(0);
  std::vector<char> overlaps;
  std::vector<size_t> last;         ///< the last order
  std::vector<size_t> placeInOrder; ///< of each buffer
  std::vector<Extent> placed, neighbours;
  std::vector<unsigned> ids; ///< buffer of each extent in `placed`
};

} // namespace

std::vector<Bytes> scratchAbove(const PackingProblem &problem) {
  std::vector<Bytes> above(problem.buffers.size(), 0);
  if (problem.scratch.empty())
    return above;
  std::vector<PackingScratch> byTime = problem.scratch;
  std::sort(byTime.begin(), byTime.end(), [](const auto &a, const auto &b) { return a.at < b.at; });
  // Sparse table: most[k][i] is the maximum of the 2^k blocks that begin at i.
  std::vector<std::vector<Bytes>> most(1);
  for (const PackingScratch &scratch : byTime)
    most[0].push_back(roundUp(scratch.bytes, problem.alignment));
  for (size_t step = 1; 2 * step <= byTime.size(); step *= 2) {
    const std::vector<Bytes> &half = most.back();
    std::vector<Bytes> whole;
    for (size_t i = 0; i + step < half.size(); ++i)
      whole.push_back(std::max(half[i], half[i + step]));
    most.push_back(std::move(whole));
  }
  for (size_t i = 0; i < above.size(); ++i) {
    auto isBefore = [](const PackingScratch &scratch, Time time) { return scratch.at < time; };
    const size_t begin = size_t(std::lower_bound(byTime.begin(), byTime.end(), problem.buffers[i].first, isBefore) -
                                byTime.begin()),
                 end = size_t(std::lower_bound(byTime.begin(), byTime.end(), problem.buffers[i].last + 1, isBefore) -
                              byTime.begin());
    if (begin == end)
      continue;
    const size_t level = size_t(std::bit_width(end - begin)) - 1;
    above[i] = std::max(most[level][begin], most[level][end - (size_t(1) << level)]);
  }
  return above;
}

Bytes mostLive(const PackingProblem &problem) {
  std::map<Time, int64_t> change;
  for (const PackingScratch &scratch : problem.scratch) {
    int64_t bytes = int64_t(roundUp(scratch.bytes, problem.alignment));
    change[scratch.at] += bytes;
    change[scratch.at + 1] -= bytes;
  }
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

Bytes leastArena(const PackingProblem &problem) {
  Bytes least = mostLive(problem);
  constexpr size_t kMostBuffers = 4000; // above that, visiting all pairs takes too long
  if (problem.scratch.empty() || problem.buffers.size() > kMostBuffers)
    return least;
  const std::vector<Bytes> above = scratchAbove(problem);
  std::vector<size_t> byAbove(problem.buffers.size());
  std::iota(byAbove.begin(), byAbove.end(), size_t(0));
  std::stable_sort(byAbove.begin(), byAbove.end(), [&](size_t a, size_t b) { return above[a] > above[b]; });
  // The set of live buffers only grows when a buffer is born, so it suffices to look at births.
  for (const PackingBuffer &latest : problem.buffers) {
    Bytes sum = 0;
    for (size_t i : byAbove) {
      if (problem.buffers[i].first > latest.first || problem.buffers[i].last < latest.first)
        continue;
      sum += roundUp(problem.buffers[i].bytes, problem.alignment);
      least = std::max(least, sum + above[i]);
    }
  }
  return least;
}

Bytes goodArena(const PackingProblem &problem, Bytes bound) {
  constexpr Bytes kPart = 512;
  return problem.scratch.empty() ? bound : bound + bound / kPart;
}

std::optional<PackingSolution> placeInOrder(const PackingProblem &problem, const std::vector<size_t> &order,
                                            Bytes below) {
  struct Life {
    Time first, last;
  };
  PackingSolution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  const std::vector<Bytes> above = scratchAbove(problem);
  for (const PackingScratch &scratch : problem.scratch)
    solution.bytes = std::max(solution.bytes, roundUp(scratch.bytes, problem.alignment));
  std::vector<Extent> placed, neighbours(order.size() + 1); // by offset
  std::vector<Life> lives;                                  // of `placed`
  placed.reserve(order.size());
  lives.reserve(order.size());
  for (size_t index : order) {
    const PackingBuffer &buffer = problem.buffers[index];
    const Time first = buffer.first, last = buffer.last;
    const Bytes bytes = roundUp(buffer.bytes, problem.alignment);
    size_t found = 0; // neighbours in time, gathered without a branch
    for (size_t i = 0; i < placed.size(); ++i) {
      neighbours[found] = placed[i];
      found += size_t(lives[i].first <= last) & size_t(first <= lives[i].last);
    }
    const Bytes offset =
        bestFit(neighbours.data(), found, bytes, highestOffset(below - 1, bytes, above[index]));
    solution.offsets[index] = offset;
    solution.bytes = std::max(solution.bytes, offset + bytes + above[index]);
    if (solution.bytes >= below)
      return std::nullopt;
    const size_t at = placeOf(placed, offset);
    placed.insert(placed.begin() + long(at), {offset, offset + bytes});
    lives.insert(lives.begin() + long(at), {first, last});
  }
  return solution;
}

PackingSolution placeByBirth(const PackingProblem &problem) {
  const std::vector<PackingBuffer> &buffers = problem.buffers;
  PackingSolution solution;
  solution.offsets.assign(buffers.size(), 0);
  const std::vector<Bytes> above = scratchAbove(problem);
  for (const PackingScratch &scratch : problem.scratch)
    solution.bytes = std::max(solution.bytes, roundUp(scratch.bytes, problem.alignment));
  std::vector<size_t> births(buffers.size());
  std::iota(births.begin(), births.end(), size_t(0));
  std::vector<size_t> deaths = births;
  std::stable_sort(births.begin(), births.end(),
                   [&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  std::stable_sort(deaths.begin(), deaths.end(), [&](size_t a, size_t b) { return buffers[a].last < buffers[b].last; });
  std::vector<Extent> gaps{{0, ~Bytes(0)}}; // by start, none beside another; the last one has no end
  auto giveBack = [&](Extent extent) {
    const size_t at = placeOf(gaps, extent.start);
    const bool joinsBefore = at > 0 && gaps[at - 1].end == extent.start, joinsNext = gaps[at].start == extent.end;
    if (joinsNext)
      gaps[at].start = extent.start;
    if (joinsBefore)
      gaps[at - 1].end = joinsNext ? gaps[at].end : extent.end;
    if (joinsBefore && joinsNext)
      gaps.erase(gaps.begin() + long(at));
    if (!joinsBefore && !joinsNext)
      gaps.insert(gaps.begin() + long(at), extent);
  };
  size_t dead = 0;
  for (size_t index : births) {
    for (; buffers[deaths[dead]].last < buffers[index].first; ++dead)
      if (const Bytes bytes = roundUp(buffers[deaths[dead]].bytes, problem.alignment))
        giveBack({solution.offsets[deaths[dead]], solution.offsets[deaths[dead]] + bytes});
    const Bytes bytes = roundUp(buffers[index].bytes, problem.alignment);
    size_t lowest = gaps.size(), best = gaps.size();
    for (size_t i = gaps.size(); i-- > 0;) {
      const Bytes room = gaps[i].end - gaps[i].start;
      if (room < bytes)
        continue;
      lowest = i;
      if (gaps[i].start + bytes + above[index] <= solution.bytes &&
          (best == gaps.size() || room <= gaps[best].end - gaps[best].start))
        best = i;
    }
    Extent &gap = gaps[best < gaps.size() ? best : lowest];
    solution.offsets[index] = gap.start;
    solution.bytes = std::max(solution.bytes, gap.start + bytes + above[index]);
    gap.start += bytes;
    if (gap.start == gap.end)
      gaps.erase(gaps.begin() + (&gap - gaps.data()));
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
  std::vector<std::vector<size_t>> orders{by([&](size_t i) { return double(buffers[i].bytes); }),
                                          by([&](size_t i) { return double(buffers[i].bytes) * length(i); }),
                                          by([&](size_t i) { return length(i); }),
                                          by([&](size_t i) { return -double(buffers[i].first); })};
  if (!problem.scratch.empty()) {
    const std::vector<Bytes> above = scratchAbove(problem);
    order = orders.front();
    orders.push_back(by([&](size_t i) { return double(above[i]); }));
  }
  return orders;
}

namespace {

/// Improves `best` by other orders of the buffers of at least the bound's `smallPart`.
void improveOrderOfLarge(const PackingProblem &problem, Bytes bound, Bytes good, Bytes smallPart,
                         PackingSolution &best, uint64_t &work, const std::function<bool()> &stop) {
  PackingProblem large;
  large.alignment = problem.alignment;
  std::vector<size_t> chosen, small; // buffers of `problem`
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    bool isLarge = problem.buffers[i].bytes * smallPart >= bound;
    (isLarge ? chosen : small).push_back(i);
    if (isLarge)
      large.buffers.push_back(problem.buffers[i]);
  }
  large.scratch = problem.scratch;
  std::stable_sort(small.begin(), small.end(),
                   [&](size_t a, size_t b) { return problem.buffers[a].bytes > problem.buffers[b].bytes; });
  // Small buffers below scratch may have to go first: on top of large ones they would lift the scratch.
  const std::vector<Bytes> above = scratchAbove(problem);
  std::vector<size_t> bottom = small;
  const auto rest = std::stable_partition(bottom.begin(), bottom.end(), [&](size_t i) { return above[i] > 0; });
  const std::vector<size_t> top(rest, bottom.end());
  bottom.erase(rest, bottom.end());
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
  const Bytes largeBound = leastArena(large);

  std::vector<std::pair<Bytes, std::vector<size_t>>> starts;
  for (std::vector<size_t> &order : packingOrders(large)) {
    Bytes bytes = placer.place(order);
    starts.emplace_back(bytes, std::move(order));
  }
  std::stable_sort(starts.begin(), starts.end(), [](const auto &a, const auto &b) { return a.first < b.first; });

  Bytes leastLarge = starts.front().first;
  // Without scratch no gap is too high: pass no capacity, so that orders can share a placed prefix.
  auto capacity = [&] { return large.scratch.empty() ? ~Bytes(0) : leastLarge - problem.alignment; };
  std::vector<int64_t> rank(count); // the preferred position of a buffer in the order, in thousandths
  Chance chance;
  for (size_t start = 0; leastLarge > largeBound && best.bytes > good; start = (start + 1) % starts.size()) {
    std::vector<size_t> order = starts[start].second;
    for (size_t place = 0; place < count; ++place)
      rank[order[place]] = int64_t(place) * 1000;
    placer.place(order);
    for (unsigned stale = 0; stale < kPatience && leastLarge > largeBound && best.bytes > good; ++stale) {
      if (!spend(placing) || (stop && stop()))
        return;
      const int64_t all = int64_t(count) * 1000;
      for (size_t i = 0; i < count; ++i)
        if (placer.ends[i] + problem.alignment > leastLarge)
          rank[i] -= all / 50 + all / 10 * int64_t(chance.below(1000)) / 1000;
      rank[chance.below(count)] -= all / 20 * int64_t(chance.below(1000)) / 1000;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
      Bytes bytes = placer.place(order, capacity());
      if (bytes >= leastLarge)
        continue;
      leastLarge = bytes;
      stale = 0;
      for (const bool bottomFirst : {false, true}) {
        if (bottomFirst && bottom.empty())
          break;
        if (!spend(placingAll))
          return;
        std::vector<size_t> whole = bottomFirst ? bottom : std::vector<size_t>();
        for (size_t i : order)
          whole.push_back(chosen[i]);
        const std::vector<size_t> &last = bottomFirst ? top : small;
        whole.insert(whole.end(), last.begin(), last.end());
        if (std::optional<PackingSolution> all = placeInOrder(problem, whole, best.bytes)) {
          best.bytes = all->bytes;
          best.offsets = std::move(all->offsets);
        }
      }
    }
  }
}

} // namespace

void improveOrder(const PackingProblem &problem, PackingSolution &best, uint64_t &work,
                  const std::function<bool()> &stop) {
  const Bytes bound = leastArena(problem), good = goodArena(problem, bound);
  // A small buffer on top of large ones lifts all scratch during its life: with scratch, small buffers matter as well.
  const Bytes least = problem.scratch.empty() ? kSmallPart : kSmallPart * 256;
  uint64_t rounds = problem.scratch.empty() ? 1 : 3;
  for (Bytes smallPart = kSmallPart; smallPart <= least && best.bytes > good; smallPart *= 16) {
    uint64_t share = work / rounds--;
    work -= share;
    improveOrderOfLarge(problem, bound, good, smallPart, best, share, stop);
    work += share;
  }
}

} // namespace tcc::planning
