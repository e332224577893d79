//===- RandomPrograms.h - programs to try planners on -----------*- C++ -*-===//
#ifndef TCC_TEST_PLANNING_RANDOMPROGRAMS_H
#define TCC_TEST_PLANNING_RANDOMPROGRAMS_H

#include "compiler/planning/Program.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace tcc::planning {

inline int addValue(Program &program, Bytes bytes, int producer) {
  int value = int(program.values.size());
  program.values.push_back({"v" + std::to_string(value), bytes, producer, false});
  if (producer >= 0)
    program.instructions[size_t(producer)].writes.push_back(value);
  return value;
}

inline int addInstruction(Program &program, std::vector<int> reads) {
  int id = int(program.instructions.size());
  program.instructions.push_back({});
  ProgramInstruction &instruction = program.instructions.back();
  instruction.name = "i" + std::to_string(id);
  instruction.cost = 1;
  std::sort(reads.begin(), reads.end());
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  instruction.reads = std::move(reads);
  return id;
}

/// A program with every feature: inputs, several results, unread results, workspace, values at exit, in-place results
/// (with a choice of operands), order constraints by state, instructions that omit unread results.
inline Program randomProgram(std::mt19937 &random, int instructions) {
  Program program;
  auto below = [&](int limit) { return int(random() % uint32_t(limit)); };
  for (int inputs = below(3); inputs > 0; --inputs)
    addValue(program, Bytes(64 * below(6)), -1);
  const int sizes = 1 + below(12), reach = 2 + below(10);
  for (int i = 0; i < instructions; ++i) {
    std::vector<int> reads;
    for (int k = below(4); k > 0 && !program.values.empty(); --k) {
      int newest = int(program.values.size());
      reads.push_back(std::max(0, newest - 1 - below(std::min(newest, reach))));
    }
    int id = addInstruction(program, reads);
    for (int k = below(8) ? 1 + below(5) / 4 : 0; k > 0; --k)
      addValue(program, Bytes(64 * (1 + below(sizes)) - Bytes(below(64))), id);
    ProgramInstruction &instruction = program.instructions.back();
    if (below(4) == 0)
      instruction.workspace = Bytes(below(400));
    instruction.omits = below(5) == 0;
    if (below(2))
      for (int read : instruction.reads)
        for (int written : instruction.writes)
          if (program.values[size_t(read)].bytes == program.values[size_t(written)].bytes)
            instruction.inPlace.push_back({read, written});
    if (i > 0 && below(6) == 0)
      instruction.after.push_back(below(i));
  }
  for (ProgramValue &value : program.values)
    value.atExit = below(12) == 0;
  return program;
}

/// A training step: a chain with skips, saved values that the backward pass reads, gradients that updates free.
inline Program trainingStep(std::mt19937 &random, int layers) {
  Program program;
  auto below = [&](int limit) { return int(random() % uint32_t(limit)); };
  auto bytes = [&] { return Bytes(256 * (1 + below(16))); };
  std::vector<int> saved{addValue(program, bytes(), -1)}, readers;
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<int> reads{saved.back()};
    if (layer > 2 && below(3) == 0)
      reads.push_back(saved[saved.size() - 1 - size_t(below(3))]);
    int id = addInstruction(program, reads);
    readers.push_back(id);
    saved.push_back(addValue(program, bytes(), id));
    program.instructions.back().workspace = below(3) ? 0 : bytes();
  }
  int gradient = addValue(program, program.values[size_t(saved.back())].bytes, addInstruction(program, {saved.back()}));
  std::vector<std::pair<int, std::vector<int>>> updates;
  for (int layer = layers; layer-- > 0;) {
    // The weight's gradient, and the operand's.
    int weight = addValue(program, bytes(), addInstruction(program, {saved[size_t(layer)], gradient}));
    int previous = gradient;
    int back = addInstruction(program, {previous, saved[size_t(layer)]});
    gradient = addValue(program, program.values[size_t(saved[size_t(layer)])].bytes, back);
    if (program.values[size_t(previous)].bytes == program.values[size_t(gradient)].bytes)
      program.instructions.back().inPlace.push_back({previous, gradient});
    updates.push_back({weight, {readers[size_t(layer)], back}});
  }
  // Each update runs after all readers of the old weight.
  for (const auto &[weight, after] : updates) {
    addInstruction(program, {weight});
    program.instructions.back().after = after;
  }
  return program;
}

} // namespace tcc::planning

#endif // TCC_TEST_PLANNING_RANDOMPROGRAMS_H
