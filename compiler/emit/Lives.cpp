//===- Lives.cpp - explain why each buffer is alive ------------------------===//
#include "compiler/emit/Lives.h"
#include "runtime/plan/JoinedKernels.h"
#include "runtime/plan/Spaces.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace tcc::emit {

namespace {

using Value = std::pair<uint32_t, uint32_t>; // buffer, version
using Result = std::pair<int32_t, int32_t>;  // instruction, operand that it writes

bool isLoss(const plan::Plan &plan, const std::string &output) {
  return output == outputs::kLossSum || output == outputs::kLossWeight || output == outputs::kCorrect ||
         outputs::isTerm(output) || (!output.empty() && output == plan.training().loss_output());
}

const plan::Variable *variableOf(const plan::Plan &plan, const plan::Entry &entry, uint32_t buffer) {
  if (buffer >= uint32_t(entry.buffers_size()))
    return nullptr;
  int32_t variable = entry.buffers(int(buffer)).variable();
  return variable >= 0 && variable < plan.variables_size() ? &plan.variables(variable) : nullptr;
}

/// Finds the instructions that given results depend on. A result of a collective depends on its own source alone: a
/// bucket that sums the loss together with gradients makes neither depend on the other. Likewise, a result of a kernel
/// that shares a launch depends on that kernel's operands alone.
class Dependencies {
public:
  explicit Dependencies(const plan::Entry &entry) : entry(entry) {
    for (int32_t i = 0; i < entry.instructions_size(); ++i)
      for (int32_t k = 0; k < entry.instructions(i).operands_size(); ++k)
        if (const plan::Operand &operand = entry.instructions(i).operands(k); operand.write())
          writer[{operand.buffer(), operand.version_written()}] = {i, k};
  }

  std::vector<bool> of(std::vector<Result> open) const {
    std::vector<bool> reached(size_t(entry.instructions_size()), false);
    std::set<std::pair<int32_t, int>> followed; // instruction, and first operand of its kernel or source
    while (!open.empty()) {
      auto [at, result] = open.back();
      open.pop_back();
      const plan::Instruction &instruction = entry.instructions(at);
      plan::OperandRange own = plan::operandsOfMember(instruction, result);
      if (const int32_t source = result - instruction.operands_size() / 2; instruction.has_collective() && source >= 0)
        own = {source, 1};
      if (!followed.emplace(at, own.first).second)
        continue;
      reached[size_t(at)] = true;
      for (int32_t k = own.first; k < own.first + own.count; ++k) {
        const plan::Operand &operand = instruction.operands(k);
        if (!operand.read())
          continue;
        if (auto found = writer.find(Value(operand.buffer(), operand.version())); found != writer.end())
          open.push_back(found->second);
      }
    }
    return reached;
  }

private:
  const plan::Entry &entry;
  std::map<Value, Result> writer;
};

std::vector<Phase> phasesOf(const plan::Plan &plan, const plan::Entry &entry) {
  std::set<uint32_t> lossBuffers, gradientBuffers;
  for (const plan::Port &port : entry.outputs()) {
    if (isLoss(plan, port.name()))
      lossBuffers.insert(port.buffer());
    else if (port.name().starts_with(outputs::kGradientPrefix) || port.name() == outputs::kGradNorm)
      gradientBuffers.insert(port.buffer());
  }
  for (uint32_t id = 0; id < uint32_t(entry.buffers_size()); ++id)
    if (const plan::Variable *variable = variableOf(plan, entry, id); variable && variable->role() == plan::ACCUMULATOR)
      (isLoss(plan, variable->name()) ? lossBuffers : gradientBuffers).insert(id);

  int32_t count = entry.instructions_size();
  std::vector<Phase> phases(size_t(count), Phase::Forward);
  std::vector<Result> losses, gradients;
  for (int32_t i = 0; i < count; ++i) {
    const plan::Instruction &instruction = entry.instructions(i);
    for (int32_t k = 0; k < instruction.operands_size(); ++k) {
      const plan::Operand &operand = instruction.operands(k);
      if (!operand.write())
        continue;
      const plan::Variable *variable = variableOf(plan, entry, operand.buffer());
      if (variable && (variable->role() == plan::PARAMETER || variable->role() == plan::OPTIMIZER ||
                       variable->role() == plan::EMA)) {
        phases[size_t(i)] = Phase::Update;
        gradients.emplace_back(i, k);
      }
      if (lossBuffers.count(operand.buffer()))
        losses.emplace_back(i, k);
      if (gradientBuffers.count(operand.buffer()))
        gradients.emplace_back(i, k);
    }
  }
  Dependencies dependencies(entry);
  std::vector<bool> beforeLoss = dependencies.of(losses), beforeGradients = dependencies.of(gradients);
  for (int32_t i = 0; i < count; ++i) {
    if (entry.instructions(i).recompute())
      phases[size_t(i)] = Phase::Recompute;
    else if (phases[size_t(i)] != Phase::Update && beforeGradients[size_t(i)] && !beforeLoss[size_t(i)])
      phases[size_t(i)] = Phase::Backward;
  }
  return phases;
}

Purpose purposeOf(const plan::Buffer &buffer, const BufferLife &life, const std::vector<Phase> &phases) {
  switch (buffer.kind()) {
  case plan::Buffer::STATE:
    return Purpose::State;
  case plan::Buffer::INPUT:
  case plan::Buffer::SCALARS:
  case plan::Buffer::COUNTERS:
    return Purpose::Input;
  case plan::Buffer::OUTPUT:
    return Purpose::Output;
  case plan::Buffer::PARTIAL_SUMS:
    return Purpose::Scratch;
  default:
    break;
  }
  if (plan::holdsState(buffer.arena()))
    return Purpose::State;
  if (life.writers.empty())
    return Purpose::Activation;
  Phase made = phases[size_t(life.writers.front())];
  if (made == Phase::Recompute)
    return Purpose::Recomputed;
  if (made != Phase::Forward)
    return Purpose::Gradient;
  bool readLater = std::any_of(life.readers.begin(), life.readers.end(),
                               [&](int32_t i) { return phases[size_t(i)] != Phase::Forward; });
  return readLater ? Purpose::Saved : Purpose::Activation;
}

std::string nodeOf(const plan::Entry &entry, int32_t instruction) {
  const std::string &node = entry.instructions(instruction).node();
  return node.empty() ? fmt::format("instruction {}", instruction) : node;
}

/// "read by NODE", "the gradient at NODE", "the update of VARIABLE": what an instruction does, as the reason for a
/// life.
std::string purposeOfReader(const plan::Plan &plan, const plan::Entry &entry, Phase phase, int32_t reader, int buffer) {
  const plan::Instruction &instruction = entry.instructions(reader);
  if (phase == Phase::Update) {
    int read = 0;
    while (read + 1 < instruction.operands_size() &&
           !(instruction.operands(read).read() && int(instruction.operands(read).buffer()) == buffer))
      ++read;
    const plan::OperandRange own = plan::operandsOfMember(instruction, read);
    for (int k = own.first; k < own.first + own.count; ++k)
      if (const plan::Operand &operand = instruction.operands(k); operand.write())
        if (const plan::Variable *variable = variableOf(plan, entry, operand.buffer()))
          return "the update of " + variable->name();
  }
  if (phase == Phase::Recompute)
    return "the recomputation of " + nodeOf(entry, reader);
  return (phase == Phase::Backward ? "the gradient at " : "") + nodeOf(entry, reader);
}

} // namespace

EntryLives analyzeLives(const plan::Plan &plan, const plan::Entry &entry) {
  EntryLives lives;
  lives.phases = phasesOf(plan, entry);
  lives.buffers.resize(size_t(entry.buffers_size()));
  auto note = [](std::vector<int32_t> &list, int32_t instruction) {
    if (list.empty() || list.back() != instruction)
      list.push_back(instruction);
  };
  for (int32_t i = 0; i < entry.instructions_size(); ++i) {
    for (const plan::Operand &operand : entry.instructions(i).operands()) {
      if (operand.buffer() >= uint32_t(entry.buffers_size()))
        continue;
      BufferLife &life = lives.buffers[operand.buffer()];
      if (operand.read())
        note(life.readers, i);
      if (operand.write())
        note(life.writers, i);
    }
  }
  for (int id = 0; id < entry.buffers_size(); ++id)
    lives.buffers[size_t(id)].purpose = purposeOf(entry.buffers(id), lives.buffers[size_t(id)], lives.phases);
  return lives;
}

std::string whyAlive(const plan::Plan &plan, const plan::Entry &entry, const EntryLives &lives, int buffer) {
  const BufferLife &life = lives.buffers[size_t(buffer)];
  bool atExit = entry.buffers(buffer).last() >= entry.instructions_size();
  if (life.purpose == Purpose::State)
    return "state";
  if (life.purpose == Purpose::Scratch)
    return "used by one instruction";
  if (life.purpose == Purpose::Output || atExit)
    return "a result of the entry";
  if (life.readers.empty())
    return life.purpose == Purpose::Input ? "an input that nobody reads" : "read by nobody";

  int32_t last = life.readers.back(), since = life.writers.empty() ? -1 : life.writers.front();
  Phase phase = lives.phases[size_t(last)];
  std::string reader = purposeOfReader(plan, entry, phase, last, buffer);
  int32_t distance = last - since;
  std::string later = since < 0 || distance <= 1 ? "" : fmt::format(", {} instructions later", distance);
  switch (life.purpose) {
  case Purpose::Input:
    return fmt::format("input, {} {}", phase == Phase::Forward ? "read by" : "kept for", reader);
  case Purpose::Saved:
    // A gradient also read it, but the last reader, which keeps it alive, is of the forward pass.
    if (phase == Phase::Forward)
      return fmt::format("read by {}{}", reader, later);
    return fmt::format("saved for {}{}", reader, later);
  case Purpose::Recomputed:
    return fmt::format("recomputed for {}{}", reader, later);
  default:
    return fmt::format("{} {}{}", phase == Phase::Update ? "waits for" : "read by", reader, later);
  }
}

} // namespace tcc::emit
