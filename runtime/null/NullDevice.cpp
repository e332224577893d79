//===- NullDevice.cpp - executes nothing, checks everything --------------===//
//
// Walks an entry as the executor would and records, for each byte range that is written, which buffer and version it
// holds. A read must find its own buffer's bytes, so overlapping live buffers are detected by simulation, independently
// of the verifier's reasoning about live ranges.
//
//===----------------------------------------------------------------------===//
#include "runtime/null/NullDevice.h"
#include "runtime/parallel/CollectiveStep.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <vector>

namespace tcc::runtime {

namespace {
/// The last writer of each byte of an arena: disjoint intervals by their start.
class Ownership {
public:
  void write(uint64_t begin, uint64_t end, int owner) {
    if (begin >= end)
      return;
    split(begin);
    split(end);
    intervals.erase(intervals.lower_bound(begin), intervals.lower_bound(end));
    intervals[begin] = {end, owner};
  }

  /// The first owner other than `owner` within the bytes, or `owner` if all are its own; -1: bytes without an owner.
  int intruder(uint64_t begin, uint64_t end, int owner) const {
    auto it = intervals.upper_bound(begin);
    if (it != intervals.begin())
      --it;
    uint64_t at = begin;
    for (; it != intervals.end() && at < end; ++it) {
      if (it->second.end <= at)
        continue;
      if (it->first > at)
        return -1;
      if (it->second.owner != owner)
        return it->second.owner;
      at = it->second.end;
    }
    return at < end ? -1 : owner;
  }

private:
  struct Interval {
    uint64_t end;
    int owner;
  };
  void split(uint64_t at) {
    auto it = intervals.lower_bound(at);
    if (it == intervals.begin() || (it != intervals.end() && it->first == at))
      return;
    --it;
    if (it->second.end <= at)
      return;
    Interval tail = it->second;
    it->second.end = at;
    intervals[at] = tail;
  }
  std::map<uint64_t, Interval> intervals;
};

class NullDevice final : public Device {
public:
  explicit NullDevice(std::shared_ptr<const plan::Plan> sharedPlan) : Device(std::move(sharedPlan)) {
    abilities.name = "null";
    abilities.memory = DeviceMemory::None;
    abilities.executes = false;
  }

  const DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t residentBytes() const override { return plan::spaceBytes(plan(), plan::RESIDENT); }
  uint64_t hostBytes() const override { return plan::hostBytes(plan()); }
  uint64_t transientBytes() const override { return plan::transientBytes(plan(), abilities.threads); }

protected:
  Status readBytes(Place, uint64_t, std::span<std::byte> to) override {
    std::fill(to.begin(), to.end(), std::byte(0));
    return Status();
  }
  Status writeBytes(Place, uint64_t, std::span<const std::byte>) override { return Status(); }
  Expected<std::span<std::byte>> stageBytes(Place, uint64_t) override { return std::span<std::byte>(); }
  Status commitBytes(const Staging &) override { return Status(); }
  Status fillBytes(Place, uint64_t, std::byte) override { return Status(); }
  Status copyBytes(Place, Place, uint64_t) override { return Status(); }
  Status runEntry(uint32_t entry) override { return observeEntry(entry, {}); }
  Status observeEntry(uint32_t entry, const InstructionObserver &after) override {
    return walk(plan().entries(static_cast<int>(entry)), after);
  }

private:
  /// Calls the collective of a group of ranks that moves no data, but counts and compares calls.
  Status callRanks(const plan::Entry &entry, const plan::Instruction &instruction) {
    const std::vector<void *> nowhere(static_cast<size_t>(instruction.operands_size()), nullptr);
    return CollectiveStep(entry, instruction, nowhere, plan().training().parallel()).finish(*ranks());
  }

  Status walk(const plan::Entry &entry, const InstructionObserver &after) {
    Ownership transient, onHost;
    auto ownersOf = [&](const plan::Buffer &buffer) {
      return buffer.arena() == plan::TRANSIENT        ? &transient
             : buffer.arena() == plan::HOST_TRANSIENT ? &onHost
                                                      : nullptr;
    };
    std::vector<uint32_t> version(static_cast<size_t>(entry.buffers_size()), 0);
    for (int i = 0; i < entry.buffers_size(); ++i) {
      const plan::Buffer &buffer = entry.buffers(i);
      if (buffer.arena() == plan::TRANSIENT && buffer.first() < 0)
        transient.write(buffer.offset(), buffer.offset() + buffer.bytes(), i);
    }
    for (int at = 0; at < entry.instructions_size(); ++at) {
      const plan::Instruction &instruction = entry.instructions(at);
      auto where = [&] {
        return fmt::format("entry '{}', instruction {} (node '{}')", entry.name(), at, instruction.node());
      };
      for (const plan::Operand &operand : instruction.operands()) {
        int index = static_cast<int>(operand.buffer());
        const plan::Buffer &buffer = entry.buffers(index);
        if (!operand.read())
          continue;
        if (operand.version() != version[operand.buffer()])
          return error("{}: '{}' holds version {}, {} is read", where(), buffer.name(), version[operand.buffer()],
                             operand.version());
        uint64_t begin = buffer.offset() + operand.byte_offset(), end = buffer.offset() + buffer.bytes();
        Ownership *owners = ownersOf(buffer);
        if (!owners)
          continue;
        if (int owner = owners->intruder(begin, end, index); owner != index)
          return error("{}: '{}' is read, but its bytes {}", where(), buffer.name(),
                       owner < 0 ? std::string("were never written")
                       : owner >= entry.buffers_size()
                           ? "hold scratch of '" + entry.instructions(owner - entry.buffers_size()).node() + "'"
                           : "hold '" + entry.buffers(owner).name() + "'");
      }
      // Its end depends on the number of workers, which is not bounded.
      if (plan::hasScratch(instruction))
        transient.write(instruction.scratch_offset(), UINT64_MAX, entry.buffers_size() + at);
      for (const plan::Operand &operand : instruction.operands())
        if (operand.write()) {
          const plan::Buffer &buffer = entry.buffers(static_cast<int>(operand.buffer()));
          // The first write claims the whole buffer: whether a kernel writes all of it is not checked here.
          uint64_t from = version[operand.buffer()] == 0 ? 0 : operand.byte_offset();
          version[operand.buffer()] = operand.version_written();
          if (Ownership *owners = ownersOf(buffer))
            owners->write(buffer.offset() + from, buffer.offset() + buffer.bytes(), static_cast<int>(operand.buffer()));
        }
      if (instruction.has_collective() && ranks())
        if (Status status = callRanks(entry, instruction); !status.ok())
          return status.withContext(where());
      if (after)
        after(static_cast<uint32_t>(at));
    }
    return Status::success();
  }

  DeviceCapabilities abilities;
};
} // namespace

Expected<std::unique_ptr<Device>> createNullDevice(const plan::PlanReader &reader, const DeviceOptions &) {
  if (Status status = checkPlan(reader, /*keepsOnHost=*/true); !status.ok())
    return status;
  return std::unique_ptr<Device>(std::make_unique<NullDevice>(reader.sharedPlan()));
}

} // namespace tcc::runtime
