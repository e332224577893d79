//===- FrontierPrograms.h - programs that recompute, and a naive account of them -*- C++ -*-===//
#ifndef TCC_TEST_PLANNING_FRONTIERPROGRAMS_H
#define TCC_TEST_PLANNING_FRONTIERPROGRAMS_H

#include "compiler/planning/Program.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>

namespace tcc::planning::frontiertest {

inline int below(std::mt19937 &random, int count) { return int(random() % uint32_t(count)); }

/// An instruction with random parts of work and random reads, each needed by some of its results (or by its effect on
/// state, which comes last). An execution does the work and the reads that its wanted results need.
class RandomPartial : public PartialExecutions {
public:
  RandomPartial(std::mt19937 &random, const ProgramInstruction &whole) : whole(whole) {
    const size_t results = whole.writes.size() + 1;
    auto needers = [&] {
      std::vector<bool> by(results);
      for (size_t i = 0; i < results; ++i)
        by[i] = below(random, 2);
      by[size_t(below(random, int(results) - 1))] = true;
      return by;
    };
    for (int part = below(random, 4); part >= 0; --part)
      parts.push_back({needers(), Cost(below(random, 9)), Cost(below(random, 9))});
    for (size_t r = 0; r < whole.reads.size(); ++r)
      readers.push_back(needers());
  }
  Execution make(const std::vector<bool> &wanted) const override {
    Cost compute = 0, traffic = 0;
    for (const Part &part : parts)
      if (isNeeded(part.by, wanted)) {
        compute += part.compute;
        traffic += part.traffic;
      }
    Execution execution{kOverhead + std::max(compute, traffic), {}, {}, whole.workspace, {}};
    for (size_t r = 0; r < readers.size(); ++r)
      if (isNeeded(readers[r], wanted))
        execution.reads.push_back(whole.reads[r]);
    for (size_t w = 0; w < whole.writes.size(); ++w)
      if (wanted[w])
        execution.writes.push_back(whole.writes[w]);
    // An execution for fewer results reads fewer operands, but keeps the in-place pairs of those that it reads.
    for (auto [read, written] : whole.inPlace)
      if (std::count(execution.reads.begin(), execution.reads.end(), read))
        execution.inPlace.push_back({read, written});
    return execution;
  }
  std::vector<Cost> shares() const override {
    std::vector<double> compute(whole.writes.size()), traffic = compute;
    Cost allCompute = 0, allTraffic = 0;
    for (const Part &part : parts) {
      const double count = double(std::count(part.by.begin(), part.by.end() - 1, true));
      for (size_t w = 0; w < compute.size(); ++w)
        if (part.by[w]) {
          compute[w] += double(part.compute) / count;
          traffic[w] += double(part.traffic) / count;
        }
      allCompute += part.compute;
      allTraffic += part.traffic;
    }
    std::vector<Cost> shares;
    for (double share : allCompute > allTraffic ? compute : traffic)
      shares.push_back(Cost(share) + kOverhead / whole.writes.size());
    return shares;
  }

private:
  static constexpr Cost kOverhead = 4;
  struct Part {
    std::vector<bool> by;
    Cost compute, traffic;
  };
  static bool isNeeded(const std::vector<bool> &by, const std::vector<bool> &wanted) {
    for (size_t i = 0; i < by.size(); ++i)
      if (by[i] && wanted[i])
        return true;
    return false;
  }
  ProgramInstruction whole;
  std::vector<Part> parts;
  std::vector<std::vector<bool>> readers;
};

/// A random program: inputs, instructions of one or two results, in-place pairs, state that late instructions
/// overwrite.
inline Program randomProgram(std::mt19937 &random, int count) {
  Program program;
  auto addValue = [&](int producer) {
    program.values.push_back({"v" + std::to_string(program.values.size()), Bytes(64 * (1 + below(random, 8))), producer,
                              below(random, 8) == 0 && producer >= 0});
    return int(program.values.size()) - 1;
  };
  for (int i = below(random, 3); i >= 0; --i)
    addValue(-1);
  for (int i = 0; i < count; ++i) {
    ProgramInstruction instruction;
    instruction.name = "i" + std::to_string(i);
    instruction.cost = Cost(1 + below(random, 9));
    instruction.repeatable = below(random, 5) > 0;
    instruction.omits = below(random, 2);
    instruction.workspace = below(random, 4) ? 0 : Bytes(64 * below(random, 6));
    const int values = int(program.values.size());
    for (int r = below(random, 3); r >= 0; --r)
      instruction.reads.push_back(below(random, 3) ? std::max(0, values - 1 - below(random, 4))
                                                   : below(random, values));
    std::sort(instruction.reads.begin(), instruction.reads.end());
    instruction.reads.erase(std::unique(instruction.reads.begin(), instruction.reads.end()), instruction.reads.end());
    for (int w = 1 + (below(random, 4) == 0) * (1 + below(random, 2)); w > 0; --w)
      instruction.writes.push_back(addValue(i));
    for (int read : instruction.reads)
      for (int written : instruction.writes)
        if (program.values[size_t(read)].producer >= 0 &&
            program.values[size_t(read)].bytes == program.values[size_t(written)].bytes)
          instruction.inPlace.push_back({read, written});
    if (i > 2 && below(random, 6) == 0) { // an update: it overwrites state that an earlier instruction reads
      instruction.after.push_back(below(random, i));
      instruction.repeatable = instruction.repeatable && instruction.omits && below(random, 2);
      instruction.writesState = true;
    }
    if (instruction.omits && instruction.repeatable && (instruction.writes.size() > 1 || instruction.writesState)) {
      auto partial = std::make_shared<RandomPartial>(random, instruction);
      instruction.cost = partial->make(std::vector<bool>(instruction.writes.size() + 1, true)).cost;
      instruction.partial = partial;
      if (!instruction.inPlace.empty() && below(random, 2))
        instruction.inPlace.pop_back();
    }
    program.instructions.push_back(std::move(instruction));
  }
  return program;
}

inline Sequence once(const Program &program) {
  Sequence sequence(program.instructions.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

/// The peak, computed by walking through the sequence: at each step, the bytes of every copy that is still read.
inline Bytes naivePeak(const Program &program, const Sequence &sequence) {
  std::function<std::tuple<size_t, bool>(int, size_t, size_t)> lastUse;
  // An execution makes only results that are read later.
  std::map<size_t, Execution> known;
  auto executionAt = [&](size_t at) -> const Execution & {
    if (auto found = known.find(at); found != known.end())
      return found->second;
    const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
    std::vector<bool> wanted;
    for (int v : instruction.writes)
      wanted.push_back(!instruction.omits || std::get<1>(lastUse(v, at + 1, at)));
    bool isFirst = std::find(sequence.begin(), sequence.end(), sequence[at]) == sequence.begin() + long(at);
    wanted.push_back(isFirst && instruction.writesState);
    bool isWhole = std::count(wanted.begin(), wanted.end(), true) == long(wanted.size()) - !instruction.writesState;
    Execution execution{instruction.cost, instruction.reads, {}, instruction.workspace, instruction.inPlace};
    return known[at] = isWhole || !instruction.partial ? execution : instruction.partial->of(wanted);
  };
  auto isRead = [&](size_t at, int value) {
    const std::vector<int> &reads = executionAt(at).reads;
    return std::find(reads.begin(), reads.end(), value) != reads.end();
  };
  auto isMade = [&](size_t at, int value) {
    const std::vector<int> &writes = program.instructions[size_t(sequence[at])].writes;
    return std::find(writes.begin(), writes.end(), value) != writes.end();
  };
  lastUse = [&](int value, size_t from, size_t otherwise) {
    size_t last = otherwise;
    bool read = false, madeAgain = false;
    for (size_t at = from; at < sequence.size() && !madeAgain; ++at) {
      if (isRead(at, value)) {
        last = at;
        read = true;
      }
      madeAgain = isMade(at, value);
    }
    bool leaves = program.values[size_t(value)].atExit && !madeAgain;
    return std::tuple(leaves ? sequence.size() : last, read || leaves);
  };
  Bytes most = 0;
  // Bytes of copies at each step; index 0 stands for the entry, the last one for the exit.
  std::map<int, std::pair<size_t, bool>> current; // value → last step, taken
  std::vector<Bytes> bytesAt(sequence.size() + 2, 0);
  auto occupy = [&](Bytes bytes, size_t from, size_t to) {
    for (size_t at = from; at <= to; ++at)
      bytesAt[at] += bytes;
  };
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0) {
      auto [last, read] = lastUse(int(v), 0, 0);
      occupy(program.values[v].bytes, 0, last + 1);
      current[int(v)] = {last, false};
    }
  for (size_t at = 0; at < sequence.size(); ++at) {
    const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
    occupy((instruction.workspace + 63) / 64 * 64, at + 1, at + 1);
    std::map<int, std::pair<size_t, bool>> made;
    for (int v : instruction.writes) {
      auto [last, read] = lastUse(v, at + 1, at);
      if (instruction.omits && !read)
        continue;
      made[v] = {last, false};
      occupy(program.values[size_t(v)].bytes, at + 1, last + 1);
    }
    std::vector<int> placed;
    for (auto [read, written] : executionAt(at).inPlace) {
      auto source = current.find(read);
      if (source == current.end() || !made.count(written) || source->second.first != at || source->second.second ||
          std::find(placed.begin(), placed.end(), written) != placed.end())
        continue;
      source->second.second = true;
      placed.push_back(written);
      bytesAt[at + 1] -= program.values[size_t(written)].bytes;
    }
    for (auto &[v, what] : made)
      current[v] = what;
  }
  for (Bytes bytes : bytesAt)
    most = std::max(most, bytes);
  return most;
}

/// A random valid sequence: the program's order with random repetitions.
inline Sequence randomSequence(std::mt19937 &random, const Program &program) {
  Sequence sequence = once(program);
  for (int attempt = 0; attempt < 6; ++attempt) {
    int id = below(random, int(program.instructions.size()));
    Sequence longer = sequence;
    longer.insert(longer.begin() + below(random, int(sequence.size()) + 1), id);
    if (validate(program, longer).empty())
      sequence = longer;
  }
  return sequence;
}

} // namespace tcc::planning::frontiertest

#endif // TCC_TEST_PLANNING_FRONTIERPROGRAMS_H
