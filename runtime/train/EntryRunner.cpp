//===- EntryRunner.cpp - one entry of a plan on a device -----------------===//
#include "runtime/train/EntryRunner.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

namespace {
template <typename T> T load(const void *data, uint64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + index * sizeof(T), sizeof(T));
  return value;
}

double loadElement(const void *data, plan::DType dtype, uint64_t index = 0) {
  switch (dtype) {
  case plan::F64:
    return load<double>(data, index);
  case plan::F32:
    return load<float>(data, index);
  case plan::I64:
    return static_cast<double>(load<int64_t>(data, index));
  case plan::I32:
    return load<int32_t>(data, index);
  default:
    return std::numeric_limits<double>::quiet_NaN();
  }
}

/// 0: all are finite, 1: an infinity but no NaN, 2: a NaN.
int worstOf(const void *data, plan::DType dtype, uint64_t count) {
  if (!plan::isFloatingPoint(dtype))
    return 0;
  int worst = 0;
  for (uint64_t i = 0; i < count && worst < 2; ++i) {
    double value = plan::floatElement(static_cast<const std::byte *>(data), dtype, i);
    worst = std::isnan(value) ? 2 : std::isinf(value) ? 1 : worst;
  }
  return worst;
}
} // namespace

const plan::Entry *tcc::runtime::findEntry(const plan::Plan &plan, const std::string &name) {
  for (const plan::Entry &entry : plan.entries())
    if (entry.name() == name)
      return &entry;
  return nullptr;
}

EntryRunner::EntryRunner(Device &device, const plan::Entry &entry) : device(&device), program(&entry) {
  if (Expected<uint32_t> found = device.findEntry(entry.name()))
    number = *found;
  staged.resize(static_cast<size_t>(entry.inputs_size()));
  inputBytes.resize(staged.size());
  (void)device.touch(number);
}

Status EntryRunner::stageInputs() {
  for (size_t i = 0; i < staged.size(); ++i) {
    Expected<Staging> staging = device->stage(Place::buffer(number, program->inputs(static_cast<int>(i)).buffer()));
    if (!staging)
      return staging.status();
    staged[i] = *staging;
    inputBytes[i] = staged[i].bytes;
  }
  return Status();
}

Status EntryRunner::commitInputs() {
  for (const Staging &staging : staged)
    if (Status status = device->commit(staging); !status.ok())
      return status;
  return Status();
}

Status EntryRunner::giveScalars(const ScalarBlock &block, uint64_t updateNumber, SchedulePoint at,
                                std::optional<double> lossScale) {
  if (program->scalars() < 0)
    return Status();
  Expected<Staging> staging = device->stage(Place::buffer(number, static_cast<uint32_t>(program->scalars())));
  if (!staging || staging->bytes.empty())
    return staging.status();
  block.compute(updateNumber, at,
                {reinterpret_cast<float *>(staging->bytes.data()), staging->bytes.size() / sizeof(float)},
                lossScale);
  return device->commit(*staging);
}

/// Called before each run, because other values reuse the buffer's memory.
Status EntryRunner::writeCounters() {
  if (!program->has_counters())
    return Status();
  const uint32_t counters[] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                               static_cast<uint32_t>(update), static_cast<uint32_t>(microBatch)};
  return device->write(Place::buffer(number, static_cast<uint32_t>(program->counters())), 0,
                       std::as_bytes(std::span(counters)));
}

Status EntryRunner::run() {
  Status status = writeCounters();
  if (status.ok())
    status = device->run(number);
  submitted += status.ok();
  return status;
}

Status EntryRunner::runTimed(const LaunchObserver &after) {
  Status status = writeCounters();
  if (status.ok())
    status = device->runTimed(number, after);
  submitted += status.ok();
  return status;
}

int EntryRunner::outputIndex(const std::string &output) const {
  for (int i = 0; i < program->outputs_size(); ++i)
    if (program->outputs(i).name() == output)
      return i;
  return -1;
}

const plan::TensorType &EntryRunner::outputType(int index) const {
  return program->buffers(static_cast<int>(program->outputs(index).buffer())).type();
}

Place EntryRunner::outputPlace(int index) const { return Place::buffer(number, program->outputs(index).buffer()); }

Expected<double> EntryRunner::scalarOutput(int index, uint64_t run) const {
  if (index < 0)
    return 0.0;
  const plan::TensorType &type = outputType(index);
  if (!device->capabilities().executes || plan::elementCount(type).value_or(0) == 0)
    return std::numeric_limits<double>::quiet_NaN();
  std::byte value[sizeof(double)];
  if (Status status =
          device->readNumber(number, program->outputs(index).buffer(), static_cast<unsigned>(submitted - run),
                             std::span(value).first(plan::dtypeBytes(type.dtype())));
      !status.ok())
    return status;
  return loadElement(value, type.dtype());
}

Status EntryRunner::addScalar(int index, double &sum) const {
  Expected<double> value = scalarOutput(index);
  if (value)
    sum += *value;
  return value.status();
}

Status EntryRunner::readOutput(int index, uint64_t offset, std::span<std::byte> to) const {
  return device->read(outputPlace(index), offset, to);
}

Status EntryRunner::streamOutput(int index, const ByteSink &sink) const {
  return device->readPieces(outputPlace(index), sink);
}

EntryRunner::NonFinite EntryRunner::findNonFinite() {
  NonFinite firstNan, firstInfinity;
  auto look = [&](uint32_t index) {
    if (!firstNan.node.empty())
      return;
    const plan::Instruction &instruction = program->instructions(static_cast<int>(index));
    for (const plan::Operand &operand : instruction.operands()) {
      const plan::Buffer &buffer = program->buffers(static_cast<int>(operand.buffer()));
      uint64_t width = plan::dtypeBytes(buffer.type().dtype());
      if (!operand.write() || width == 0)
        continue;
      int worst = 0;
      (void)device->readPieces(Place::buffer(number, operand.buffer()), [&](std::span<const std::byte> piece) {
        worst = std::max(worst, worstOf(piece.data(), buffer.type().dtype(), piece.size() / width));
        return Status();
      });
      std::string node = !instruction.node().empty() ? instruction.node() : buffer.name();
      if (worst == 2)
        firstNan = {node, index};
      else if (worst == 1 && firstInfinity.node.empty())
        firstInfinity = {node, index};
    }
  };
  if (!writeCounters().ok() || !device->runObserved(number, look).ok())
    return {};
  return firstNan.node.empty() ? firstInfinity : firstNan;
}
