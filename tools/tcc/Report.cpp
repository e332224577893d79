//===- Report.cpp - numbers that follow from a plan -----------------------===//
//
// Live bytes are the union of the places of what lives: values that share a place by intent (a result in the place of
// its operand) count once, and no pairing has to be believed. The planner's own sums are not used.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Report.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <set>

namespace tcc::report {

namespace {

/// Places of transient buffers, by offset.
std::vector<const plan::Buffer *> byOffset(const plan::Entry &program) {
  std::vector<const plan::Buffer *> buffers;
  for (const plan::Buffer &buffer : program.buffers())
    if (buffer.arena() == plan::TRANSIENT)
      buffers.push_back(&buffer);
  std::stable_sort(buffers.begin(), buffers.end(), [](auto *a, auto *b) { return a->offset() < b->offset(); });
  return buffers;
}

/// Bytes of the arena that hold something live during [from, to] of the instructions (−1: at entry, their number: at
/// exit), overlaps counted once.
uint64_t unionOfLive(const std::vector<const plan::Buffer *> &sorted, int32_t from, int32_t to) {
  uint64_t bytes = 0, end = 0;
  for (const plan::Buffer *buffer : sorted) {
    if (buffer->last() < from || buffer->first() > to)
      continue;
    uint64_t start = std::max(end, buffer->offset()), stop = buffer->offset() + buffer->bytes();
    if (stop > start)
      bytes += stop - start;
    end = std::max(end, stop);
  }
  return bytes;
}

ProgramMemory analyzeProgram(const plan::Plan &plan, const plan::Entry &program) {
  ProgramMemory memory;
  memory.name = program.name();
  memory.program = &program;
  memory.arenaBytes = program.transient_bytes();
  std::vector<const plan::Buffer *> sorted = byOffset(program);
  int32_t count = program.instructions_size();
  for (int32_t step = 0; step < count; ++step) {
    const plan::Instruction &instruction = program.instructions(step);
    // Inputs that nobody reads and outputs live outside the instructions: the first and the last stand for that.
    uint64_t live = unionOfLive(sorted, step == 0 ? -1 : step, step + 1 == count ? count : step);
    memory.timeline.push_back({step, plan.resident_bytes() + live, instructionName(instruction), instruction.node()});
    memory.peakBytes = std::max(memory.peakBytes, memory.timeline.back().liveBytes);
  }
  if (count == 0)
    memory.peakBytes = plan.resident_bytes() + unionOfLive(sorted, -1, 0);
  memory.lowerBoundBytes = memory.peakBytes;
  return memory;
}

/// How often a program runs in one update; nothing counts where the plan does not train.
std::map<std::string, uint64_t> callsPerUpdate(const plan::Plan &plan) {
  std::map<std::string, uint64_t> calls;
  for (const plan::Entry &entry : plan.entries()) {
    if (entry.name() == "step" || entry.name() == "update" || entry.name() == "accumulate_first")
      calls[entry.name()] = 1;
    if (entry.name() == "accumulate_next")
      calls[entry.name()] = std::max<int64_t>(plan.training().accumulate(), 1) - 1;
  }
  return calls;
}

void countKernels(Report &report) {
  const plan::Plan &plan = *report.plan;
  std::map<std::string, uint64_t> calls = callsPerUpdate(plan);
  report.counted = "one update";
  bool trains = !calls.empty();
  for (const char *name : {"gradients", "evaluate", "predict"})
    if (calls.empty())
      for (const plan::Entry &entry : plan.entries())
        if (entry.name() == name) {
          calls[name] = 1;
          report.counted = std::string("one call of ") + name;
        }
  std::map<std::string, size_t> index;
  std::vector<std::set<std::string>> seen;
  for (const plan::Entry &entry : plan.entries()) {
    auto found = calls.find(entry.name());
    if (found == calls.end() || found->second == 0)
      continue;
    if (trains)
      report.flopsPerStep += entry.flops() * double(found->second);
    for (const plan::Instruction &instruction : entry.instructions()) {
      std::string name = instructionName(instruction);
      auto [at, fresh] = index.try_emplace(name, report.kernels.size());
      if (fresh) {
        report.kernels.push_back({name, {}, 0, 0, 0, instruction.has_kernel()});
        seen.emplace_back();
      }
      KernelUse &use = report.kernels[at->second];
      use.flops += instruction.flops() * double(found->second);
      use.bytes += instruction.bytes() * found->second;
      use.count += found->second;
      for (const std::string &node : instruction.nodes())
        if (seen[at->second].insert(node).second)
          use.nodes.push_back(node);
    }
  }
  std::stable_sort(report.kernels.begin(), report.kernels.end(), [](const KernelUse &a, const KernelUse &b) {
    return a.flops != b.flops ? a.flops > b.flops : a.bytes > b.bytes;
  });
}

template <typename Get> uint64_t largestOf(const std::vector<ProgramMemory> &programs, Get get) {
  uint64_t most = 0;
  for (const ProgramMemory &program : programs)
    most = std::max(most, get(program));
  return most;
}

} // namespace

std::string instructionName(const plan::Instruction &instruction) {
  auto library = [](std::string name, const auto &kernels) {
    std::set<std::string> seen;
    for (const plan::LibraryKernel &kernel : kernels)
      if (seen.insert(kernel.implementation()).second)
        name += (seen.size() == 1 ? " " : " + ") + kernel.implementation();
    return name;
  };
  switch (instruction.call_case()) {
  case plan::Instruction::kKernel:
    return instruction.kernel().symbol();
  case plan::Instruction::kMatmul:
    return library("matmul", instruction.matmul().kernels());
  case plan::Instruction::kConvolution: {
    static constexpr const char *kinds[] = {"convolution", "convolution input gradient", "convolution weight gradient"};
    int kind = instruction.convolution().kind();
    return library(kind >= 0 && kind < 3 ? kinds[kind] : "convolution", instruction.convolution().kernels());
  }
  case plan::Instruction::kCopy:
    return "copy";
  case plan::Instruction::kFill:
    return "fill";
  case plan::Instruction::CALL_NOT_SET:
    break;
  }
  return "unknown";
}

uint64_t EntryMemory::peakBytes() const {
  return largestOf(programs, [](auto &p) { return p.peakBytes; });
}
uint64_t EntryMemory::arenaBytes() const {
  return largestOf(programs, [](auto &p) { return p.arenaBytes; });
}
uint64_t EntryMemory::lowerBoundBytes() const {
  return largestOf(programs, [](auto &p) { return p.lowerBoundBytes; });
}

const ProgramMemory *Report::largest() const {
  const ProgramMemory *most = nullptr;
  for (const EntryMemory &entry : entries)
    for (const ProgramMemory &program : entry.programs)
      if (!most || program.peakBytes > most->peakBytes)
        most = &program;
  return most;
}

uint64_t Report::peakBytes() const { return largest() ? largest()->peakBytes : plan->resident_bytes(); }
uint64_t Report::lowerBoundBytes() const {
  uint64_t most = plan->resident_bytes();
  for (const EntryMemory &entry : entries)
    most = std::max(most, entry.lowerBoundBytes());
  return most;
}

Report analyzePlan(const plan::Plan &plan, uint64_t planFileBytes) {
  Report report;
  report.plan = &plan;
  for (const plan::Entry &program : plan.entries()) {
    const std::string &given = program.name();
    bool trains = given == "step" || given == "update" || given.starts_with("accumulate_");
    std::string name = trains ? "train" : given;
    auto entry = std::find_if(report.entries.begin(), report.entries.end(), [&](auto &e) { return e.name == name; });
    if (entry == report.entries.end())
      entry = report.entries.insert(entry, EntryMemory{name, {}});
    entry->programs.push_back(analyzeProgram(plan, program));
  }
  for (const plan::Variable &variable : plan.variables())
    report.residentBytes[variable.role()] += plan::tensorBytes(variable.type()).value_or(0);
  report.hostBytes = planFileBytes;
  for (const plan::CodeObject &code : plan.code_objects())
    if (code.payload() < uint32_t(plan.payloads_size()))
      report.hostBytes += plan.payloads(int(code.payload())).bytes();
  countKernels(report);
  return report;
}

std::string formatBytes(uint64_t bytes) {
  static constexpr const char *units[] = {"B", "KiB", "MiB", "GiB"};
  double value = double(bytes);
  int unit = 0;
  // 1023.95 KiB would print as "1024.0 KiB".
  for (; unit < 3 && value >= (unit ? 1023.95 : 1024.0); ++unit)
    value /= 1024;
  return unit ? fmt::format("{:.{}f} {}", value, unit == 3 ? 2 : 1, units[unit]) : fmt::format("{} B", bytes);
}

} // namespace tcc::report
