//===- PackingRepair.cpp - move the buffers that clash --------------------===//

#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace tcc::planning {

namespace {
/// Sums of the bytes up to a place.
class BytesUpTo {
public:
  void add(Bytes at, Bytes bytes) { sums.emplace_back(at, bytes); }
  /// Must be called after the last `add` and before the first `of`.
  void sort() {
    std::sort(sums.begin(), sums.end());
    Bytes sum = 0;
    for (auto &[at, bytes] : sums)
      bytes = sum += bytes;
  }
  /// The bytes that were added at places up to and including `at`.
  Bytes of(Bytes at) const {
    auto behind = std::partition_point(sums.begin(), sums.end(), [&](const auto &one) { return one.first <= at; });
    return behind == sums.begin() ? 0 : std::prev(behind)->second;
  }

private:
  std::vector<std::pair<Bytes, Bytes>> sums; ///< place, bytes; after sort, all bytes up to there
};

class Repairer {
public:
  Repairer(const PackingProblem &problem, std::vector<Bytes> where, Bytes arena)
      : problem(problem), offsets(std::move(where)), moves(offsets.size(), false), ejections(offsets.size(), 0) {
    for (Bytes above : scratchAbove(problem))
      limits.push_back(arena - std::min(above, arena));
    for (const PackingBuffer &buffer : problem.buffers)
      sizes.push_back((buffer.bytes + problem.alignment - 1) / problem.alignment * problem.alignment);
  }

  PackingRepair run(const PackingProblem &before, const std::vector<bool> *changed) {
    std::vector<size_t> all(offsets.size()), some;
    std::iota(all.begin(), all.end(), size_t(0));
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), [&](size_t i) { return !changed || (*changed)[i]; });
    for (size_t i = 0; i < offsets.size(); ++i)
      moves[i] = offsets[i] + bytes(i) > limits[i]; // more scratch above it than before
    for (size_t i = 0; i < offsets.size(); ++i) {
      const PackingBuffer &now = problem.buffers[i], &then = before.buffers[i];
      if (now.first >= then.first && now.last <= then.last)
        continue;
      // Two buffers that have not changed overlap in time as they did before, so they do not clash.
      for (size_t j : !changed || (*changed)[i] ? all : some)
        if (i != j && !moves[i] && !moves[j] && meetInTime(i, j) && meetInSpace(i, j))
          moves[bytes(i) < bytes(j) ? i : j] = true;
    }
    std::vector<size_t> waiting;
    for (size_t i = 0; i < offsets.size(); ++i)
      if (moves[i])
        waiting.push_back(i);
    PackingRepair result;
    while (!waiting.empty()) {
      auto largest = std::max_element(waiting.begin(), waiting.end(), [&](size_t a, size_t b) {
        return bytes(a) != bytes(b) ? bytes(a) < bytes(b) : a > b;
      });
      size_t i = *largest;
      waiting.erase(largest);
      if (!place(i) && !eject(i, waiting))
        result.homeless.push_back(int(i));
    }
    result.offsets = std::move(offsets);
    return result;
  }

private:
  Bytes bytes(size_t i) const { return sizes[i]; }
  bool meetInTime(size_t i, size_t j) const {
    const PackingBuffer &a = problem.buffers[i], &b = problem.buffers[j];
    return a.first <= b.last && b.first <= a.last;
  }
  bool meetInSpace(size_t i, size_t j) const {
    return offsets[i] < offsets[j] + bytes(j) && offsets[j] < offsets[i] + bytes(i);
  }

  /// Places a buffer into the smallest gap between the placed buffers that overlap it in time.
  bool place(size_t i) {
    std::vector<std::pair<Bytes, Bytes>> taken;
    for (size_t j = 0; j < offsets.size(); ++j)
      if (j != i && !moves[j] && meetInTime(i, j) && bytes(j))
        taken.emplace_back(offsets[j], offsets[j] + bytes(j));
    std::sort(taken.begin(), taken.end());
    taken.emplace_back(limits[i], limits[i]);
    Bytes floor = 0, best = 0, gap = 0;
    bool found = false;
    for (auto [next, end] : taken) {
      const Bytes begin = std::min(next, limits[i]);
      if (begin >= floor && begin - floor >= bytes(i) && (!found || begin - floor < gap)) {
        best = floor;
        gap = begin - floor;
        found = true;
      }
      floor = std::max(floor, end);
    }
    if (found) {
      offsets[i] = best;
      moves[i] = false;
    }
    return found;
  }

  /// Places a buffer where it ejects the fewest bytes of others, which then wait for a new place.
  bool eject(size_t i, std::vector<size_t> &waiting) {
    if (ejected++ == kMostOfAll || ejections[i]++ == kMostEjections)
      return false;
    Bytes least = bytes(i) * 2, best = 0;
    std::vector<size_t> alive;
    std::vector<Bytes> starts{0};
    BytesUpTo begins, ends; // of the buffers in the way
    for (size_t j = 0; j < offsets.size(); ++j)
      if (j != i && !moves[j] && meetInTime(i, j) && bytes(j)) {
        alive.push_back(j);
        starts.push_back(offsets[j] + bytes(j));
        if (offsets[j] >= bytes(i))
          starts.push_back(offsets[j] - bytes(i));
        const Bytes cost = ejections[j] == kMostEjections ? least : bytes(j); // `least`: it stays
        begins.add(offsets[j], cost);
        ends.add(offsets[j] + bytes(j), cost);
      }
    begins.sort();
    ends.sort();
    bool found = false;
    for (Bytes start : starts) {
      // The buffers that begin before the end of the interval, less those that end before its beginning.
      const Bytes sum = begins.of(start + bytes(i) - 1) - ends.of(start);
      if (start + bytes(i) <= limits[i] && sum < least) {
        least = sum;
        best = start;
        found = true;
      }
    }
    if (!found)
      return false;
    for (size_t j : alive)
      if (best < offsets[j] + bytes(j) && offsets[j] < best + bytes(i)) {
        moves[j] = true;
        ++ejections[j];
        waiting.push_back(j);
      }
    offsets[i] = best;
    moves[i] = false;
    return true;
  }

  static constexpr int kMostEjections = 3, kMostOfAll = 16; // for one buffer; in one repair

  const PackingProblem &problem;
  std::vector<Bytes> offsets;
  std::vector<Bytes> sizes;  // aligned
  std::vector<Bytes> limits; // highest end of each buffer
  std::vector<bool> moves; // has no place yet
  std::vector<int> ejections;
  int ejected = 0;
};
} // namespace

PackingRepair repairPacking(const PackingProblem &problem, const PackingProblem &before, std::vector<Bytes> offsets,
                            Bytes capacity, const std::vector<bool> *changed) {
  return Repairer(problem, std::move(offsets), capacity).run(before, changed);
}

} // namespace tcc::planning
