//===- NullDevice.cpp - executes nothing, checks everything --------------===//
//
// Walks an entry as the executor would and keeps, for each byte range that is written, which buffer and version it
// holds: a read must find its own buffer's bytes, so a plan whose buffers were laid over each other is caught in the
// act, by another way than the verifier's reasoning about live ranges.
//
//===----------------------------------------------------------------------===//
#include "runtime/Device.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Verifier.h"

#include <fmt/format.h>
#include <map>
#include <vector>

namespace tcc::runtime {

namespace {
/// Who wrote which bytes of an arena last: disjoint intervals by their start.
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

  /// The first owner other than `owner` within the bytes, or `owner` if they are all its own; -1: nobody's.
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
  explicit NullDevice(std::shared_ptr<const plan::Plan> sharedPlan) : plan(std::move(sharedPlan)) {}

  uint64_t residentBytes() const override { return plan->resident_bytes(); }
  uint64_t transientBytes() const override { return plan->transient_bytes(); }
  void *variableData(uint32_t) override { return nullptr; }
  void *bufferData(const std::string &, uint32_t) override { return nullptr; }
  plan::Status run(const std::string &entry) override { return runObserved(entry, {}); }

  plan::Status runObserved(const std::string &name, const InstructionObserver &after) override {
    for (const plan::Entry &entry : plan->entries())
      if (entry.name() == name)
        return walk(entry, after);
    return plan::error("the plan has no entry '{}'; compile it with tcc --entry", name);
  }

private:
  plan::Status walk(const plan::Entry &entry, const InstructionObserver &after) {
    Ownership transient;
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
          return plan::error("{}: '{}' holds version {}, {} is read", where(), buffer.name(), version[operand.buffer()],
                             operand.version());
        uint64_t begin = buffer.offset() + operand.byte_offset(), end = buffer.offset() + buffer.bytes();
        if (buffer.arena() == plan::RESIDENT)
          continue;
        if (int owner = transient.intruder(begin, end, index); owner != index)
          return plan::error("{}: '{}' is read, but its bytes {}", where(), buffer.name(),
                             owner < 0 ? "were never written" : "hold '" + entry.buffers(owner).name() + "'");
      }
      if (instruction.scratch() >= 0) {
        const plan::Buffer &scratch = entry.buffers(instruction.scratch());
        transient.write(scratch.offset(), scratch.offset() + scratch.bytes(), instruction.scratch());
      }
      for (const plan::Operand &operand : instruction.operands())
        if (operand.write()) {
          const plan::Buffer &buffer = entry.buffers(static_cast<int>(operand.buffer()));
          // The first write claims the buffer: what of it is never written is the kernel's business, not the layout's.
          uint64_t from = version[operand.buffer()] == 0 ? 0 : operand.byte_offset();
          version[operand.buffer()] = operand.version_written();
          if (buffer.arena() == plan::TRANSIENT)
            transient.write(buffer.offset() + from, buffer.offset() + buffer.bytes(),
                            static_cast<int>(operand.buffer()));
        }
      if (after)
        after(static_cast<uint32_t>(at));
    }
    return plan::Status::success();
  }

  std::shared_ptr<const plan::Plan> plan;
};
} // namespace

plan::Expected<std::unique_ptr<Device>> createNullDevice(const plan::PlanReader &reader) {
  std::vector<std::string> problems = plan::verifyPlan(reader.plan(), 5);
  if (!problems.empty())
    return plan::error("{}: the plan is not safe to run:\n  {}", reader.path(), fmt::join(problems, "\n  "));
  return std::unique_ptr<Device>(std::make_unique<NullDevice>(reader.sharedPlan()));
}

} // namespace tcc::runtime
