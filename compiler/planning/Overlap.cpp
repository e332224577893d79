//===- Overlap.cpp - move updates beside library calls --------------------===//
#include "compiler/planning/Overlap.h"

#include "compiler/planning/PackingSearch.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tcc::planning {

namespace {
constexpr size_t kLongest = 64;   // instructions that one may overlap
constexpr size_t kFarthest = 256; // positions that one may move forward
constexpr size_t kMostTries = 8;  // targets tried for one that moves
/// Instructions visited by all placements together. Each placement visits the whole program, so in long programs only
/// the instructions with most memory time are placed.
constexpr uint64_t kMostWork = 50'000'000;

bool share(const std::vector<int> &a, const std::vector<int> &b) {
  auto x = a.begin(), y = b.begin();
  while (x != a.end() && y != b.end()) {
    if (*x == *y)
      return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

bool disturb(const OverlapInstruction &a, const OverlapInstruction &b) {
  return share(a.writes, b.writes) || share(a.writes, b.reads) || share(a.reads, b.writes);
}

/// An order, and for each instruction the last one that it may overlap: itself if none.
struct Plan {
  std::vector<int> order, until; ///< by position; by instruction
  std::vector<int> moved; ///< since the last plan that was taken; all other instructions keep their order
};

/// Live ranges in a plan's order, extended to the end of each overlap.
PackingProblem livesOf(const OverlapProblem &problem, const Plan &plan) {
  PackingProblem result = problem.packing;
  std::vector<PackingBuffer> &buffers = result.buffers;
  Time count = Time(plan.order.size());
  std::vector<Time> position(plan.order.size());
  for (Time t = 0; t < count; ++t)
    position[size_t(plan.order[size_t(t)])] = t;
  for (PackingScratch &scratch : result.scratch)
    scratch.at = position[size_t(scratch.at)];
  for (PackingBuffer &buffer : buffers) {
    buffer.first = buffer.first < 0 ? -1 : count;
    buffer.last = buffer.last >= count ? count : -1;
  }
  for (Time t = 0; t < count; ++t) {
    int id = plan.order[size_t(t)];
    const OverlapInstruction &instruction = problem.instructions[size_t(id)];
    for (const std::vector<int> *touched : {&instruction.reads, &instruction.writes})
      for (int memory : *touched)
        if (size_t(memory) < buffers.size()) {
          PackingBuffer &buffer = buffers[size_t(memory)];
          buffer.first = std::min(buffer.first, t);
          buffer.last = std::max(buffer.last, position[size_t(plan.until[size_t(id)])]);
        }
  }
  return result;
}

class Overlapper {
public:
  explicit Overlapper(const OverlapProblem &problem)
      : problem(problem), lives(problem.packing), offsets(problem.offsets) {
    plan.order.resize(problem.instructions.size());
    std::iota(plan.order.begin(), plan.order.end(), 0);
    plan.until = plan.order;
    for (const OverlapInstruction &instruction : problem.instructions)
      free.push_back(instruction.computeNs);
  }

  OverlapSolution run() {
    std::vector<int> candidates;
    std::vector<bool> hasScratch(plan.order.size(), false);
    for (const PackingScratch &scratch : problem.packing.scratch)
      hasScratch[size_t(scratch.at)] = true;
    for (int i : plan.order)
      if (problem.instructions[size_t(i)].memoryNs && !hasScratch[size_t(i)])
        candidates.push_back(i);
    std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) {
      return problem.instructions[size_t(a)].memoryNs > problem.instructions[size_t(b)].memoryNs;
    });
    uint64_t work = 0;
    for (int instruction : candidates)
      if ((work += plan.order.size()) <= kMostWork)
        place(instruction);
    OverlapSolution solution{plan.order, std::vector<int>(plan.order.size(), 0), offsets, hidden};
    const std::vector<size_t> positions = positionsOf(plan);
    for (size_t i = 0; i < plan.order.size(); ++i)
      solution.beside[i] = int(positions[size_t(plan.until[size_t(plan.order[i])])] - i);
    return solution;
  }

private:
  const OverlapInstruction &at(const Plan &in, size_t position) const {
    return problem.instructions[size_t(in.order[position])];
  }
  static size_t positionOf(const Plan &in, int instruction) {
    return size_t(std::find(in.order.begin(), in.order.end(), instruction) - in.order.begin());
  }
  static std::vector<size_t> positionsOf(const Plan &in) {
    std::vector<size_t> positions(in.order.size());
    for (size_t i = 0; i < in.order.size(); ++i)
      positions[size_t(in.order[i])] = i;
    return positions;
  }
  bool disturbsAny(int instruction, const std::vector<int> &others) const {
    return std::any_of(others.begin(), others.end(), [&](int other) {
      return disturb(problem.instructions[size_t(instruction)], problem.instructions[size_t(other)]);
    });
  }

  void place(int instruction) {
    size_t i = positionOf(plan, instruction);
    uint64_t wanted = problem.instructions[size_t(instruction)].memoryNs;
    Plan here = plan;
    sinkReaders(here, i);
    if (uint64_t most = reach(here, i); most >= wanted - wanted / 4 || !hoist(instruction, most))
      take(std::move(here), i);
  }

  /// Moves the instructions that depend on the one at i behind the library calls after it that do not.
  void sinkReaders(Plan &in, size_t i) const {
    uint64_t left = at(in, i).memoryNs;
    std::vector<int> stays{in.order[i]}, waits{in.order[i]}; // dependents of the first, itself included
    size_t staying = 0, waiting = 0;                         // up to the last call
    for (size_t j = i + 1; j < in.order.size() && j - i <= kLongest && left; ++j) {
      if (disturbsAny(in.order[j], waits)) {
        waits.push_back(in.order[j]);
        continue;
      }
      stays.push_back(in.order[j]);
      if (uint64_t hides = std::min(left, free[size_t(in.order[j])])) {
        left -= hides;
        staying = stays.size();
        waiting = waits.size();
      }
    }
    if (waiting < 2)
      return;
    stays.resize(staying);
    in.moved.insert(in.moved.end(), waits.begin() + 1, waits.begin() + long(waiting));
    stays.insert(stays.end(), waits.begin() + 1, waits.begin() + long(waiting));
    std::copy(stays.begin(), stays.end(), in.order.begin() + long(i));
  }

  /// Moves the instruction, with its predecessors in between, before as many library calls as hide it or as the arena
  /// allows. Returns false, and moves nothing, if that would hide no more than `least` nanoseconds or would not fit
  /// into the arena.
  bool hoist(int instruction, uint64_t least) {
    size_t i = positionOf(plan, instruction);
    uint64_t left = at(plan, i).memoryNs;
    std::vector<int> chain{instruction}, passed; // both from the back
    std::vector<Plan> tries;
    for (size_t j = i; j-- > 0 && i - j <= kFarthest && left && tries.size() < kMostTries;) {
      if (disturbsAny(plan.order[j], chain)) {
        chain.push_back(plan.order[j]);
        continue;
      }
      passed.push_back(plan.order[j]);
      if (uint64_t hides = std::min(left, free[size_t(plan.order[j])])) {
        left -= hides;
        Plan &next = tries.emplace_back(plan);
        auto to = std::copy(chain.rbegin(), chain.rend(), next.order.begin() + long(j));
        std::copy(passed.rbegin(), passed.rend(), to);
        next.moved.insert(next.moved.end(), chain.begin(), chain.end());
      }
    }
    for (; !tries.empty(); tries.pop_back()) {
      size_t position = positionOf(tries.back(), instruction);
      sinkReaders(tries.back(), position);
      if (reach(tries.back(), position) > least && take(std::move(tries.back()), position))
        return true;
    }
    return false;
  }

  /// Lets the instruction at i run beside the calls that hide it. Returns the hidden nanoseconds.
  uint64_t reach(Plan &in, size_t i) const {
    const OverlapInstruction &own = at(in, i);
    uint64_t left = own.memoryNs;
    in.until[size_t(in.order[i])] = in.order[i];
    for (size_t j = i + 1; j < in.order.size() && j - i <= kLongest && left && !disturb(own, at(in, j)); ++j)
      if (uint64_t hides = std::min(left, free[size_t(in.order[j])])) {
        left -= hides;
        in.until[size_t(in.order[i])] = in.order[j];
      }
    return own.memoryNs - left;
  }

  /// Adopts a plan if no overlapping instructions depend on each other and its buffers fit the arena.
  bool take(Plan next, size_t i) {
    const std::vector<size_t> positions = positionsOf(next);
    size_t last = positions[size_t(next.until[size_t(next.order[i])])];
    if (last == i)
      return false;
    for (size_t j = 0; j < next.order.size(); ++j)
      if (int until = next.until[size_t(next.order[j])]; until != next.order[j]) {
        size_t end = positions[size_t(until)];
        if (end < j || end - j > 2 * kLongest)
          return false;
        for (size_t k = j + 1; k <= end; ++k)
          if (disturb(at(next, j), at(next, k)))
            return false;
      }
    PackingProblem longer = livesOf(problem, next);
    const std::vector<bool> changed = changedBy(next, next.order[i]);
    PackingRepair repaired = repairPacking(longer, lives, offsets, problem.capacity, &changed);
    if (!repaired.homeless.empty())
      return false;
    uint64_t left = at(next, i).memoryNs;
    for (size_t j = i + 1; j <= last; ++j) {
      uint64_t hides = std::min(left, free[size_t(next.order[j])]);
      left -= hides;
      free[size_t(next.order[j])] -= hides;
      hidden += hides;
    }
    plan = std::move(next);
    plan.moved.clear();
    lives = std::move(longer);
    offsets = std::move(repaired.offsets);
    return true;
  }

  /// The buffers whose live ranges begin or end at an instruction that moved, or that `instruction` accesses: the end
  /// of its overlap may have changed. The order of all other ends has not.
  std::vector<bool> changedBy(const Plan &next, int instruction) const {
    std::vector<bool> moved(next.order.size(), false), changed(problem.packing.buffers.size(), false);
    for (int id : next.moved)
      moved[size_t(id)] = true;
    for (int id : next.order) {
      if (id != instruction && !moved[size_t(id)] && !moved[size_t(next.until[size_t(id)])])
        continue;
      const OverlapInstruction &one = problem.instructions[size_t(id)];
      for (const std::vector<int> *touched : {&one.reads, &one.writes})
        for (int memory : *touched)
          if (size_t(memory) < changed.size())
            changed[size_t(memory)] = true;
    }
    return changed;
  }

  const OverlapProblem &problem;
  Plan plan;
  PackingProblem lives; // of `plan`
  std::vector<Bytes> offsets;
  std::vector<uint64_t> free; // nanoseconds of each library call that are not overlapped yet
  uint64_t hidden = 0;
};
} // namespace

OverlapSolution overlap(const OverlapProblem &problem) { return Overlapper(problem).run(); }

PackingProblem packingOf(const OverlapProblem &problem, const OverlapSolution &solution) {
  Plan plan{solution.order, solution.order, {}};
  for (size_t i = 0; i < solution.order.size(); ++i)
    plan.until[size_t(solution.order[i])] = solution.order[i + size_t(solution.beside[i])];
  return livesOf(problem, plan);
}

std::string validate(const OverlapProblem &problem, const OverlapSolution &solution) {
  size_t count = problem.instructions.size();
  std::vector<int> sorted = solution.order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != int(i))
      return "the order is none of all instructions";
  if (sorted.size() != count || solution.beside.size() != count)
    return "not one number an instruction";
  auto writes = [&](int one, int other) {
    const OverlapInstruction &a = problem.instructions[size_t(one)], &b = problem.instructions[size_t(other)];
    return std::any_of(a.writes.begin(), a.writes.end(), [&](int id) {
      return std::count(b.reads.begin(), b.reads.end(), id) || std::count(b.writes.begin(), b.writes.end(), id);
    });
  };
  auto wrong = [](int a, int b, const char *how) {
    return "instructions " + std::to_string(a) + " and " + std::to_string(b) + how +
           ", and one writes what the other touches";
  };
  for (const PackingScratch &scratch : problem.packing.scratch)
    for (size_t i = 0; i < count; ++i)
      if (solution.order[i] == int(scratch.at) && solution.beside[i] > 0)
        return "instruction " + std::to_string(scratch.at) + " has scratch and runs beside others";
  // For each memory, the largest original position of the instructions so far that wrote it, and that touched it: a
  // write must not come after an access of larger position, nor a read after a write of larger position.
  std::unordered_map<int, std::pair<int, int>> latest; // written, touched
  for (size_t i = 0; i < count; ++i) {
    int a = solution.order[i];
    if (solution.beside[i] < 0 || i + size_t(solution.beside[i]) >= count)
      return "instruction " + std::to_string(a) + " runs beside some that are not there";
    for (size_t j = i + 1; j <= i + size_t(solution.beside[i]); ++j)
      if (int b = solution.order[j]; writes(a, b) || writes(b, a))
        return wrong(a, b, " run beside each other");
    const OverlapInstruction &instruction = problem.instructions[size_t(a)];
    auto last = [&](int memory) -> auto & { return latest.try_emplace(memory, -1, -1).first->second; };
    for (int memory : instruction.reads)
      if (int b = last(memory).first; b > a)
        return wrong(b, a, " change places");
    for (int memory : instruction.writes)
      if (int b = last(memory).second; b > a)
        return wrong(b, a, " change places");
    for (int memory : instruction.reads)
      last(memory).second = std::max(last(memory).second, a);
    for (int memory : instruction.writes)
      last(memory) = {std::max(last(memory).first, a), std::max(last(memory).second, a)};
  }
  return validate(packingOf(problem, solution), PackingSolution{solution.offsets, problem.capacity, 0});
}

} // namespace tcc::planning
