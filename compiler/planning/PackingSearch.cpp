//===- PackingSearch.cpp - exact search of a packing within a capacity ----===//
//
// Time is cut into the maximal cliques of the buffers' interval graph ("sections"): two buffers overlap in time exactly
// if they share one. Buffers are stacked from below; the floor of a section is the lowest offset that one of its
// unplaced buffers can still have.
//
//   capacity ┌──────────────┐   If no buffer can start at a section's floor, the gap above it is wasted: the floor
//            │     ┌────────┤   rises to the lowest offset at which one of the section's unplaced buffers can start.
//            │     │  next  │   If the floor plus the bytes of the section's unplaced buffers exceeds the capacity,
//            ├───┐ ├────┬───┤   the branch is dead.
//            │ a │ │ b  │ c │
//            └───┴─┴────┴───┘   The search branches on a section whose floor is a local minimum: either a buffer that
//                               meets no higher floor during its life starts here, or none does and the floor rises.
//
// Scratch lowers the capacity: the end of a buffer plus the scratch above it must not exceed the capacity, and neither
// must the bytes of a section plus the least scratch above one of its buffers.
//
// Every packing can be pushed down until each buffer rests on another or on 0, so the search loses no answer. The rest
// is split at times that no unplaced buffer spans, and the parts are solved independently; failed states are remembered
// by hash. Depth-first search revises its first decisions last, so it is restarted with other orders and tie-breaks
// under a growing limit.
//
// Related: Moffitt, "MiniMalloc: A lightweight memory allocator for hardware-accelerated machine learning", ASPLOS 2023
// (canonical stacking by offset, sections, decomposition). A failed state is remembered by a 64-bit hash: a collision
// can lose an answer, never make a wrong one.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace tcc::planning {

namespace {

using Units = int64_t; ///< multiples of the alignment

constexpr size_t kMostFailures = size_t(1) << 22;
constexpr uint64_t kWorkPerQuestion = 1 << 22; ///< work between two calls of `stop`

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

/// A buffer that lives in the sections [begin, end).
struct Item {
  Units size;
  int begin, end;
  Time length;
  Units above; ///< scratch
};

/// The problem over sections.
struct Sections {
  std::vector<Item> items;
  std::vector<std::vector<int>> members; ///< items of each section, those below most scratch first
  std::vector<std::vector<int>> births;  ///< items that begin in each section
  std::vector<Units> total;              ///< of each section: sum of its items' sizes
  std::vector<Units> above;              ///< of each section: least scratch above one of its items

  /// The last time of each section: a buffer dies there, and another one was born since the previous section.
  static std::vector<Time> endsOf(const PackingProblem &problem) {
    std::vector<Time> firsts, deaths;
    for (const PackingBuffer &buffer : problem.buffers) {
      firsts.push_back(buffer.first);
      deaths.push_back(buffer.last);
    }
    std::sort(firsts.begin(), firsts.end());
    std::sort(deaths.begin(), deaths.end());
    std::vector<Time> ends;
    size_t born = 0;
    for (Time death : deaths) {
      size_t before = born;
      while (born < firsts.size() && firsts[born] <= death)
        ++born;
      if (born > before)
        ends.push_back(death);
    }
    return ends;
  }

  /// The sections of a buffer: from the first of the pair to before the second.
  static std::pair<int, int> rangeOf(const PackingBuffer &buffer, const std::vector<Time> &ends) {
    return {int(std::lower_bound(ends.begin(), ends.end(), buffer.first) - ends.begin()),
            int(std::upper_bound(ends.begin(), ends.end(), buffer.last) - ends.begin())};
  }

  Sections(const PackingProblem &problem, const std::vector<Time> &ends) {
    members.resize(ends.size());
    births.resize(ends.size());
    total.assign(ends.size(), 0);
    above.assign(ends.size(), std::numeric_limits<Units>::max());
    const std::vector<Bytes> aboveBuffers = scratchAbove(problem);
    for (const PackingBuffer &buffer : problem.buffers) {
      Item item;
      item.above = Units((aboveBuffers[items.size()] + problem.alignment - 1) / problem.alignment);
      item.size = Units((buffer.bytes + problem.alignment - 1) / problem.alignment);
      std::tie(item.begin, item.end) = rangeOf(buffer, ends);
      item.length = buffer.last - buffer.first + 1;
      for (int s = item.begin; s < item.end; ++s) {
        members[size_t(s)].push_back(int(items.size()));
        total[size_t(s)] += item.size;
        above[size_t(s)] = std::min(above[size_t(s)], item.above);
      }
      births[size_t(item.begin)].push_back(int(items.size()));
      items.push_back(item);
    }
    for (std::vector<int> &section : members)
      std::stable_sort(section.begin(), section.end(),
                       [&](int a, int b) { return items[size_t(a)].above > items[size_t(b)].above; });
  }
};

/// Which section is branched on first.
enum class Rule { FewestAndTightest, LowestFewestAndTightest, Fewest, LowestTightest, Tightest };
/// Which buffer is tried first.
enum class Order {
  AboveThenSize,
  AboveThenSections,
  AboveThenArea,
  Size,
  Length,
  Sections,
  PeakThenSize,
  PeakThenSections,
  PeakThenArea,
  SectionsThenArea,
  Area
};

constexpr Rule kRules[] = {Rule::FewestAndTightest, Rule::LowestFewestAndTightest, Rule::Fewest, Rule::LowestTightest,
                           Rule::Tightest};
constexpr Order kOrders[] = {Order::AboveThenSize, Order::AboveThenSections, Order::AboveThenArea,
                             Order::Size,         Order::PeakThenSize,     Order::Sections, Order::Length,
                             Order::PeakThenArea, Order::SectionsThenArea, Order::Area,     Order::PeakThenSections};

/// Number of orders at the front of kOrders that need scratch.
constexpr size_t kOrdersByScratch = 3;

class Search {
public:
  Search(const Sections &sections, Units capacity)
      : sections(sections), items(sections.items), capacity(capacity), floors(sections.members.size(), 0),
        left(sections.total), count(floors.size()), startable(floors.size()), crossing(floors.size(), 0),
        queued(floors.size(), false), lowest(items.size(), 0), offsets(items.size(), 0), placed(items.size(), false),
        priority(items.size(), 0), itemHash(items.size()) {
    for (size_t s = 0; s < count.size(); ++s) {
      startable[s] = count[s] = int(sections.members[s].size());
      capacities.push_back(capacity - sections.above[s]);
    }
    for (const Item &item : items)
      highest.push_back(capacity - item.above - item.size);
    for (size_t i = 0; i < items.size(); ++i) {
      itemHash[i] = mix(uint64_t(i) + 12345);
      for (int s = items[i].begin; s + 1 < items[i].end; ++s)
        ++crossing[size_t(s)];
    }
  }

  const Sections &sections;
  const std::vector<Item> &items;
  const Units capacity;
  std::vector<Units> capacities;   ///< per section, less the least scratch above one of its items
  std::vector<Units> highest;      ///< per item: the highest offset
  std::vector<Units> floors, left; ///< per section: the floor, and the sum of the unplaced items
  std::vector<int> count;          ///< unplaced items per section
  std::vector<int> startable;      ///< unplaced items per section that can start on its floor
  std::vector<int> crossing;       ///< unplaced items per section that are live in the next one, too
  std::vector<char> queued;
  std::vector<Units> lowest, offsets; ///< per item: the highest floor over its life, and where it was placed
  std::vector<char> placed;
  std::vector<double> priority;
  std::vector<uint64_t> itemHash;
  Rule rule = Rule::FewestAndTightest;
  bool backwards = false; ///< takes the last of equal sections
  uint64_t work = 0, limit = 0;
  std::function<bool()> stop;
  uint64_t nextQuestion = 0;
  bool stopped = false;
  std::unordered_set<uint64_t> failures; ///< kept over restarts: a failed state fails in any order

  /// Returns to the initial state, with other preferences.
  void restart(Rule newRule, Order order, bool fromBehind, double noise, uint64_t seed) {
    undo(0, 0);
    rule = newRule;
    backwards = fromBehind;
    for (size_t i = 0; i < items.size(); ++i) {
      const Item &item = items[i];
      Units peak = 0;
      for (int s = item.begin; s < item.end; ++s)
        peak = std::max(peak, sections.total[size_t(s)]);
      double size = double(item.size), span = item.end - item.begin, length = double(item.length);
      double unit = double(mix(seed * 1000003 + i) >> 11) * 0x1p-53 - 0.5;
      priority[i] = (1 + noise * unit) * [&] {
        switch (order) {
        case Order::AboveThenSize:
          return double(item.above) * 1e10 + size * 1e4 + span;
        case Order::AboveThenSections:
          return double(item.above) * 1e10 + span * 1e4 + size;
        case Order::AboveThenArea:
          return double(item.above) * 1e12 + length * size;
        case Order::Size:
          return size * 1e6 + span;
        case Order::Length:
          return length * 1e6 + size;
        case Order::Sections:
          return span * 1e6 + size;
        case Order::PeakThenSize:
          return double(peak) * 1e8 + size * 1e4 + span;
        case Order::PeakThenSections:
          return double(peak) * 1e8 + span * 1e4 + size;
        case Order::PeakThenArea:
          return double(peak) * 1e10 + length * size;
        case Order::SectionsThenArea:
          return span * 1e8 + length * size * 1e-3;
        case Order::Area:
          return length * size;
        }
        return 0.0;
      }();
    }
  }

  SearchResult run(uint64_t newLimit) {
    limit = work + newLimit;
    // Floors are 0: a buffer that does not fit now never will.
    for (size_t s = 0; s < left.size(); ++s)
      if (left[s] > capacities[s])
        return SearchResult::Infeasible;
    for (Units offset : highest)
      if (offset < 0)
        return SearchResult::Infeasible;
    return solve(0, int(floors.size()));
  }

private:
  enum class What : int { Floor, Lowest, Startable };
  struct Change {
    What what;
    int index;
    Units before;
  };
  std::vector<Change> trail;
  std::vector<int> stack; ///< placed items
  std::vector<int> queue; ///< sections on whose floor nothing can start
  bool fits = true;       ///< no section overflows

  void setStartable(int section, int items) {
    trail.push_back({What::Startable, section, startable[size_t(section)]});
    startable[size_t(section)] = items;
    if (!items && count[size_t(section)] && !queued[size_t(section)]) {
      queued[size_t(section)] = true;
      queue.push_back(section);
    }
  }

  void raise(int section, Units floor) {
    trail.push_back({What::Floor, section, floors[size_t(section)]});
    floors[size_t(section)] = floor;
    const std::vector<int> &members = sections.members[size_t(section)];
    work += members.size();
    int here = 0;
    // Stack the items by the highest end that each may have: no other order does better (Jackson 1955).
    Units end = floor;
    for (int i : members) {
      if (placed[size_t(i)])
        continue;
      end += items[size_t(i)].size;
      fits = fits && end + items[size_t(i)].above <= capacity;
      if (Units before = lowest[size_t(i)]; before < floor) {
        trail.push_back({What::Lowest, i, before});
        lowest[size_t(i)] = floor;
        fits = fits && floor <= highest[size_t(i)];
        work += uint64_t(items[size_t(i)].end - items[size_t(i)].begin);
        for (int s = items[size_t(i)].begin; s < items[size_t(i)].end; ++s)
          if (floors[size_t(s)] == before)
            setStartable(s, startable[size_t(s)] - 1);
      }
      here += lowest[size_t(i)] == floor;
    }
    setStartable(section, here);
  }

  /// Raises floors until an item can start on each; false if a section overflows.
  bool propagate() {
    while (!queue.empty()) {
      int section = queue.back();
      queue.pop_back();
      queued[size_t(section)] = false;
      if (!fits || !count[size_t(section)] || startable[size_t(section)])
        continue;
      const std::vector<int> &members = sections.members[size_t(section)];
      work += members.size();
      Units start = std::numeric_limits<Units>::max();
      for (int i : members)
        if (!placed[size_t(i)])
          start = std::min(start, lowest[size_t(i)]);
      raise(section, start);
    }
    return std::exchange(fits, true);
  }

  bool place(int i, Units offset) {
    const Item &item = items[size_t(i)];
    stack.push_back(i);
    placed[size_t(i)] = true;
    offsets[size_t(i)] = offset;
    for (int s = item.begin; s < item.end; ++s) {
      left[size_t(s)] -= item.size;
      --count[size_t(s)];
      crossing[size_t(s)] -= s + 1 < item.end;
    }
    for (int s = item.begin; s < item.end; ++s)
      raise(s, offset + item.size);
    return propagate();
  }

  void undo(size_t changes, size_t placements) {
    for (; trail.size() > changes; trail.pop_back()) {
      const Change &change = trail.back();
      if (change.what == What::Startable)
        startable[size_t(change.index)] = int(change.before);
      else
        (change.what == What::Floor ? floors : lowest)[size_t(change.index)] = change.before;
    }
    for (; stack.size() > placements; stack.pop_back()) {
      const Item &item = items[size_t(stack.back())];
      placed[size_t(stack.back())] = false;
      for (int s = item.begin; s < item.end; ++s) {
        left[size_t(s)] += item.size;
        ++count[size_t(s)];
        crossing[size_t(s)] += s + 1 < item.end;
      }
    }
  }

  /// Solves the sections [begin, end), which share no unplaced item with others, part by part.
  SearchResult solve(int begin, int end) {
    std::vector<std::pair<int, int>> parts;
    for (int s = begin; s < end; ++s) {
      if (!count[size_t(s)])
        continue;
      int first = s;
      while (crossing[size_t(s)])
        ++s;
      parts.push_back({first, s + 1});
    }
    work += uint64_t(end - begin);
    // The shortest first: it fails fastest.
    std::stable_sort(parts.begin(), parts.end(),
                     [](auto a, auto b) { return a.second - a.first < b.second - b.first; });
    size_t changes = trail.size(), placements = stack.size();
    for (auto [first, last] : parts)
      if (SearchResult result = branch(first, last); result != SearchResult::Found) {
        undo(changes, placements);
        return result;
      }
    return SearchResult::Found;
  }

  bool exhausted() {
    if (stop && work >= nextQuestion) {
      stopped = stop();
      nextQuestion = work + kWorkPerQuestion;
    }
    return stopped || work > limit;
  }

  uint64_t stateHash(int begin, int end) {
    uint64_t hash = mix(uint64_t(begin) * 1000003 + uint64_t(end));
    for (int s = begin; s < end; ++s) {
      if (count[size_t(s)])
        hash ^= mix(uint64_t(floors[size_t(s)]) * 0x100000001B3ull + uint64_t(s) * 0x9E3779B1u + 77);
      for (int i : sections.births[size_t(s)])
        if (!placed[size_t(i)])
          hash += itemHash[size_t(i)];
    }
    work += uint64_t(end - begin);
    return hash;
  }

  struct Choice {
    int section = -1;
    int64_t alternatives = 0; ///< the buffers that can start on the floor, and leaving it empty
    Units slack = 0, floor = 0;
  };

  bool isBetter(const Choice &a, const Choice &b) const {
    if (b.section < 0)
      return true;
    auto product = [](const Choice &c) { return c.alternatives * (1 + std::min<Units>(c.slack, 8)); };
    switch (rule) {
    case Rule::FewestAndTightest:
      return product(a) < product(b);
    case Rule::LowestFewestAndTightest:
      return a.floor != b.floor ? a.floor < b.floor : product(a) < product(b);
    case Rule::Fewest:
      return std::make_pair(a.alternatives, a.slack) < std::make_pair(b.alternatives, b.slack);
    case Rule::LowestTightest:
      return a.floor != b.floor ? a.floor < b.floor
                                : std::make_pair(a.slack, a.alternatives) < std::make_pair(b.slack, b.alternatives);
    case Rule::Tightest:
      return std::make_pair(a.slack, a.alternatives) < std::make_pair(b.slack, b.alternatives);
    }
    return false;
  }

  /// True if no unplaced item of the section sees a lower floor in another section.
  bool isLocalMinimum(int section) {
    const Units floor = floors[size_t(section)];
    if ((section > 0 && crossing[size_t(section) - 1] && floors[size_t(section) - 1] < floor) ||
        (crossing[size_t(section)] && floors[size_t(section) + 1] < floor))
      return false;
    int begin = section, end = section + 1;
    for (int i : sections.members[size_t(section)])
      if (!placed[size_t(i)]) {
        begin = std::min(begin, items[size_t(i)].begin);
        end = std::max(end, items[size_t(i)].end);
      }
    work += sections.members[size_t(section)].size() + uint64_t(end - begin);
    return std::none_of(floors.begin() + begin, floors.begin() + end, [&](Units other) { return other < floor; });
  }

  Choice choose(int begin, int end) {
    Choice best;
    work += uint64_t(end - begin);
    for (int k = begin; k < end; ++k) {
      int s = backwards ? begin + end - 1 - k : k;
      if (!count[size_t(s)])
        continue;
      Choice choice{s, startable[size_t(s)], capacities[size_t(s)] - floors[size_t(s)] - left[size_t(s)],
                    floors[size_t(s)]};
      choice.alternatives += choice.slack > 0;
      if (isBetter(choice, best) && isLocalMinimum(s))
        best = choice;
    }
    return best;
  }

  /// The lowest offset of an item of the section if none starts on its floor: the item then rests on a buffer outside
  /// the section, or on a higher floor of another section.
  Units nextFloor(int section, Units floor) {
    Units next = std::numeric_limits<Units>::max();
    int begin = section, end = section + 1;
    for (int i : sections.members[size_t(section)]) {
      if (placed[size_t(i)])
        continue;
      begin = std::min(begin, items[size_t(i)].begin);
      end = std::max(end, items[size_t(i)].end);
      if (lowest[size_t(i)] > floor)
        next = std::min(next, lowest[size_t(i)]);
    }
    for (int s = begin; s < end; ++s) {
      work += sections.members[size_t(s)].size();
      for (int i : sections.members[size_t(s)])
        if (!placed[size_t(i)] && (items[size_t(i)].begin > section || items[size_t(i)].end <= section))
          next = std::min(next, lowest[size_t(i)] + items[size_t(i)].size);
    }
    return next;
  }

  SearchResult branch(int begin, int end) {
    if (exhausted())
      return SearchResult::Exhausted;
    uint64_t hash = stateHash(begin, end);
    if (failures.count(hash))
      return SearchResult::Infeasible;
    Choice choice = choose(begin, end);
    std::vector<int> candidates;
    for (int i : sections.members[size_t(choice.section)])
      if (!placed[size_t(i)] && lowest[size_t(i)] == choice.floor)
        candidates.push_back(i);
    std::sort(candidates.begin(), candidates.end(), [&](int a, int b) {
      return priority[size_t(a)] != priority[size_t(b)] ? priority[size_t(a)] > priority[size_t(b)] : a < b;
    });
    size_t changes = trail.size(), placements = stack.size();
    for (size_t k = 0; k < candidates.size(); ++k) {
      const Item &item = items[size_t(candidates[k])];
      bool tried = std::any_of(candidates.begin(), candidates.begin() + long(k), [&](int other) {
        const Item &o = items[size_t(other)];
        return o.size == item.size && o.begin == item.begin && o.end == item.end && o.above == item.above;
      });
      if (tried)
        continue;
      SearchResult result = place(candidates[k], choice.floor) ? solve(begin, end) : SearchResult::Infeasible;
      if (result == SearchResult::Found)
        return result;
      undo(changes, placements);
      if (result == SearchResult::Exhausted)
        return result;
    }
    if (choice.slack > 0) {
      Units next = nextFloor(choice.section, choice.floor);
      if (next - choice.floor <= choice.slack) {
        raise(choice.section, next);
        SearchResult result = propagate() ? solve(begin, end) : SearchResult::Infeasible;
        if (result != SearchResult::Infeasible) {
          if (result == SearchResult::Exhausted)
            undo(changes, placements);
          return result;
        }
        undo(changes, placements);
      }
    }
    if (failures.size() < kMostFailures)
      failures.insert(hash);
    return SearchResult::Infeasible;
  }
};

} // namespace

SearchAnswer packWithin(const PackingProblem &problem, Bytes capacity, uint64_t work,
                        const std::function<bool()> &stop) {
  SearchAnswer answer;
  for (const PackingScratch &scratch : problem.scratch)
    if (roundUp(scratch.bytes, problem.alignment) > capacity) {
      answer.result = SearchResult::Infeasible;
      return answer;
    }
  // A search without backtracking costs about one pass over all sections per buffer. With less work it cannot finish.
  const std::vector<Time> ends = Sections::endsOf(problem);
  uint64_t pass = 1;
  for (const PackingBuffer &buffer : problem.buffers) {
    const auto [begin, end] = Sections::rangeOf(buffer, ends);
    pass += uint64_t(end - begin);
  }
  const uint64_t descent = pass * problem.buffers.size();
  if (work < descent)
    return answer;
  const Sections sections(problem, ends);
  Search search(sections, Units(capacity / problem.alignment));
  search.stop = stop;
  uint64_t limit = 4 * descent;
  for (uint64_t round = 0; answer.result == SearchResult::Exhausted; ++round, limit += limit / 2)
    for (size_t variant = 0; variant < 2 * std::size(kRules) * std::size(kOrders); ++variant) {
      if (problem.scratch.empty() && variant / 2 % std::size(kOrders) < kOrdersByScratch)
        continue;
      if (search.work >= work || search.stopped)
        return answer.work = search.work, answer;
      size_t rest = variant / 2;
      search.restart(kRules[rest / std::size(kOrders)], kOrders[rest % std::size(kOrders)], variant % 2,
                     round ? 0.5 : 0, round * 1000 + variant);
      answer.result = search.run(std::min(limit, work - search.work));
      if (answer.result != SearchResult::Exhausted)
        break;
    }
  answer.work = search.work;
  if (answer.result == SearchResult::Found)
    for (Units offset : search.offsets)
      answer.offsets.push_back(Bytes(offset) * problem.alignment);
  return answer;
}

} // namespace tcc::planning
