//===- Device.cpp - checks of arguments, common to all devices -----------===//
#include "runtime/Device.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Verifier.h"
#include "support/Advice.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <vector>

using namespace tcc;
using namespace tcc::runtime;

Status tcc::runtime::checkPlan(const plan::PlanReader &reader, bool keepsOnHost) {
  const plan::Plan &plan = reader.plan();
  if (!plan.targets().empty())
    return error("{}: the plan is for {} targets, of which none was selected", reader.path(), plan.targets_size());
  if (!plan.variants().empty())
    return error("{}: the plan has {} variants, of which none was selected", reader.path(), plan.variants_size());
  std::vector<std::string> problems = plan::verifyPlan(plan, 5);
  if (problems.empty() && plan.spaces_size() > plan::TRANSIENT + 1 && !keepsOnHost)
    return error("{}: the plan keeps memory of a card on the host, and {} has no memory of its own", reader.path(),
                 plan.target());
  return problems.empty() ? Status()
                          : error("{}: the plan is not safe to run:\n  {}", reader.path(), fmt::join(problems, "\n  "));
}

Device::Device(std::shared_ptr<const plan::Plan> plan) : shared(std::move(plan)) {
  for (const plan::Variable &variable : shared->variables())
    variableBytes.push_back(plan::tensorBytes(variable.type()).value_or(0));
  for (const plan::Entry &entry : shared->entries()) {
    std::vector<uint64_t> &bytes = bufferBytes.emplace_back();
    for (const plan::Buffer &buffer : entry.buffers())
      bytes.push_back(plan::tensorBytes(buffer.type()).value_or(0));
  }
}

std::string Device::textOf(Place place) const {
  if (!place.entry)
    return fmt::format("variable {} ('{}')", place.index, shared->variables(static_cast<int>(place.index)).name());
  return fmt::format("entry '{}', buffer {} ('{}')", shared->entries(static_cast<int>(*place.entry)).name(),
                     place.index, bufferAt(place).name());
}

Expected<uint32_t> Device::findEntry(const std::string &name) const {
  for (int i = 0; i < shared->entries_size(); ++i)
    if (shared->entries(i).name() == name)
      return static_cast<uint32_t>(i);
  return error("the plan has no entry '{}'; compile it with {}", name, advice::compile("entry"));
}

Status Device::checkEntry(uint32_t entry) const {
  if (entry < static_cast<uint32_t>(shared->entries_size()))
    return Status();
  return error("entry {}: the plan has {}, counted from 0", entry, shared->entries_size());
}

const uint64_t *Device::sizeOf(Place place) const {
  if (place.entry && *place.entry >= bufferBytes.size())
    return nullptr;
  const std::vector<uint64_t> &sizes = place.entry ? bufferBytes[*place.entry] : variableBytes;
  return place.index < sizes.size() ? &sizes[place.index] : nullptr;
}

Status Device::unknown(Place place) const {
  if (!place.entry)
    return error("variable {}: the plan has {}, counted from 0", place.index, variableBytes.size());
  if (Status status = checkEntry(*place.entry); !status.ok())
    return status;
  return error("entry '{}', buffer {}: the entry has {}, counted from 0",
               shared->entries(static_cast<int>(*place.entry)).name(), place.index, bufferBytes[*place.entry].size());
}

Expected<uint64_t> Device::bytesOf(Place place) const {
  const uint64_t *size = sizeOf(place);
  return size ? Expected<uint64_t>(*size) : unknown(place);
}

Status Device::checkRange(Place place, uint64_t offset, uint64_t bytes, const char *what) const {
  const uint64_t *size = sizeOf(place);
  if (!size)
    return unknown(place);
  if (offset <= *size && bytes <= *size - offset)
    return Status();
  return error("{}: cannot {} {} bytes at offset {}: it has {}", textOf(place), what, bytes, offset, *size);
}

void Device::announce(Place place) const {
  if (!guard)
    return;
  const int variable = place.entry ? bufferAt(place).variable() : static_cast<int>(place.index);
  if (variable >= 0)
    guard->beforeWrite(static_cast<uint32_t>(variable));
}

Status Device::read(Place place, uint64_t offset, std::span<std::byte> to) {
  Status status = checkRange(place, offset, to.size(), "read");
  return !status.ok() || to.empty() ? status : readBytes(place, offset, to);
}

Status Device::readPieces(Place place, const ByteSink &sink) {
  const uint64_t *size = sizeOf(place);
  if (!size)
    return unknown(place);
  return *size == 0 ? Status() : readAll(place, *size, sink);
}

Status Device::readAll(Place place, uint64_t bytes, const ByteSink &sink) {
  constexpr uint64_t kPieceBytes = uint64_t(1) << 20;
  std::vector<std::byte> piece(std::min(bytes, kPieceBytes));
  for (uint64_t done = 0; done < bytes;) {
    std::span<std::byte> part = std::span(piece).first(std::min<uint64_t>(bytes - done, piece.size()));
    Status status = readBytes(place, done, part);
    if (status.ok())
      status = sink(part);
    if (!status.ok())
      return status;
    done += part.size();
  }
  return Status();
}

Status Device::write(Place place, uint64_t offset, std::span<const std::byte> from) {
  Status status = checkRange(place, offset, from.size(), "write");
  if (!status.ok() || from.empty())
    return status;
  announce(place);
  return writeBytes(place, offset, from);
}

Expected<Staging> Device::stage(Place place) {
  const uint64_t *size = sizeOf(place);
  if (!size)
    return unknown(place);
  if (*size == 0)
    return Staging{place, {}};
  announce(place);
  Expected<std::span<std::byte>> memory = stageBytes(place, *size);
  return memory ? Expected<Staging>(Staging{place, *memory}) : memory.status();
}

Status Device::commit(const Staging &staging) { return staging.bytes.empty() ? Status() : commitBytes(staging); }

Status Device::fill(Place place, std::byte value) {
  const uint64_t *size = sizeOf(place);
  if (!size)
    return unknown(place);
  if (*size == 0)
    return Status();
  announce(place);
  return fillBytes(place, *size, value);
}

Status Device::copy(Place from, Place to) {
  const uint64_t *given = sizeOf(from), *taken = sizeOf(to);
  if (!given || !taken)
    return unknown(given ? to : from);
  if (*given != *taken)
    return error("cannot copy {} of {} bytes to {} of {}", textOf(from), *given, textOf(to), *taken);
  if (*given == 0)
    return Status();
  announce(to);
  return copyBytes(from, to, *given);
}

Status Device::readNumber(uint32_t entry, uint32_t buffer, unsigned ago, std::span<std::byte> to) {
  Status status = checkRange(Place::buffer(entry, buffer), 0, to.size(), "read");
  return !status.ok() || to.empty() ? status : numberBytes(entry, buffer, ago, to);
}

Status Device::numberBytes(uint32_t entry, uint32_t buffer, unsigned ago, std::span<std::byte> to) {
  if (ago != 0)
    return error("internal error: device '{}' keeps no numbers of earlier runs", capabilities().name);
  return readBytes(Place::buffer(entry, buffer), 0, to);
}

Status Device::copyOut(std::span<const StateCopy> copies) {
  for (const StateCopy &one : copies)
    if (Status status = checkRange(Place::variable(one.variable), 0, one.to.size(), "copy"); !status.ok())
      return status;
  return copyOutBytes(copies);
}

Expected<std::shared_ptr<std::byte>> Device::hostMemory(uint64_t) {
  return error("internal error: device '{}' copies no state by itself", capabilities().name);
}

Status Device::copyOutBytes(std::span<const StateCopy>) { return hostMemory(0).status(); }
Status Device::waitForCopy(size_t) { return hostMemory(0).status(); }

Event Device::record() {
  recordEvent(++recorded);
  return {recorded};
}

Status Device::wait(Event event) {
  if (event.number == 0 || event.number > recorded)
    return error("event {}: the device recorded {}, counted from 1", event.number, recorded);
  return waitForEvent(event.number);
}

Status Device::touch(uint32_t entry) {
  Status status = checkEntry(entry);
  if (status.ok())
    touchEntry(entry);
  return status;
}

Status Device::run(uint32_t entry) {
  Status status = checkEntry(entry);
  return status.ok() ? runEntry(entry) : status;
}

Status Device::runObserved(uint32_t entry, const InstructionObserver &after) {
  Status status = checkEntry(entry);
  return status.ok() ? observeEntry(entry, after) : status;
}

Status Device::runTimed(uint32_t entry, const LaunchObserver &after) {
  Status status = checkEntry(entry);
  return status.ok() ? timeEntry(entry, after) : status;
}

Status Device::timeEntry(uint32_t entry, const LaunchObserver &after) {
  return observeEntry(entry, [&](uint32_t instruction) {
    LaunchPart whole{instruction, 1};
    after({&whole, 1});
  });
}
