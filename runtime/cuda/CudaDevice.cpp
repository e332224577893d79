//===- CudaDevice.cpp - running plans on an NVIDIA card -----------------===//
//
// One allocation on the card holds the resident arena followed by the transient one; page-locked memory holds what the
// plan keeps on the host, in the same order. All work goes to one stream. When
// the device is created, every entry's instructions are captured into graphs, with all addresses and grids; running an
// entry launches these (CapturedEntry.h). Values that change from step to step (inputs, scalars, counters) are in
// buffers. Concurrently with that stream run collectives with other ranks and transfers between card and host, in the
// graphs (CapturedEntry.h), copies of numbers to the host (EntryNumbers.h), and copies of the state for checkpoints
// (StateCopyStream.h).
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/CudaDevice.h"
#include "runtime/InitialValues.h"
#include "runtime/cuda/CapturedEntry.h"
#include "runtime/cuda/Card.h"
#include "runtime/cuda/CardRanks.h"
#include "runtime/cuda/HostCopies.h"
#include "runtime/cuda/Libraries.h"
#include "runtime/cuda/Modules.h"
#include "runtime/plan/CallKernels.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/ProductSlices.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Verifier.h"
#include "support/Advice.h"
#include "support/MachineMemory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/ranges.h>
#include <map>

namespace tcc::runtime {

using cuda::DriverLibrary;
using cuda::HostCopies;
using cuda::PinnedMemory;
using cuda::Step;
using Program = cuda::CapturedEntry;
namespace api = cuda::api;

namespace {
/// Points of a stream, in order. The card records its time when it reaches a point, with a resolution of about half a
/// microsecond (CUDA Driver API, event management).
class TimedEvents {
public:
  explicit TimedEvents(const DriverLibrary &driver) : driver(driver) {}
  TimedEvents(const TimedEvents &) = delete;
  TimedEvents &operator=(const TimedEvents &) = delete;
  ~TimedEvents() {
    for (api::CUevent event : events)
      (void)driver->eventDestroy(event);
  }

  Status record(api::CUstream stream) {
    api::CUevent event = nullptr;
    if (Status status = driver.check(driver->eventCreate(&event, api::CU_EVENT_DEFAULT), "making an event");
        !status.ok())
      return status;
    events.push_back(event);
    return driver.check(driver->eventRecord(event, stream), "recording an event");
  }

  /// The time between two recorded points that the card has passed.
  Expected<double> secondsBetween(size_t first, size_t second) const {
    float milliseconds = 0;
    Status status = driver.check(driver->eventElapsedTime(&milliseconds, events[first], events[second]),
                                 "reading the card's clock");
    return status.ok() ? Expected<double>(milliseconds * 1e-3) : status;
  }

private:
  const DriverLibrary &driver;
  std::vector<api::CUevent> events;
};

std::string inGiB(uint64_t bytes) {
  return fmt::format("{:.2f} GiB ({} bytes)", static_cast<double>(bytes) / 0x1p30, bytes);
}

/// Advice for a driver call that failed for lack of memory.
std::string lessMemory() {
  return fmt::format("compile with a smaller {}, or free the card (nvidia-smi lists who uses it)",
                     advice::compile("memory-budget"));
}

/// To the start of a page.
constexpr uint64_t kPageBytes = 4096;

class CudaDevice final : public Device {
public:
  CudaDevice(std::shared_ptr<const plan::Plan> sharedPlan, DriverLibrary driver, cuda::PtxNeeds needs,
             const DeviceOptions &options)
      : Device(std::move(sharedPlan)), driver(std::move(driver)), needs(needs), recorded(options.recorded),
        tune(options.tune), stepByStep(options.stepByStep), rank(options.rank), localRank(options.localRank),
        job(options.ranks) {
    abilities.name = "cuda";
    abilities.memory = DeviceMemory::Separate;
    abilities.asynchronous = true;
    abilities.choosesAlgorithms = true;
    abilities.copiesState = true;
    abilities.keepsNumbers = !stepByStep; // graphs copy them
  }

  ~CudaDevice() override {
    if (!card || !card->select().ok())
      return;
    for (api::CUstream one : {streams.main, streams.numbers})
      if (one)
        (void)driver->streamSynchronize(one);
    copies.reset();
    stateCopies.reset();
    for (Program &program : programs)
      program.destroyGraphs(driver);
    programs.clear();
    libraries.reset();
    cards.reset(); // after the graphs
    for (api::CUevent event : events)
      if (event)
        (void)driver->eventDestroy(event);
    modules.reset();
    if (arena)
      (void)driver->memFree(arena);
    hostArena.reset();
    for (api::CUstream one : streams.all())
      if (one)
        (void)driver->streamDestroy(one);
  }

  Status load(const plan::PlanReader &reader, bool withValues) {
    if (Status status = openCard(); !status.ok())
      return status;
    Expected<uint64_t> before = card->freeBytes();
    if (!before)
      return before.status();
    std::vector<api::CUstream *> wanted = {&streams.main, &streams.numbers};
    if (hostArenaBytes() > 0)
      wanted.insert(wanted.end(), {&streams.stores, &streams.fetches});
    for (api::CUstream *one : wanted)
      if (Status status = check(driver->streamCreate(one, api::CU_STREAM_NON_BLOCKING), "making a stream");
          !status.ok())
        return status;
    for (api::CUevent &event : events)
      if (Status status = driver.makeEvent(event); !status.ok())
        return status;
    // Modules and libraries take memory of the card, too. Load them first: the arena's check then sees what is free.
    modules.emplace(driver);
    if (Status status = modules->load(reader, *card); !status.ok())
      return status;
    if (Status status = openLibraries(); !status.ok())
      return status;
    if (Status status = allocate(); !status.ok())
      return status;
    for (const plan::Entry &entry : plan().entries())
      programs.emplace_back(entry);
    if (Status status = joinRanks(reader); !status.ok())
      return status;
    for (auto stage : {&CudaDevice::resolveAll, &CudaDevice::connectRanks})
      if (Status status = (this->*stage)(); !status.ok())
        return status;
    for (Program &program : programs)
      if (Status status = program.capture(driver, plan(), streams, cards.get(),
                                          [this](const plan::Buffer &buffer) { return address(buffer); });
          !status.ok())
        return status;
    Expected<std::unique_ptr<HostCopies>> opened = HostCopies::open(driver, streams.main);
    if (!opened)
      return opened.status();
    copies = opened.take();
    if (Expected<uint64_t> left = card->freeBytes(); left && *left + arenaBytes() < *before)
      libraryTook = *before - arenaBytes() - *left;
    Status status = withValues ? loadValues(reader) : Status();
    reader.releasePages();
    return status;
  }

  const DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t residentBytes() const override { return plan::spaceBytes(plan(), plan::RESIDENT); }
  uint64_t transientBytes() const override { return plan::transientBytes(plan(), plan().max_workers()); }
  uint64_t hostBytes() const override { return hostArenaBytes(); }
  uint64_t libraryBytes() const override { return libraryTook; }
  CollectiveTimes collectiveTimes(uint32_t entry, uint32_t instruction) const override {
    const std::vector<CollectiveTimes> &times = programs[entry].times;
    return times.empty() ? CollectiveTimes() : times[instruction];
  }
  Expected<std::shared_ptr<std::byte>> hostMemory(uint64_t bytes) override {
    if (Status status = card->select(); !status.ok())
      return status;
    Expected<PinnedMemory> made = PinnedMemory::allocate(driver, bytes + kPageBytes);
    if (!made)
      return made.status();
    auto memory = std::make_shared<PinnedMemory>(made.take());
    const uint64_t start = -reinterpret_cast<uintptr_t>(memory->data()) % kPageBytes;
    return std::shared_ptr<std::byte>(memory, memory->data() + start);
  }
  Status waitForCopy(size_t index) override {
    Status status = card->select();
    return status.ok() ? stateCopies->wait(index) : status;
  }
  Algorithms algorithms() const override { return libraries ? libraries->taken() : Algorithms(); }
  bool usesKernels(const plan::Instruction &instruction) const override {
    return libraries && libraries->usesKernels(instruction);
  }

protected:
  Status readBytes(Place place, uint64_t offset, std::span<std::byte> to) override {
    std::byte *at = to.data();
    return readPieces(place, offset, to.size(), [&](std::span<const std::byte> piece) {
      std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
      return Status();
    });
  }

  Status readAll(Place place, uint64_t bytes, const ByteSink &sink) override {
    return readPieces(place, 0, bytes, sink);
  }

  Status writeBytes(Place place, uint64_t offset, std::span<const std::byte> from) override {
    Status status = beforeChange(place);
    if (!status.ok() || !isOnHost(place))
      return status.ok() ? copies->write(address(place) + offset, from) : status;
    if (status = synchronize(); status.ok())
      std::memcpy(onHost(place) + offset, from.data(), from.size());
    return status;
  }

  Expected<std::span<std::byte>> stageBytes(Place place, uint64_t bytes) override {
    if (Status status = card->select(); !status.ok())
      return status;
    return copies->stage(keyOf(place), bytes);
  }

  Status commitBytes(const Staging &staging) override {
    Status status = beforeChange(staging.place);
    if (!status.ok() || !isOnHost(staging.place))
      return status.ok() ? copies->commit(keyOf(staging.place), staging.bytes, address(staging.place)) : status;
    if (status = synchronize(); status.ok())
      std::memcpy(onHost(staging.place), staging.bytes.data(), staging.bytes.size());
    copies->forget(keyOf(staging.place));
    return status;
  }

  Status fillBytes(Place place, uint64_t bytes, std::byte value) override {
    if (Status status = beforeChange(place); !status.ok())
      return status;
    if (!isOnHost(place))
      return check(driver->memsetD8Async(address(place), std::to_integer<unsigned char>(value), bytes, streams.main),
                   "filling memory");
    Status status = synchronize();
    if (status.ok())
      std::memset(onHost(place), std::to_integer<int>(value), bytes);
    return status;
  }

  Status copyBytes(Place from, Place to, uint64_t bytes) override {
    if (Status status = beforeChange(to); !status.ok())
      return status;
    if (!isOnHost(from) && !isOnHost(to))
      return check(driver->memcpyDtoDAsync(address(to), address(from), bytes, streams.main), "copying memory");
    if (isOnHost(to) && isOnHost(from)) {
      Status status = synchronize();
      if (status.ok())
        std::memcpy(onHost(to), onHost(from), bytes);
      return status;
    }
    return isOnHost(to) ? check(driver->memcpyDtoHAsync(onHost(to), address(from), bytes, streams.main),
                                "storing memory on the host")
                        : check(driver->memcpyHtoDAsync(address(to), onHost(from), bytes, streams.main),
                                "fetching memory from the host");
  }

  void recordEvent(uint64_t number) override {
    recording = card->select();
    if (recording.ok())
      recording = check(driver->eventRecord(events[number % kEvents], streams.main), "recording an event");
    latest = number;
  }

  /// Waits for a later event if this one's slot has been reused: when that is done, so is this one.
  Status waitForEvent(uint64_t number) override {
    if (Status status = card->select(); !status.ok())
      return status;
    if (!recording.ok())
      return recording;
    uint64_t known = number + kEvents > latest ? number : latest - kEvents + 1;
    return settled(driver.wait(events[known % kEvents], "waiting for the card"));
  }

  Status runEntry(uint32_t entry) override {
    Program &program = programs[entry];
    if (program.steps.empty())
      return Status();
    // Else the graph would contain collectives with the other ranks.
    if (stepByStep || (program.collectives && cards && !together()))
      return observeEntry(entry, nullptr);
    Status status = card->select();
    if (program.collectives)
      joint = program.entry;
    if (status.ok() && program.collectives)
      status = beginTogether();
    if (status.ok())
      status = program.launch(driver, streams, stateCopies.get());
    return status.withContext(fmt::format("entry '{}'", program.entry->name()));
  }

  Status numberBytes(uint32_t entry, uint32_t buffer, unsigned ago, std::span<std::byte> to) override {
    cuda::EntryNumbers *numbers = programs[entry].latestNumbers();
    if (!numbers || !numbers->has(buffer))
      return Device::numberBytes(entry, buffer, ago, to);
    Status status = card->select();
    bool atEnd = false;
    if (status.ok())
      status = numbers->read(buffer, ago, to, atEnd);
    return atEnd ? finished(status) : settled(status);
  }

  Status copyOutBytes(std::span<const StateCopy> wanted) override {
    Status status = card->select();
    if (status.ok() && !stateCopies) {
      auto opened = cuda::StateCopyStream::open(driver, static_cast<size_t>(plan().variables_size()));
      if (!opened)
        return opened.status();
      stateCopies = opened.take();
    }
    std::vector<cuda::StateCopyStream::Item> items;
    for (const StateCopy &one : wanted)
      items.push_back(
          {one.variable, address(Place::variable(one.variable)), one.to, isOnHost(Place::variable(one.variable))});
    return status.ok() ? stateCopies->begin(streams.main, items) : status;
  }

  Status observeEntry(uint32_t entry, const InstructionObserver &after) override {
    Program &program = programs[entry];
    if (Status status = beforeSteps(program); !status.ok())
      return status;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      Status status = program.steps[i].collective && together() ? beginTogether() : Status();
      if (status.ok())
        status = cuda::submit(program.steps[i], driver, streams.main, together());
      if (status.ok())
        status = synchronize();
      if (!status.ok())
        return status.withContext(program.where(i));
      if (after)
        after(static_cast<uint32_t>(i));
    }
    return Status();
  }

  /// Submits everything, with a timed event after each instruction, so that no instruction's time includes waits of the
  /// host. Calls the observer once for the entry: its instructions share the interval as the events divide it.
  Status timeEntry(uint32_t entry, const LaunchObserver &after) override {
    Program &program = programs[entry];
    if (Status status = beforeSteps(program); !status.ok())
      return status;
    TimedEvents marks(driver);
    if (together())
      program.times.resize(program.steps.size());
    Status status = program.collectives && together() ? beginTogether() : Status();
    if (status.ok())
      status = marks.record(streams.main);
    for (size_t i = 0; i < program.steps.size() && status.ok(); ++i) {
      status = cuda::submit(program.steps[i], driver, streams.main, together()).withContext(program.where(i));
      if (status.ok())
        status = marks.record(streams.main);
    }
    if (Status done = synchronize(); status.ok())
      status = done;
    std::vector<LaunchPart> parts;
    for (size_t i = 0; i < program.steps.size() && status.ok(); ++i) {
      Expected<double> seconds = marks.secondsBetween(i, i + 1);
      if (!seconds)
        return seconds.status();
      parts.push_back({static_cast<uint32_t>(i), *seconds});
      if (program.steps[i].collective && together()) { // here nothing runs concurrently with it
        ++program.times[i].calls;
        program.times[i].seconds += *seconds;
        program.times[i].exposedSeconds += *seconds;
      }
    }
    if (status.ok() && after && !parts.empty())
      after(parts);
    return status;
  }

private:
  static constexpr uint64_t kArenaAlignment = 256, kEvents = 64;

  Status check(api::CUresult result, const char *what) const { return driver.check(result, what); }
  Status synchronize() const {
    return finished(check(driver->streamSynchronize(streams.main), "waiting for the card"));
  }

  /// Orders later changes of a place after pending copies of the state.
  Status beforeChange(Place place) {
    Status status = card->select();
    const int variable = place.entry ? bufferAt(place).variable() : static_cast<int>(place.index);
    if (!status.ok() || !stateCopies || variable < 0)
      return status;
    const auto changed = static_cast<uint32_t>(variable);
    return stateCopies->orderBefore(streams.main, {&changed, 1});
  }
  /// The same for everything that an entry may change, when it runs step by step.
  Status beforeSteps(Program &program) {
    program.runsBySteps();
    Status status = card->select();
    for (const plan::Buffer &buffer : program.entry->buffers())
      if (buffer.variable() >= 0 && status.ok())
        status = beforeChange(Place::variable(static_cast<uint32_t>(buffer.variable())));
    return status;
  }

  /// The ranks of collectives, or null.
  cuda::CardRanks *together() const { return ranks() ? cards.get() : nullptr; }
  Status beginTogether() const {
    if (!cards)
      return Status();
    cards->begin();
    return cards->failure();
  }
  /// The result of a wait: if the job has failed, collectives end early with invalid numbers.
  Status settled(const Status &waited) const {
    Status failed = cards ? cards->failure() : Status();
    return failed.ok() ? waited
                       : failed.withContext(joint ? fmt::format("entry '{}'", joint->name()) : "joining the ranks");
  }
  /// The same when no work is left.
  Status finished(const Status &waited) const {
    Status status = settled(waited);
    if (status.ok() && cards)
      cards->settle();
    return status;
  }

  /// Joins the cards of the job's ranks, if an entry needs them.
  Status joinRanks(const plan::PlanReader &reader) {
    for (Program &program : programs)
      program.collectives = std::any_of(program.entry->instructions().begin(), program.entry->instructions().end(),
                                        [](const plan::Instruction &one) { return one.has_collective(); });
    if (!job || job->size() == 1 ||
        std::none_of(programs.begin(), programs.end(), [](const Program &program) { return program.collectives; }))
      return Status();
    Expected<std::unique_ptr<cuda::CardRanks>> joined = cuda::CardRanks::join(
        *card, *job, fmt::format("{:016x} ({}, {})", reader.checksum(), reader.plan().model(), reader.plan().target()),
        cuda::Collective::groupsOf(plan().training().parallel(), job->rank(), job->size()));
    if (!joined)
      return joined.status();
    cards = joined.take();
    return check(driver->streamCreate(&streams.communication, api::CU_STREAM_NON_BLOCKING), "making a stream");
  }

  /// Offset of the transient arena: the end of the resident one, rounded up to the driver's alignment.
  uint64_t transientStart() const {
    return (plan::spaceBytes(plan(), plan::RESIDENT) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  uint64_t arenaBytes() const { return std::max(uint64_t(1), transientStart() + transientBytes()); }

  Status openCard() {
    Expected<cuda::Card> opened = cuda::Card::open(driver, localRank);
    if (!opened)
      return opened.status();
    card.emplace(opened.take());
    abilities.machine = card->name();
    if (!needs.runsOn(card->capability()))
      return error("{} has compute capability {}.{}, the plan is for {}; compile with {}", card->name(),
                   card->capability() / 10, card->capability() % 10, plan().target(),
                   advice::compile("target", fmt::format("cuda:sm_{}", card->capability())));
    return Status();
  }

  Status allocate() {
    Expected<uint64_t> left = card->freeBytes();
    if (!left)
      return left.status();
    const uint64_t available = *left;
    if (arenaBytes() > available)
      return error("the plan takes {}, {} has {} free of {}; {}", inGiB(arenaBytes()), card->name(), inGiB(available),
                   inGiB(card->totalBytes()), lessMemory());
    api::CUresult result = driver->memAlloc(&arena, arenaBytes());
    if (result == api::CUDA_ERROR_OUT_OF_MEMORY)
      return error("{} does not give the plan {} in one piece, though {} are free; {}", card->name(),
                   inGiB(arenaBytes()), inGiB(available), lessMemory());
    if (Status status = check(result, "allocating memory"); !status.ok() || hostArenaBytes() == 0)
      return status;
    const MemoryLimit free = freeMemory(/*swap=*/false);
    if (hostArenaBytes() > free.bytes)
      return error("the plan keeps {} in page-locked memory of the host, {} leaves {}; end other programs, or compile "
                   "with a smaller {}",
                   inGiB(hostArenaBytes()), free.what, inGiB(free.bytes), advice::compile("host-memory"));
    Expected<PinnedMemory> pinned = PinnedMemory::allocate(driver, hostArenaBytes());
    if (!pinned)
      return pinned.status();
    hostArena.emplace(pinned.take());
    return Status();
  }

  Status openLibraries() {
    libraries.emplace(driver, streams.main, fmt::format("{}, {} processors", card->name(), card->processors()),
                      recorded, tune);
    return libraries->open(plan());
  }

  /// Gives every instruction its addresses, kernel or algorithm. With other ranks: rank 0 chooses for all.
  Status resolveAll() {
    if (cards && rank != 0) {
      Expected<Algorithms> first = cards->share({});
      if (!first)
        return first.status();
      recorded = first.take();
      tune = false;
      if (Status status = openLibraries(); !status.ok())
        return status;
    }
    if (Status status = tryCalls(); !status.ok())
      return status;
    for (Program &program : programs)
      for (int i = 0; i < program.entry->instructions_size(); ++i)
        if (Status status = resolve(program, program.entry->instructions(i)); !status.ok())
          return status.withContext(fmt::format("entry '{}', instruction {} (node '{}')", program.entry->name(), i,
                                                program.entry->instructions(i).node()));
    return cards && rank == 0 ? cards->share(libraries->taken()).status() : Status();
  }

  /// Asks the libraries for an algorithm for each call that kernels may compute, before one of them is made: one choice
  /// holds for all calls of a part.
  Status tryCalls() {
    for (const Program &program : programs)
      for (const plan::Instruction &instruction : program.entry->instructions())
        if (plan::mayHaveKernels(instruction)) {
          const Step step = placed(*program.entry, instruction);
          if (Status status = libraries->tryCall(instruction, step.pointers, workspaceOf(step)); !status.ok())
            return status.withContext(fmt::format("entry '{}', node '{}'", program.entry->name(), instruction.node()));
        }
    return Status();
  }

  /// A call of a library.
  Status resolveCall(const plan::Instruction &instruction, cuda::Libraries::Pointers pointers, Step &step) {
    switch (instruction.call_case()) {
    case plan::Instruction::kMatmul:
      return take(step.product, libraries->product(instruction.matmul(), pointers, workspaceOf(step)));
    case plan::Instruction::kConvolution:
      return take(step.graph, libraries->convolution(instruction.convolution(), pointers, workspaceOf(step)));
    default:
      return take(step.graph, libraries->attention(instruction.attention(), pointers, workspaceOf(step)));
    }
  }

  /// A call that its kernels compute, or finish behind the plain one.
  Status resolveKernels(const plan::Instruction &instruction, Step &step) {
    libraries->recordKernels(instruction, step.pointers);
    auto addressOf = [&](int operand) {
      return operand == plan::kInScratch ? workspaceOf(step) : step.pointers[static_cast<size_t>(operand)];
    };
    auto [plain, operands] = plan::plainCallOf(instruction);
    if (!operands.empty()) {
      std::vector<cuda::api::CUdeviceptr> pointers;
      for (int operand : operands)
        pointers.push_back(addressOf(operand));
      if (Status status = resolveCall(plain, pointers, step); !status.ok())
        return status;
    }
    const std::vector<std::vector<int>> ofKernels = plan::callKernelOperands(instruction);
    for (size_t k = 0; k < ofKernels.size(); ++k) {
      Step one;
      one.source = step.source;
      for (int operand : ofKernels[k])
        one.pointers.push_back(addressOf(operand));
      if (Status status = modules->find(plan::kernelsOf(instruction).Get(static_cast<int>(k)), one); !status.ok())
        return status;
      step.kernels.push_back(std::move(one));
    }
    return Status();
  }

  /// An instruction with the addresses of its operands and scratch.
  Step placed(const plan::Entry &entry, const plan::Instruction &instruction) const {
    Step step;
    step.source = &instruction;
    for (const plan::Operand &operand : instruction.operands())
      step.pointers.push_back(address(entry.buffers(static_cast<int>(operand.buffer()))) + operand.byte_offset());
    step.scratch = plan::hasScratch(instruction) ? arena + transientStart() + instruction.scratch_offset() : 0;
    return step;
  }

  /// Runs collectives once, so that NCCL does not make its connections during a capture.
  Status connectRanks() {
    if (!cards)
      return Status();
    Status status = beginTogether();
    for (const Program &program : programs)
      if (status.ok())
        status = cuda::runCollectives(*program.entry, program.steps, driver, streams.main, *cards)
                     .withContext(fmt::format("entry '{}'", program.entry->name()));
    return status.ok() ? synchronize() : status;
  }

  Status resolve(Program &program, const plan::Instruction &instruction) {
    const plan::Entry &entry = *program.entry;
    Step step = placed(entry, instruction);
    Status status;
    switch (instruction.call_case()) {
    case plan::Instruction::kMatmul:
    case plan::Instruction::kConvolution:
    case plan::Instruction::kAttention:
      if (instruction.has_matmul() && plan::hasSlices(instruction.matmul()))
        status = take(step.slices, cuda::SlicedProduct::make(plan(), instruction.matmul(), step.pointers,
                                                             workspaceOf(step), *modules, *libraries));
      else
        status = libraries->usesKernels(instruction) ? resolveKernels(instruction, step)
                                                     : resolveCall(instruction, step.pointers, step);
      break;
    case plan::Instruction::kKernel:
      status = modules->find(instruction.kernel(), step);
      break;
    case plan::Instruction::kCopy:
      step.bytes = plan::movedBytes(entry, instruction);
      break;
    case plan::Instruction::kTransfer:
      step.bytes = plan::movedBytes(entry, instruction);
      step.store = plan::isOnHost(entry.buffers(static_cast<int>(instruction.operands(1).buffer())).arena());
      break;
    case plan::Instruction::kFill: {
      plan::DType type = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      step.bytes = plan::movedBytes(entry, instruction);
      step.valueBytes = plan::dtypeBytes(type);
      plan::fillElements(step.value.data(), type, 1, instruction.fill().value());
      break;
    }
    case plan::Instruction::kCollective:
      step.collective.emplace(entry, instruction, step.pointers, plan().training().parallel());
      break;
    default:
      return error("internal error: no call of this device passed the verifier");
    }
    if (status.ok())
      program.steps.push_back(std::move(step));
    return status;
  }

  /// The start of a library's workspace in the scratch of its call.
  static api::CUdeviceptr workspaceOf(const Step &step) {
    constexpr uint64_t kStep = plan::kLibraryWorkspaceAlignment;
    return (step.scratch + kStep - 1) / kStep * kStep;
  }

  Status loadValues(const plan::PlanReader &reader) {
    Expected<InitialValues> values = InitialValues::open(reader, rank);
    if (!values)
      return values.status();
    if (Status status = check(driver->memsetD8Async(arena, 0, arenaBytes(), streams.main), "clearing memory");
        !status.ok())
      return status;
    if (hostArena)
      std::memset(hostArena->data(), 0, hostArenaBytes());
    for (int i = 0; i < plan().variables_size(); ++i) {
      if (const Place place = Place::variable(static_cast<uint32_t>(i)); isOnHost(place)) {
        if (Status status = values->read(
                i, HostCopies::kPieceBytes,
                [&](uint64_t offset, uint64_t) -> Expected<std::byte *> { return onHost(place) + offset; });
            !status.ok())
          return status;
        continue;
      }
      PinnedMemory *filled = nullptr;
      uint64_t at = 0, count = 0;
      auto submitFilled = [&] {
        return filled ? copies->copyIn(arena + plan().variables(i).offset() + at, *filled, count) : Status();
      };
      Status status =
          values->read(i, HostCopies::kPieceBytes, [&](uint64_t offset, uint64_t bytes) -> Expected<std::byte *> {
            if (Status copied = submitFilled(); !copied.ok())
              return copied;
            filled = nullptr;
            Expected<PinnedMemory *> next = copies->freePiece();
            if (!next)
              return next.status();
            filled = *next;
            at = offset;
            count = bytes;
            return filled->data();
          });
      if (status.ok())
        status = submitFilled();
      if (!status.ok())
        return status;
    }
    return synchronize();
  }

  Status readPieces(Place place, uint64_t offset, uint64_t bytes, const ByteSink &sink) {
    Status status = card->select();
    if (status.ok() && isOnHost(place)) {
      status = bytes > 0 ? synchronize() : status;
      for (uint64_t done = 0; done < bytes && status.ok(); done += HostCopies::kPieceBytes)
        status = sink({onHost(place) + offset + done, std::min<uint64_t>(HostCopies::kPieceBytes, bytes - done)});
      return status;
    }
    if (status.ok())
      status =
          copies->read(address(place) + offset, bytes, sink, [this](const Status &waited) { return settled(waited); });
    return bytes > 0 ? finished(status) : status;
  }

  /// Offset of the host's transient arena in the page-locked memory.
  uint64_t hostTransientStart() const {
    return (plan::spaceBytes(plan(), plan::HOST_RESIDENT) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  uint64_t hostArenaBytes() const {
    return plan::hostBytes(plan()) == 0 ? 0 : hostTransientStart() + plan::spaceBytes(plan(), plan::HOST_TRANSIENT);
  }

  /// The address of memory on the card, or that of page-locked memory for what is on the host.
  api::CUdeviceptr address(plan::Arena space, uint64_t offset) const {
    const uint64_t start = plan::isOnHost(space) ? reinterpret_cast<uintptr_t>(hostArena->data()) : arena;
    return start + offset +
           (plan::holdsState(space) ? 0
            : plan::isOnHost(space) ? hostTransientStart()
                                    : transientStart());
  }
  api::CUdeviceptr address(const plan::Buffer &buffer) const { return address(buffer.arena(), buffer.offset()); }
  api::CUdeviceptr address(Place place) const {
    if (place.entry)
      return address(bufferAt(place));
    const plan::Variable &variable = plan().variables(static_cast<int>(place.index));
    return address(variable.arena(), variable.offset());
  }
  bool isOnHost(Place place) const {
    return plan::isOnHost(place.entry ? bufferAt(place).arena()
                                      : plan().variables(static_cast<int>(place.index)).arena());
  }
  std::byte *onHost(Place place) const { return reinterpret_cast<std::byte *>(address(place)); }

  static HostCopies::Key keyOf(Place place) { return {place.entry ? int64_t(*place.entry) : -1, place.index}; }

  DriverLibrary driver;
  cuda::PtxNeeds needs;
  DeviceCapabilities abilities;
  std::optional<cuda::Card> card;
  api::CUdeviceptr arena = 0;
  std::optional<PinnedMemory> hostArena; ///< where the plan keeps memory on the host
  cuda::EntryStreams streams;
  std::array<api::CUevent, kEvents> events{}; ///< of recorded numbers, in turn
  uint64_t latest = 0;
  Status recording; ///< of the latest event
  std::optional<cuda::Modules> modules;
  Algorithms recorded; ///< of the resumed run
  bool tune, stepByStep;
  uint32_t rank, localRank;
  const plan::Entry *joint = nullptr;     ///< the latest entry that ran with other ranks
  Communicator *job;                      ///< null: this process is the only rank
  std::unique_ptr<cuda::CardRanks> cards; ///< null: no entry needs other ranks
  std::optional<cuda::Libraries> libraries;
  std::vector<Program> programs; ///< by entry
  std::unique_ptr<HostCopies> copies;
  std::unique_ptr<cuda::StateCopyStream> stateCopies; ///< from the first copyOut on
  uint64_t libraryTook = 0;
};

} // namespace

Expected<std::unique_ptr<Device>> createCudaDevice(const plan::PlanReader &reader, const DeviceOptions &options) {
  const plan::Plan &plan = reader.plan();
  if (Status status = checkPlan(reader, /*keepsOnHost=*/true); !status.ok())
    return status;
  if (!plan::runsOnGrids(plan))
    return error("{}: the plan is for {}; compile the model with {}, or the card's architecture", reader.path(),
                 plan.target(), advice::compile("target", "cuda:sm_90"));
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return driver.status().withContext(advice::option("device", "cuda"));
  Expected<cuda::PtxNeeds> needs = cuda::needsOf(reader);
  if (!needs)
    return needs.status();
  if (int least = cuda::driverFor(needs->version); needs->version && driver->version() < least)
    return error("{}: its kernels are PTX {}.{}, for which the driver must be of CUDA {} or later; this one is of CUDA "
                 "{}: update it, or compile for an older architecture",
                 reader.path(), needs->version / 10, needs->version % 10, cuda::versionText(least),
                 cuda::versionText(driver->version()));
  auto device = std::make_unique<CudaDevice>(reader.sharedPlan(), driver.take(), *needs, options);
  if (Status status = device->load(reader, options.initialValues); !status.ok())
    return status.withContext(reader.path());
  return std::unique_ptr<Device>(std::move(device));
}

Expected<uint32_t> rankCudaTarget(const std::string &target) {
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return driver.status();
  Expected<cuda::Card> card = cuda::Card::open(*driver);
  if (!card)
    return card.status();
  const int wanted = cuda::capabilityOf(target.substr(target.find(':') + 1));
  if (wanted == 0 || card->capability() < wanted)
    return error("{} has compute capability {}.{}, which does not run code for {}; compile with {}", card->name(),
                 card->capability() / 10, card->capability() % 10, target,
                 advice::compile("target", fmt::format("cuda:sm_{}", card->capability())));
  return static_cast<uint32_t>(wanted);
}

} // namespace tcc::runtime
