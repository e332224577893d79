//===- CudaDevice.cpp - running plans on an NVIDIA card -----------------===//
//
// One allocation on the card has the resident arena and behind it the transient one. All work goes to one stream. When
// the device is created every entry's instructions are captured into a graph, with all addresses and grids in it:
// running an entry launches that graph. What changes from step to step (inputs, scalars, counters) lies in buffers.
//
// The host reaches the card's memory by copies through page-locked memory. Reads and small writes share two pieces in
// turn; inputs have two stagings each, so that one is filled while the card copies from the other.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/CudaDevice.h"
#include "runtime/InitialValues.h"
#include "runtime/cuda/Card.h"
#include "runtime/cuda/Libraries.h"
#include "runtime/cuda/PinnedMemory.h"
#include "runtime/cuda/Step.h"
#include "runtime/cuda/TimedEvents.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Verifier.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/ranges.h>
#include <map>

namespace tcc::runtime {

using cuda::DriverLibrary;
using cuda::PinnedMemory;
using cuda::Step;
namespace api = cuda::api;

namespace {

std::string inGiB(uint64_t bytes) { return fmt::format("{:.2f} GiB ({} bytes)", static_cast<double>(bytes) / 0x1p30, bytes); }

/// A call of the driver that failed for want of memory, with a way out.
constexpr const char *kLessMemory = "compile with a smaller tcc --memory-budget, or free the card (nvidia-smi lists who uses it)";

/// What a buffer is staged in: one is filled while the card copies from the other.
struct StagingPair {
  std::vector<PinnedMemory> memory;
  size_t current = 0;
};

struct Program {
  const plan::Entry *entry = nullptr;
  std::vector<Step> steps;
  api::CUgraphExec graph = nullptr;
};

class CudaDevice final : public Device {
public:
  CudaDevice(std::shared_ptr<const plan::Plan> sharedPlan, DriverLibrary driver, cuda::PtxNeeds needs,
             const DeviceOptions &options)
      : Device(std::move(sharedPlan)), driver(std::move(driver)), needs(needs), recorded(options.recorded),
        tune(options.tune) {
    abilities.name = "cuda";
    abilities.memory = DeviceMemory::Separate;
    abilities.asynchronous = true;
    abilities.choosesAlgorithms = true;
  }

  ~CudaDevice() override {
    if (!card || !card->select().ok())
      return;
    if (stream)
      (void)driver->streamSynchronize(stream);
    stagings.clear();
    pieces.clear();
    for (Program &program : programs)
      if (program.graph)
        (void)driver->graphExecDestroy(program.graph);
    programs.clear();
    libraries.reset();
    for (api::CUevent event : events)
      if (event)
        (void)driver->eventDestroy(event);
    for (api::CUmodule module : modules)
      (void)driver->moduleUnload(module);
    if (arena)
      (void)driver->memFree(arena);
    if (stream)
      (void)driver->streamDestroy(stream);
  }

  Status load(const plan::PlanReader &reader, bool withValues) {
    if (Status status = openCard(); !status.ok())
      return status;
    Expected<uint64_t> before = card->freeBytes();
    if (!before)
      return before.status();
    if (Status status = allocate(*before); !status.ok())
      return status;
    if (Status status = check(driver->streamCreate(&stream, api::CU_STREAM_NON_BLOCKING), "making a stream");
        !status.ok())
      return status;
    for (api::CUevent &event : events)
      if (Status status = check(driver->eventCreate(&event, api::CU_EVENT_DISABLE_TIMING), "making an event");
          !status.ok())
        return status;
    for (int i = 0; i < plan().code_objects_size(); ++i)
      if (Status status = loadCode(reader, i); !status.ok())
        return status.withContext(fmt::format("code object {}", i));
    libraries.emplace(driver, stream, fmt::format("{}, {} processors", card->name(), card->processors()), recorded,
                      tune);
    if (Status status = libraries->compare(plan()); !status.ok())
      return status;
    for (const plan::Entry &entry : plan().entries())
      programs.push_back({&entry, {}, nullptr});
    for (Program &program : programs)
      if (Status status = prepare(program); !status.ok())
        return status.withContext(fmt::format("entry '{}'", program.entry->name()));
    for (int i = 0; i < 2; ++i) {
      Expected<PinnedMemory> piece = PinnedMemory::allocate(driver, kPieceBytes);
      if (!piece)
        return piece.status();
      pieces.push_back(piece.take());
    }
    if (Expected<uint64_t> left = card->freeBytes(); left && *left + arenaBytes() < *before)
      libraryTook = *before - arenaBytes() - *left;
    Status status = withValues ? loadValues(reader) : Status();
    reader.releasePages();
    return status;
  }

  const DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t residentBytes() const override { return plan::spaceBytes(plan(), plan::RESIDENT); }
  uint64_t transientBytes() const override { return plan::transientBytes(plan(), plan().max_workers()); }
  uint64_t libraryBytes() const override { return libraryTook; }
  Algorithms algorithms() const override { return libraries ? libraries->taken() : Algorithms(); }

protected:
  Status readBytes(Place place, uint64_t offset, std::span<std::byte> to) override {
    return readInPieces(place, offset, to.size(), [&](uint64_t done, std::span<const std::byte> piece) {
      std::memcpy(to.data() + done, piece.data(), piece.size());
      return Status();
    });
  }

  Status readAll(Place place, uint64_t bytes, const ByteSink &sink) override {
    return readInPieces(place, 0, bytes, [&](uint64_t, std::span<const std::byte> piece) { return sink(piece); });
  }

  Status writeBytes(Place place, uint64_t offset, std::span<const std::byte> from) override {
    if (Status status = card->select(); !status.ok())
      return status;
    for (uint64_t done = 0; done < from.size();) {
      size_t count = std::min<uint64_t>(kPieceBytes, from.size() - done);
      Expected<PinnedMemory *> piece = freePiece();
      if (!piece)
        return piece.status();
      std::memcpy((*piece)->data(), from.data() + done, count);
      if (Status status = copyIn(address(place) + offset + done, **piece, count); !status.ok())
        return status;
      done += count;
    }
    return Status();
  }

  Expected<std::span<std::byte>> stageBytes(Place place, uint64_t bytes) override {
    if (Status status = card->select(); !status.ok())
      return status;
    StagingPair &pair = stagings[keyOf(place)];
    const size_t most = place.entry ? 2 : 1;
    pair.current = pair.memory.empty() ? 0 : (pair.current + 1) % most;
    if (pair.current == pair.memory.size()) {
      Expected<PinnedMemory> made = PinnedMemory::allocate(driver, bytes);
      if (!made)
        return made.status();
      pair.memory.push_back(made.take());
    }
    PinnedMemory &memory = pair.memory[pair.current];
    Status status = memory.waitUntilFree();
    return status.ok() ? Expected<std::span<std::byte>>(std::span(memory.data(), bytes)) : status;
  }

  Status commitBytes(const Staging &staging) override {
    auto found = stagings.find(keyOf(staging.place));
    if (found == stagings.end() || found->second.memory[found->second.current].data() != staging.bytes.data())
      return error("internal error: a commit without its stage");
    if (Status status = card->select(); !status.ok())
      return status;
    PinnedMemory &memory = found->second.memory[found->second.current];
    Status status = copyIn(address(staging.place), memory, staging.bytes.size());
    if (!staging.place.entry)
      stagings.erase(found); // waits for the copy
    return status;
  }

  Status fillBytes(Place place, uint64_t bytes, std::byte value) override {
    if (Status status = card->select(); !status.ok())
      return status;
    return check(driver->memsetD8Async(address(place), std::to_integer<unsigned char>(value), bytes, stream),
                 "filling memory");
  }

  Status copyBytes(Place from, Place to, uint64_t bytes) override {
    if (Status status = card->select(); !status.ok())
      return status;
    return check(driver->memcpyDtoDAsync(address(to), address(from), bytes, stream), "copying memory");
  }

  void recordEvent(uint64_t number) override {
    if (card->select().ok())
      recording = check(driver->eventRecord(events[number % kEvents], stream), "recording an event");
    latest = number;
  }

  /// An event whose place a later one has taken is done when that one is.
  Status waitForEvent(uint64_t number) override {
    if (Status status = card->select(); !status.ok())
      return status;
    if (!recording.ok())
      return recording;
    uint64_t known = number + kEvents > latest ? number : latest - kEvents + 1;
    return check(driver->eventSynchronize(events[known % kEvents]), "waiting for the card");
  }

  Status runEntry(uint32_t entry) override {
    const Program &program = programs[entry];
    if (!program.graph)
      return Status();
    if (Status status = card->select(); !status.ok())
      return status;
    return check(driver->graphLaunch(program.graph, stream), "launching a graph")
        .withContext(fmt::format("entry '{}'", program.entry->name()));
  }

  Status observeEntry(uint32_t entry, const InstructionObserver &after) override {
    const Program &program = programs[entry];
    if (Status status = card->select(); !status.ok())
      return status;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      Status status = cuda::submit(program.steps[i], driver, stream);
      if (status.ok())
        status = synchronize();
      if (!status.ok())
        return status.withContext(where(program, i));
      if (after)
        after(static_cast<uint32_t>(i));
    }
    return Status();
  }

  /// Submits everything, with a timed event after each instruction, so that the host's waits are in no instruction's
  /// time. A call for the entry as a whole: its instructions share the interval as the events divide it.
  Status timeEntry(uint32_t entry, const LaunchObserver &after) override {
    const Program &program = programs[entry];
    if (Status status = card->select(); !status.ok())
      return status;
    cuda::TimedEvents marks(driver);
    Status status = marks.record(stream);
    for (size_t i = 0; i < program.steps.size() && status.ok(); ++i) {
      status = cuda::submit(program.steps[i], driver, stream).withContext(where(program, i));
      if (status.ok())
        status = marks.record(stream);
    }
    if (Status done = synchronize(); status.ok())
      status = done;
    std::vector<LaunchPart> parts;
    for (size_t i = 0; i < program.steps.size() && status.ok(); ++i) {
      Expected<double> seconds = marks.secondsBetween(i, i + 1);
      if (!seconds)
        return seconds.status();
      parts.push_back({static_cast<uint32_t>(i), *seconds});
    }
    if (status.ok() && after && !parts.empty())
      after(parts);
    return status;
  }

private:
  static constexpr uint64_t kPieceBytes = uint64_t(4) << 20, kArenaAlignment = 256, kEvents = 64;

  Status check(api::CUresult result, const char *what) const { return driver.check(result, what); }
  Status synchronize() const { return check(driver->streamSynchronize(stream), "waiting for the card"); }

  /// Offset of the transient arena: the end of the resident one, rounded up to the driver's alignment.
  uint64_t transientStart() const {
    return (plan::spaceBytes(plan(), plan::RESIDENT) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  }
  uint64_t arenaBytes() const { return std::max(uint64_t(1), transientStart() + transientBytes()); }

  Status openCard() {
    Expected<cuda::Card> opened = cuda::Card::open(driver);
    if (!opened)
      return opened.status();
    card.emplace(opened.take());
    if (card->capability() < needs.capability)
      return error("{} has compute capability {}.{}, the plan is for {}; compile with tcc --target cuda:sm_{}",
                   card->name(), card->capability() / 10, card->capability() % 10, plan().target(),
                   card->capability());
    return Status();
  }

  Status allocate(uint64_t available) {
    if (arenaBytes() > available)
      return error("the plan takes {}, {} has {} free of {}; {}", inGiB(arenaBytes()), card->name(), inGiB(available),
                   inGiB(card->totalBytes()), kLessMemory);
    api::CUresult result = driver->memAlloc(&arena, arenaBytes());
    if (result == api::CUDA_ERROR_OUT_OF_MEMORY)
      return error("{} does not give the plan {} in one piece, though {} are free; {}", card->name(),
                   inGiB(arenaBytes()), inGiB(available), kLessMemory);
    return check(result, "allocating memory");
  }

  /// The driver compiles the text for its card.
  Status loadCode(const plan::PlanReader &reader, int index) {
    std::span<const std::byte> payload = reader.payload(plan().code_objects(index).payload());
    std::string text(reinterpret_cast<const char *>(payload.data()), payload.size()), log(8192, '\0');
    api::CUjit_option options[] = {api::CU_JIT_ERROR_LOG_BUFFER, api::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
    api::CUmodule module = nullptr;
    api::CUresult result = driver->moduleLoadDataEx(&module, text.c_str(), 2, options, values);
    if (result != api::CUDA_SUCCESS)
      return error("the CUDA driver (version {}) does not take the kernels: {}{}{}",
                   cuda::versionText(driver.version()), driver.textOf(result), log[0] ? ": " : "", log.c_str());
    modules.push_back(module);
    return Status();
  }

  Status prepare(Program &program) {
    for (int i = 0; i < program.entry->instructions_size(); ++i)
      if (Status status = resolve(program, program.entry->instructions(i)); !status.ok())
        return status.withContext(fmt::format("instruction {} (node '{}')", i, program.entry->instructions(i).node()));
    return capture(program);
  }

  Status resolve(Program &program, const plan::Instruction &instruction) {
    const plan::Entry &entry = *program.entry;
    Step step;
    step.source = &instruction;
    for (const plan::Operand &operand : instruction.operands())
      step.pointers.push_back(address(entry.buffers(static_cast<int>(operand.buffer()))) + operand.byte_offset());
    step.scratch = plan::hasScratch(instruction) ? arena + transientStart() + instruction.scratch_offset() : 0;
    switch (instruction.call_case()) {
    case plan::Instruction::kMatmul: {
      Expected<cuda::BlasProduct> product = libraries->product(
          instruction.matmul(), cuda::BlasOperands::of(instruction.matmul(), step.pointers, workspaceOf(step)));
      if (!product)
        return product.status();
      step.product = product.take();
      break;
    }
    case plan::Instruction::kConvolution: {
      const plan::ConvolutionCall &call = instruction.convolution();
      Expected<cuda::DnnConvolution> convolution =
          libraries->convolution(call, cuda::DnnOperands::of(call, step.pointers, workspaceOf(step)));
      if (!convolution)
        return convolution.status();
      step.convolution = convolution.take();
      break;
    }
    case plan::Instruction::kKernel:
      if (Status status = findKernel(instruction.kernel(), step); !status.ok())
        return status;
      break;
    case plan::Instruction::kCopy:
      step.bytes = plan::movedBytes(entry, instruction);
      break;
    case plan::Instruction::kFill: {
      plan::DType type = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      step.bytes = plan::movedBytes(entry, instruction);
      step.valueBytes = plan::dtypeBytes(type);
      plan::fillElements(step.value.data(), type, 1, instruction.fill().value());
      break;
    }
    default:
      return error("internal error: no call of this device passed the verifier");
    }
    program.steps.push_back(std::move(step));
    return Status();
  }

  /// Where a library's workspace begins in the scratch of its call.
  static api::CUdeviceptr workspaceOf(const Step &step) {
    constexpr uint64_t kStep = plan::kLibraryWorkspaceAlignment;
    return (step.scratch + kStep - 1) / kStep * kStep;
  }

  Status findKernel(const plan::KernelCall &call, Step &step) const {
    step.blocks = call.grid().blocks();
    step.threads = call.grid().threads();
    step.tiles = call.tiles();
    api::CUresult found = driver->moduleGetFunction(&step.kernel, modules[call.code()], call.symbol().c_str());
    if (found != api::CUDA_SUCCESS)
      return error("code object {} has no kernel '{}': {}; recompile the model with tcc", call.code(), call.symbol(),
                   driver.textOf(found));
    int most = 0;
    if (Status status =
            check(driver->funcGetAttribute(&most, api::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, step.kernel),
                  "asking for a kernel's threads");
        !status.ok())
      return status;
    if (step.threads > static_cast<unsigned>(most))
      return error("kernel '{}' runs with {} threads a block at most, the plan has {}; recompile the model with tcc",
                   call.symbol(), most, step.threads);
    return Status();
  }

  /// All instructions of an entry as one graph.
  Status capture(Program &program) {
    if (program.steps.empty())
      return Status();
    if (Status status = check(driver->streamBeginCapture(stream, api::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                              "beginning to capture a graph");
        !status.ok())
      return status;
    Status submitted;
    for (size_t i = 0; i < program.steps.size() && submitted.ok(); ++i)
      submitted = cuda::submit(program.steps[i], driver, stream).withContext(where(program, i));
    api::CUgraph graph = nullptr;
    Status ended = check(driver->streamEndCapture(stream, &graph), "capturing a graph");
    if (submitted.ok() && ended.ok())
      ended = check(driver->graphInstantiate(&program.graph, graph, 0), "making a graph");
    if (graph)
      (void)driver->graphDestroy(graph);
    return submitted.ok() ? ended : submitted;
  }

  Status loadValues(const plan::PlanReader &reader) {
    Expected<InitialValues> values = InitialValues::open(reader);
    if (!values)
      return values.status();
    if (Status status = check(driver->memsetD8Async(arena, 0, arenaBytes(), stream), "clearing memory"); !status.ok())
      return status;
    for (int i = 0; i < plan().variables_size(); ++i) {
      PinnedMemory *filled = nullptr;
      uint64_t at = 0, count = 0;
      auto submitFilled = [&] {
        return filled ? copyIn(arena + plan().variables(i).offset() + at, *filled, count) : Status();
      };
      Status status = values->read(i, kPieceBytes, [&](uint64_t offset, uint64_t bytes) -> Expected<std::byte *> {
        if (Status copied = submitFilled(); !copied.ok())
          return copied;
        filled = nullptr;
        Expected<PinnedMemory *> next = freePiece();
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

  /// One of the two pieces, in turn, once the copy that used it is done.
  Expected<PinnedMemory *> freePiece() {
    PinnedMemory &piece = pieces[nextPiece++ % pieces.size()];
    Status status = piece.waitUntilFree();
    return status.ok() ? Expected<PinnedMemory *>(&piece) : status;
  }

  /// Submits a copy of page-locked memory to the card.
  Status copyIn(api::CUdeviceptr to, PinnedMemory &from, size_t bytes) {
    Status status = check(driver->memcpyHtoDAsync(to, from.data(), bytes, stream), "copying to the card");
    return status.ok() ? from.used(stream) : status;
  }

  /// Copies pieces to the host in turn, so that one is handed over while the next is copied.
  template <typename Sink> Status readInPieces(Place place, uint64_t offset, uint64_t bytes, const Sink &sink) {
    if (Status status = card->select(); !status.ok())
      return status;
    PinnedMemory *waiting = nullptr;
    uint64_t waitingAt = 0, waitingBytes = 0;
    auto handOver = [&]() -> Status {
      if (!waiting)
        return Status();
      Status status = waiting->waitUntilFree();
      return status.ok() ? sink(waitingAt, std::span<const std::byte>(waiting->data(), waitingBytes)) : status;
    };
    for (uint64_t done = 0; done < bytes;) {
      size_t count = std::min<uint64_t>(kPieceBytes, bytes - done);
      Expected<PinnedMemory *> piece = freePiece();
      if (!piece)
        return piece.status();
      Status status = check(driver->memcpyDtoHAsync((*piece)->data(), address(place) + offset + done, count, stream),
                            "copying from the card");
      if (status.ok())
        status = (*piece)->used(stream);
      if (status.ok())
        status = handOver();
      if (!status.ok())
        return status;
      waiting = *piece;
      waitingAt = done;
      waitingBytes = count;
      done += count;
    }
    return handOver();
  }

  api::CUdeviceptr address(const plan::Buffer &buffer) const {
    return arena + (buffer.arena() == plan::RESIDENT ? 0 : transientStart()) + buffer.offset();
  }
  api::CUdeviceptr address(Place place) const {
    return place.entry ? address(bufferAt(place)) : arena + plan().variables(static_cast<int>(place.index)).offset();
  }

  using PlaceKey = std::pair<int64_t, uint32_t>;
  static PlaceKey keyOf(Place place) { return {place.entry ? int64_t(*place.entry) : -1, place.index}; }

  std::string where(const Program &program, size_t index) const {
    return fmt::format("entry '{}', instruction {} (node '{}')", program.entry->name(), index,
                       program.steps[index].source->node());
  }

  DriverLibrary driver;
  cuda::PtxNeeds needs;
  DeviceCapabilities abilities;
  std::optional<cuda::Card> card;
  api::CUdeviceptr arena = 0;
  api::CUstream stream = nullptr;
  std::array<api::CUevent, kEvents> events{}; ///< of recorded numbers, in turn
  uint64_t latest = 0;
  Status recording; ///< of the latest event
  std::vector<api::CUmodule> modules; ///< by code object
  Algorithms recorded; ///< of the run that goes on
  bool tune;
  std::optional<cuda::Libraries> libraries;
  std::vector<Program> programs; ///< by entry
  std::vector<PinnedMemory> pieces;
  size_t nextPiece = 0;
  std::map<PlaceKey, StagingPair> stagings;
  uint64_t libraryTook = 0;
};

} // namespace

Expected<uint32_t> rankCudaTarget(const std::string &target) {
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return driver.status();
  Expected<cuda::Card> card = cuda::Card::open(*driver);
  if (!card)
    return card.status();
  const int wanted = cuda::capabilityOf(target.substr(target.find(':') + 1));
  if (wanted == 0 || card->capability() < wanted)
    return error("{} has compute capability {}.{}, which does not run code for {}; compile with tcc --target cuda:sm_{}",
                 card->name(), card->capability() / 10, card->capability() % 10, target, card->capability());
  return static_cast<uint32_t>(wanted);
}

Expected<std::unique_ptr<Device>> createCudaDevice(const plan::PlanReader &reader, const DeviceOptions &options) {
  const plan::Plan &plan = reader.plan();
  if (Status status = checkPlan(reader); !status.ok())
    return status;
  if (!plan::hasFixedSlots(plan))
    return error("{}: the plan is for {}; compile the model with tcc --target cuda:sm_90, or the card's architecture",
                 reader.path(), plan.target());
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return driver.status().withContext("--device cuda");
  cuda::PtxNeeds needs;
  for (const plan::CodeObject &object : plan.code_objects()) {
    std::span<const std::byte> code = reader.payload(object.payload());
    Expected<cuda::PtxNeeds> own = cuda::needsOf({reinterpret_cast<const char *>(code.data()), code.size()});
    if (!own)
      return own.status().withContext(reader.path());
    needs = {std::max(needs.version, own->version), std::max(needs.capability, own->capability)};
  }
  if (int least = cuda::driverFor(needs.version); needs.version && driver->version() < least)
    return error("{}: its kernels are PTX {}.{}, for which the driver must be of CUDA {} or later; this one is of CUDA "
                 "{}: update it, or compile for an older architecture",
                 reader.path(), needs.version / 10, needs.version % 10, cuda::versionText(least),
                 cuda::versionText(driver->version()));
  auto device = std::make_unique<CudaDevice>(reader.sharedPlan(), driver.take(), needs, options);
  if (Status status = device->load(reader, options.initialValues); !status.ok())
    return status.withContext(reader.path());
  return std::unique_ptr<Device>(std::move(device));
}

} // namespace tcc::runtime
