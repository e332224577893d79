//===- TinyDevice.cpp - a device that runs one instruction at a time ------===//
#include "test/tiny/device/TinyDevice.h"

#include "runtime/InitialValues.h"
#include "runtime/cpu/CodeObject.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"

#include <cstring>

namespace tcc::test {

using namespace runtime;

namespace {
/// An arena of whole cache lines, as kernels expect.
class Bytes {
public:
  explicit Bytes(uint64_t count) : lines((count + sizeof(Line) - 1) / sizeof(Line)), count(count) {}
  std::byte *data() { return lines.empty() ? nullptr : lines.front().bytes; }
  uint64_t size() const { return count; }

private:
  struct alignas(plan::kMostSpaceAlignmentBytes) Line {
    std::byte bytes[plan::kMostSpaceAlignmentBytes] = {};
  };
  std::vector<Line> lines;
  uint64_t count;
};

void multiply(const plan::MatmulCall &call, std::span<void *const> operands) {
  const int64_t m = call.m(), n = call.n(), k = call.k();
  const auto *a = static_cast<const float *>(operands[0]), *b = static_cast<const float *>(operands[1]);
  // With accumulate, the addend is in the result's place.
  auto *c = static_cast<float *>(operands[call.accumulate() ? 3 : 2]);
  for (int64_t product = 0; product < call.batch(); ++product, a += m * k, b += k * n, c += m * n)
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < n; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += a[call.trans_a() ? i * m + row : row * k + i] * b[call.trans_b() ? column * k + i : i * n + column];
        c[row * n + column] = call.accumulate() ? c[row * n + column] + sum : sum;
      }
}

class TinyDevice final : public Device {
public:
  explicit TinyDevice(const plan::PlanReader &reader)
      : Device(reader.sharedPlan()), resident(plan::spaceBytes(plan(), plan::RESIDENT)),
        transient(plan::transientBytes(plan(), 1)) {
    abilities.name = "tiny";
  }

  Status load(const plan::PlanReader &reader, const DeviceOptions &options) {
    for (const plan::CodeObject &code : plan().code_objects()) {
      auto object = CodeObject::load(reader.payload(code.payload()));
      if (!object)
        return object.status();
      objects.push_back(object.take());
    }
    auto values = InitialValues::open(reader, options.rank);
    if (!values)
      return values.status();
    for (int i = 0; i < plan().variables_size(); ++i) {
      std::byte *at = address(Place::variable(static_cast<uint32_t>(i)));
      auto room = [at](uint64_t offset, uint64_t) { return Expected<std::byte *>(at + offset); };
      if (Status status = values->read(i, uint64_t(1) << 20, room); !status.ok())
        return status;
    }
    return Status();
  }

  const DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t residentBytes() const override { return resident.size(); }
  uint64_t transientBytes() const override { return transient.size(); }

protected:
  Status readBytes(Place place, uint64_t offset, std::span<std::byte> to) override {
    std::memcpy(to.data(), address(place) + offset, to.size());
    return Status();
  }
  Status writeBytes(Place place, uint64_t offset, std::span<const std::byte> from) override {
    std::memcpy(address(place) + offset, from.data(), from.size());
    return Status();
  }
  Expected<std::span<std::byte>> stageBytes(Place place, uint64_t bytes) override {
    return std::span(address(place), bytes);
  }
  Status commitBytes(const Staging &) override { return Status(); }
  Status fillBytes(Place place, uint64_t bytes, std::byte value) override {
    std::memset(address(place), std::to_integer<int>(value), bytes);
    return Status();
  }
  Status copyBytes(Place from, Place to, uint64_t bytes) override {
    std::memmove(address(to), address(from), bytes);
    return Status();
  }
  Status runEntry(uint32_t entry) override { return observeEntry(entry, {}); }
  Status observeEntry(uint32_t index, const InstructionObserver &after) override {
    const plan::Entry &entry = plan().entries(static_cast<int>(index));
    for (int i = 0; i < entry.instructions_size(); ++i) {
      if (Status status = run(entry, entry.instructions(i)); !status.ok())
        return status.withContext(fmt::format("entry '{}', instruction {}", entry.name(), i));
      if (after)
        after(static_cast<uint32_t>(i));
    }
    return Status();
  }

private:
  std::byte *address(const plan::Buffer &buffer) {
    return (buffer.arena() == plan::RESIDENT ? resident : transient).data() + buffer.offset();
  }
  std::byte *address(Place place) {
    return place.entry ? address(bufferAt(place))
                       : resident.data() + plan().variables(static_cast<int>(place.index)).offset();
  }

  Status run(const plan::Entry &entry, const plan::Instruction &instruction) {
    std::vector<void *> operands;
    for (const plan::Operand &operand : instruction.operands())
      operands.push_back(address(entry.buffers(static_cast<int>(operand.buffer()))) + operand.byte_offset());
    switch (instruction.call_case()) {
    case plan::Instruction::kKernel: {
      const plan::KernelCall &call = instruction.kernel();
      plan::KernelFunction kernel = objects[call.code()].find(call.symbol());
      if (!kernel)
        return error("there is no kernel '{}'", call.symbol());
      std::byte *scratch = plan::hasScratch(instruction) ? transient.data() + instruction.scratch_offset() : nullptr;
      kernel(operands.data(), 0, call.tiles(), scratch);
      return Status();
    }
    case plan::Instruction::kMatmul:
      multiply(instruction.matmul(), operands);
      return Status();
    case plan::Instruction::kCopy:
      std::memmove(operands[1], operands[0], plan::movedBytes(entry, instruction));
      return Status();
    case plan::Instruction::kFill: {
      const plan::DType type = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      plan::fillElements(operands[0], type, plan::movedBytes(entry, instruction) / plan::dtypeBytes(type),
                         instruction.fill().value());
      return Status();
    }
    default:
      return error("this machine has no such call");
    }
  }

  DeviceCapabilities abilities;
  Bytes resident, transient;
  std::vector<CodeObject> objects;
};
} // namespace

DeviceKind tinyDevice() {
  auto create = [](const plan::PlanReader &reader, const DeviceOptions &options) -> Expected<std::unique_ptr<Device>> {
    if (Status status = checkPlan(reader); !status.ok())
      return status;
    auto device = std::make_unique<TinyDevice>(reader);
    if (Status status = device->load(reader, options); !status.ok())
      return status;
    return std::unique_ptr<Device>(std::move(device));
  };
  return {.name = "tiny", .create = create};
}

} // namespace tcc::test
