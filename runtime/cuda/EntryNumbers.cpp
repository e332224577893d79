//===- EntryNumbers.cpp - copies of an entry's numbers to the host -------===//
#include "runtime/cuda/EntryNumbers.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/StateWrites.h"

#include <algorithm>
#include <cstring>

namespace tcc::cuda {

namespace {
bool writes(const plan::Instruction &instruction, uint32_t buffer) {
  return std::any_of(instruction.operands().begin(), instruction.operands().end(),
                     [&](const plan::Operand &operand) { return operand.write() && operand.buffer() == buffer; });
}

/// The number of instructions up to the last one that writes the buffer; 0: none does.
size_t endOfWrites(const plan::Entry &entry, uint32_t buffer) {
  for (int i = entry.instructions_size(); i > 0; --i)
    if (writes(entry.instructions(i - 1), buffer))
      return static_cast<size_t>(i);
  return 0;
}
/// True if the instruction reads no memory, so it writes the same bytes each time.
bool readsNothing(const plan::Instruction &instruction) {
  return (instruction.has_kernel() || instruction.has_fill()) &&
         std::none_of(instruction.operands().begin(), instruction.operands().end(),
                      [](const plan::Operand &operand) { return operand.read(); });
}

/// True if all instructions that write the buffer read nothing.
bool isFixed(const plan::Entry &entry, uint32_t buffer) {
  return std::all_of(entry.instructions().begin(), entry.instructions().end(),
                     [&](const plan::Instruction &one) { return !writes(one, buffer) || readsNothing(one); });
}
} // namespace

Expected<std::unique_ptr<EntryNumbers>> EntryNumbers::open(const DriverLibrary &driver, const plan::Plan &plan,
                                                           const plan::Entry &entry, const AddressOf &addressOf) {
  std::unique_ptr<EntryNumbers> made(new EntryNumbers(driver));
  const auto all = static_cast<size_t>(entry.instructions_size());
  size_t changes = 0;
  while (changes < all && !plan::changesWeights(plan, entry, entry.instructions(static_cast<int>(changes))))
    ++changes;
  for (const plan::Port &port : entry.outputs()) {
    const plan::Buffer &buffer = entry.buffers(static_cast<int>(port.buffer()));
    const uint64_t bytes = plan::tensorBytes(buffer.type()).value_or(0);
    if (plan::elementCount(buffer.type()) != 1u || bytes > kSlotBytes || made->has(port.buffer()))
      continue;
    const size_t end = endOfWrites(entry, port.buffer());
    const bool early = end != 0 && end <= changes && end < all;
    made->numbers.push_back(
        {port.buffer(), addressOf(buffer), bytes, early, end != 0 && isFixed(entry, port.buffer())});
    if (early)
      made->early = std::max(made->early, end);
  }
  if (made->numbers.empty())
    return std::unique_ptr<EntryNumbers>();
  Expected<PinnedMemory> memory = PinnedMemory::allocate(driver, kRuns * made->numbers.size() * kSlotBytes);
  if (!memory)
    return memory.status();
  made->memory.emplace(memory.take());
  for (api::CUevent *event :
       {&made->earlyThere[0], &made->earlyThere[1], &made->allThere[0], &made->allThere[1], &made->final})
    if (Status status = driver.makeEvent(*event); !status.ok())
      return status;
  return made;
}

EntryNumbers::~EntryNumbers() {
  for (api::CUevent event : {earlyThere[0], earlyThere[1], allThere[0], allThere[1], final})
    if (event)
      (void)driver->eventDestroy(event);
}

EntryNumbers::Number *EntryNumbers::find(uint32_t buffer) {
  auto found = std::find_if(numbers.begin(), numbers.end(), [&](const Number &one) { return one.buffer == buffer; });
  return found == numbers.end() ? nullptr : &*found;
}

Status EntryNumbers::copy(bool ofEarly, api::CUstream stream) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i].early == ofEarly && !numbers[i].known)
      if (Status status =
              driver.check(driver->memcpyDtoHAsync(slot(runs, i), numbers[i].address, numbers[i].bytes, stream),
                           "copying a number from the card");
          !status.ok())
        return status;
  return driver.check(driver->eventRecord((ofEarly ? earlyThere : allThere)[runs % kRuns], stream),
                      "recording an event");
}

Status EntryNumbers::copyEarly(api::CUstream stream, api::CUstream side) {
  Status status = driver.check(driver->eventRecord(final, stream), "recording an event");
  if (status.ok())
    status = driver.check(driver->streamWaitEvent(side, final, 0), "ordering two streams");
  return status.ok() ? copy(true, side) : status;
}

Status EntryNumbers::copyOthers(api::CUstream stream) {
  // Order later work of the stream after the copies of the early numbers, which finished long ago.
  Status status =
      early == 0 ? Status()
                 : driver.check(driver->streamWaitEvent(stream, earlyThere[runs % kRuns], 0), "ordering two streams");
  return status.ok() ? copy(false, stream) : status;
}

Status EntryNumbers::read(uint32_t buffer, unsigned ago, std::span<std::byte> to, bool &atEnd) {
  Number *number = find(buffer);
  if (!number || ago >= std::min<uint64_t>(runs, kRuns) || to.size() > number->bytes)
    return error("internal error: no number of the run {} before the latest is kept", ago);
  const uint64_t run = runs - ago;
  if (number->known) {
    std::memcpy(to.data(), number->value.data(), to.size());
    return Status();
  }
  Status status = driver.wait((number->early ? earlyThere : allThere)[run % kRuns], "waiting for the card");
  const std::byte *at = slot(run, static_cast<size_t>(number - numbers.data()));
  if (status.ok()) {
    std::memcpy(to.data(), at, to.size());
    std::memcpy(number->value.data(), at, number->bytes);
    number->known = number->fixed;
  }
  atEnd = !number->early && ago == 0;
  return status;
}

} // namespace tcc::cuda
