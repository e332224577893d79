//===- Parallelism.cpp - memory and time by the number of workers ---------===//
#include "runtime/plan/Parallelism.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>

namespace tcc::plan {

namespace {
using Wide = unsigned __int128;

uint64_t saturated(Wide value) { return value > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(value); }

/// Nanoseconds until the last of `workers` has finished its tiles.
double makespan(const Entry &entry, const Instruction &instruction, uint64_t workers) {
  const auto tiles = static_cast<uint64_t>(std::max<int64_t>(1, tilesOf(entry, instruction)));
  const uint64_t largestShare = (tiles - 1) / workers + 1;
  return static_cast<double>(instruction.cost()) * static_cast<double>(largestShare) / static_cast<double>(tiles);
}
} // namespace

uint64_t movedBytes(const Entry &entry, const Instruction &instruction) {
  auto remaining = [&](int index) -> uint64_t {
    if (index >= instruction.operands_size())
      return 0;
    const Operand &operand = instruction.operands(index);
    if (operand.buffer() >= static_cast<uint32_t>(entry.buffers_size()))
      return 0;
    const uint64_t bytes = tensorBytes(entry.buffers(static_cast<int>(operand.buffer())).type()).value_or(0);
    return bytes - std::min(bytes, operand.byte_offset());
  };
  if (instruction.has_copy() || instruction.has_transfer())
    return std::min(remaining(0), remaining(1));
  return instruction.has_fill() ? remaining(0) : 0;
}

int64_t tilesOf(const Entry &entry, const Instruction &instruction) {
  if (instruction.has_kernel())
    return instruction.kernel().tiles();
  if (instruction.has_copy() || instruction.has_fill())
    return static_cast<int64_t>((movedBytes(entry, instruction) + kPieceBytes - 1) / kPieceBytes);
  return instruction.tiles();
}

bool hasScratch(const Instruction &instruction) {
  return instruction.scratch_slot_bytes() > 0 || instruction.scratch_shared_bytes() > 0;
}

uint64_t scratchBytes(const Entry &entry, const Instruction &instruction, uint64_t workers) {
  if (!hasScratch(instruction))
    return 0;
  const auto tiles = static_cast<uint64_t>(std::max<int64_t>(0, tilesOf(entry, instruction)));
  return saturated(instruction.scratch_shared_bytes() +
                   Wide(std::min(workers, tiles)) * instruction.scratch_slot_bytes());
}

uint64_t transientBytes(const Entry &entry, uint64_t workers) {
  uint64_t bytes = 0;
  for (const Buffer &buffer : entry.buffers())
    if (buffer.arena() == TRANSIENT) {
      const Wide padded = (Wide(buffer.bytes()) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
      bytes = std::max(bytes, saturated(buffer.offset() + padded));
    }
  for (const Instruction &instruction : entry.instructions())
    if (hasScratch(instruction))
      bytes =
          std::max(bytes, saturated(Wide(instruction.scratch_offset()) + scratchBytes(entry, instruction, workers)));
  return bytes;
}

uint64_t hostTransientBytes(const Entry &entry) {
  uint64_t bytes = 0;
  for (const Buffer &buffer : entry.buffers())
    if (buffer.arena() == HOST_TRANSIENT) {
      const Wide padded = (Wide(buffer.bytes()) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
      bytes = std::max(bytes, saturated(buffer.offset() + padded));
    }
  return bytes;
}

uint64_t transientBytes(const Plan &plan, uint64_t workers) {
  uint64_t bytes = 0;
  for (const Entry &entry : plan.entries())
    bytes = std::max(bytes, transientBytes(entry, workers));
  return bytes;
}

uint32_t workersWithin(const Plan &plan, uint64_t bytes, uint32_t most) {
  // The arena never shrinks as workers are added, so bisection finds the largest number that fits.
  uint32_t fit = 0;
  for (uint32_t beyond = most + 1; fit + 1 < beyond;) {
    const uint32_t workers = fit + (beyond - fit) / 2;
    (Wide(spaceBytes(plan, RESIDENT)) + transientBytes(plan, workers) <= bytes ? fit : beyond) = workers;
  }
  return fit;
}

double parallelEfficiency(const Entry &entry, uint64_t workers) {
  double cost = 0, spans = 0;
  for (const Instruction &instruction : entry.instructions()) {
    cost += static_cast<double>(instruction.cost());
    spans += makespan(entry, instruction, workers);
  }
  return spans > 0 ? cost / (static_cast<double>(workers) * spans) : 1;
}

std::vector<IdleTime> idleTimes(const Entry &entry, uint64_t workers) {
  std::vector<IdleTime> result;
  for (int i = 0; i < entry.instructions_size(); ++i) {
    const Instruction &instruction = entry.instructions(i);
    const double idle = static_cast<double>(workers) * makespan(entry, instruction, workers) -
                        static_cast<double>(instruction.cost());
    if (idle > 0)
      result.push_back({i, idle});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const IdleTime &a, const IdleTime &b) { return a.nanoseconds > b.nanoseconds; });
  return result;
}

} // namespace tcc::plan
