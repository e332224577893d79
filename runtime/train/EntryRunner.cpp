//===- EntryRunner.cpp - one entry of a plan on a device -----------------===//
#include "runtime/train/EntryRunner.h"
#include "runtime/plan/DType.h"

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

double loadElement(const void *data, plan::DType dtype, uint64_t index) {
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

/// 0: all finite, 1: an infinity, 2: a NaN.
int worstOf(const void *data, plan::DType dtype, uint64_t count) {
  if (dtype != plan::F32 && dtype != plan::F64)
    return 0;
  int worst = 0;
  for (uint64_t i = 0; i < count && worst < 2; ++i) {
    double value = loadElement(data, dtype, i);
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

EntryRunner::EntryRunner(Device &device, const plan::Entry &entry)
    : device(&device), program(&entry), name(entry.name()) {
  for (const plan::Port &port : entry.inputs())
    inputBuffers.push_back(device.bufferData(name, port.buffer()));
  for (const plan::Port &port : entry.outputs())
    outputBuffers.push_back(device.bufferData(name, port.buffer()));
  if (entry.scalars() >= 0)
    if (void *data = device.bufferData(name, static_cast<uint32_t>(entry.scalars())))
      scalarBlock = {static_cast<float *>(data), entry.buffers(entry.scalars()).bytes() / sizeof(float)};
  if (entry.has_counters())
    counters = static_cast<uint32_t *>(device.bufferData(name, static_cast<uint32_t>(entry.counters())));
  device.touch(name);
}

/// Before each run: the buffer lies in memory that other values use again.
void EntryRunner::fillCounters() {
  if (!counters)
    return;
  counters[0] = static_cast<uint32_t>(seed);
  counters[1] = static_cast<uint32_t>(seed >> 32);
  counters[2] = static_cast<uint32_t>(update);
  counters[3] = static_cast<uint32_t>(microBatch);
}

int EntryRunner::outputIndex(const std::string &output) const {
  for (int i = 0; i < program->outputs_size(); ++i)
    if (program->outputs(i).name() == output)
      return i;
  return -1;
}

double EntryRunner::scalarOutput(int index) const {
  if (index < 0)
    return 0;
  const void *data = outputBuffers[static_cast<size_t>(index)];
  const plan::TensorType &type = program->buffers(static_cast<int>(program->outputs(index).buffer())).type();
  return data && plan::elementCount(type).value_or(0) > 0 ? loadElement(data, type.dtype(), 0)
                                                          : std::numeric_limits<double>::quiet_NaN();
}

std::span<const std::byte> EntryRunner::outputBytes(int index) const {
  const void *data = outputBuffers[static_cast<size_t>(index)];
  const plan::TensorType &type = program->buffers(static_cast<int>(program->outputs(index).buffer())).type();
  return {static_cast<const std::byte *>(data), data ? plan::tensorBytes(type).value_or(0) : 0};
}

std::string EntryRunner::findNonFinite() {
  std::string firstNan, firstInfinity;
  fillCounters();
  plan::Status status = device->runObserved(name, [&](uint32_t index) {
    if (!firstNan.empty())
      return;
    const plan::Instruction &instruction = program->instructions(static_cast<int>(index));
    for (const plan::Operand &operand : instruction.operands()) {
      const plan::Buffer &buffer = program->buffers(static_cast<int>(operand.buffer()));
      const void *data = operand.write() ? device->bufferData(name, operand.buffer()) : nullptr;
      int worst = data ? worstOf(data, buffer.type().dtype(), plan::elementCount(buffer.type()).value_or(0)) : 0;
      std::string node = !instruction.node().empty() ? instruction.node() : buffer.name();
      if (worst == 2)
        firstNan = node;
      else if (worst == 1 && firstInfinity.empty())
        firstInfinity = node;
    }
  });
  if (!status.ok())
    return "";
  return firstNan.empty() ? firstInfinity : firstNan;
}
