//===- CpuDevice.cpp - running plans on this machine's cores -------------===//
//
// When the device is created, each instruction becomes a step with resolved addresses, tiles and function, and the
// tiles of all steps are grouped into launches (Launches.h). Running an entry walks the launches and allocates, looks
// up and locks nothing.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/CpuDevice.h"
#include "runtime/cpu/Arena.h"
#include "runtime/cpu/CallMaker.h"
#include "runtime/cpu/CodeObject.h"
#include "runtime/cpu/InitialValues.h"
#include "runtime/cpu/Launches.h"
#include "runtime/parallel/Background.h"
#include "runtime/parallel/CollectiveStep.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/StateWrites.h"
#include "runtime/plan/Verifier.h"
#include "support/Advice.h"
#include "support/MachineMemory.h"
#include "support/Processors.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <system_error>

namespace tcc::runtime {

namespace {
using Clock = std::chrono::steady_clock;

/// One resolved instruction.
struct Step {
  std::vector<void *> pointers;
  plan::KernelFunction kernel = nullptr; ///< with a library call: the kernel that reads its rows
  const LibraryCall *library = nullptr;
  int64_t kernelTiles = 0;
  char *scratch = nullptr;
  Scratch scratchShape;
  uint64_t bytes = 0;                   // of a copy or fill
  double value = 0;                     // of a fill
  plan::DType dtype = plan::DTYPE_NONE; // of a fill
  const plan::Instruction *source = nullptr;
  std::optional<CollectiveStep> collective;

  int stages() const { return library ? library->stages() : 1; }

  int64_t tiles(int stage) const {
    return library                    ? library->tiles(stage)
           : kernel                   ? kernelTiles
           : source->has_collective() ? 1
                                      : static_cast<int64_t>((bytes + plan::kPieceBytes - 1) / plan::kPieceBytes);
  }

  /// Runs tiles of a stage on this thread. False: the library failed.
  bool run(int stage, unsigned worker, unsigned workers, int64_t begin, int64_t end) const {
    if (library)
      return library->run(stage, {worker, workers, pointers.data(), scratch}, begin, end);
    if (kernel) {
      char *slot = scratch;
      if (slot)
        slot += slotOf(begin, kernelTiles, worker, workers) * scratchShape.slotBytes;
      kernel(pointers.data(), begin, end, slot);
      return true;
    }
    uint64_t from = static_cast<uint64_t>(begin) * plan::kPieceBytes,
             to = std::min(static_cast<uint64_t>(end) * plan::kPieceBytes, bytes);
    char *target = static_cast<char *>(pointers[dtype == plan::DTYPE_NONE ? 1 : 0]) + from;
    if (dtype == plan::DTYPE_NONE)
      std::memmove(target, static_cast<char *>(pointers[0]) + from, to - from);
    else if (value == 0)
      std::memset(target, 0, to - from);
    else
      plan::fillElements(target, dtype, (to - from) / plan::dtypeBytes(dtype), value);
    return true;
  }
};

struct Program {
  const plan::Entry *entry = nullptr;
  std::vector<Step> steps;
  std::vector<Launch> launches;
  std::vector<std::vector<uint32_t>> changed; ///< for each launch, the variables that it writes
  std::vector<uint64_t> finished; ///< for each launch, number of the entry's collectives that must finish before it
  bool collectives = false;
  std::vector<CollectiveTimes> times; ///< by instruction; empty without collectives
  std::vector<size_t> begun;          ///< collectives of a run, in their order
};

/// A range of bytes of an arena.
struct Piece {
  uint64_t begin, end;
};

/// The ranges of an arena that an entry's buffers and scratch cover, cut at multiples of a few huge pages.
std::vector<Piece> touchedPieces(const plan::Entry &entry, plan::Arena arena, unsigned workers) {
  constexpr uint64_t pieceBytes = uint64_t(16) << 20;
  std::vector<Piece> covered, pieces;
  for (const plan::Buffer &buffer : entry.buffers())
    if (buffer.arena() == arena && buffer.bytes() > 0)
      covered.push_back({buffer.offset(), buffer.offset() + buffer.bytes()});
  if (arena == plan::TRANSIENT)
    for (const plan::Instruction &instruction : entry.instructions())
      if (uint64_t bytes = plan::scratchBytes(entry, instruction, workers))
        covered.push_back({instruction.scratch_offset(), instruction.scratch_offset() + bytes});
  std::sort(covered.begin(), covered.end(), [](const Piece &a, const Piece &b) { return a.begin < b.begin; });
  uint64_t done = 0;
  for (const Piece &range : covered)
    for (uint64_t at = std::max(done, range.begin); at < range.end; at = done) {
      done = std::min(range.end, (at / pieceBytes + 1) * pieceBytes);
      pieces.push_back({at, done});
    }
  return pieces;
}

class CpuDevice final : public Device {
public:
  CpuDevice(const CallMaker &calls, std::shared_ptr<const plan::Plan> sharedPlan, CpuLevel level, unsigned threads)
      : Device(std::move(sharedPlan)), calls(calls), level(level), pool(threads) {
    abilities.name = "cpu";
    abilities.threads = pool.size();
    abilities.guardsState = true;
  }

  Status load(const plan::PlanReader &reader, bool withValues, uint32_t rank) {
    auto residentArena = Arena::allocate(plan::spaceBytes(plan(), plan::RESIDENT), "resident");
    if (!residentArena)
      return residentArena.status();
    resident = residentArena.take();
    auto transientArena = Arena::allocate(plan::transientBytes(plan(), pool.size()), "transient");
    if (!transientArena)
      return transientArena.status();
    transient = transientArena.take();
    for (int i = 0; i < plan().code_objects_size(); ++i) {
      auto object = CodeObject::load(reader.payload(plan().code_objects(i).payload()));
      if (!object)
        return object.status().withContext(fmt::format("code object {}", i));
      objects.push_back(object.take());
    }
    programs.reserve(static_cast<size_t>(plan().entries_size()));
    for (const plan::Entry &entry : plan().entries()) {
      Program &program = programs.emplace_back();
      program.entry = &entry;
      program.steps.reserve(static_cast<size_t>(entry.instructions_size()));
      for (int i = 0; i < entry.instructions_size(); ++i)
        if (Status status = resolve(entry, entry.instructions(i), program); !status.ok())
          return status.withContext(
              fmt::format("entry '{}', instruction {} (node '{}')", entry.name(), i, entry.instructions(i).node()));
      makeLaunches(program);
    }
    Status status = withValues ? loadInitialValues(reader, resident.data(), pool, rank) : Status::success();
    // The weights are in the arena now; without this, a second copy in mapped pages would stay in memory.
    reader.releasePages();
    return status;
  }

  const DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t libraryBytes() const override { return libraryTook; }
  uint64_t residentBytes() const override { return resident.bytes(); }
  uint64_t transientBytes() const override { return transient.bytes(); }

protected:
  Status readBytes(Place place, uint64_t offset, std::span<std::byte> to) override {
    std::memcpy(to.data(), address(place) + offset, to.size());
    return Status();
  }

  Status readAll(Place place, uint64_t bytes, const ByteSink &sink) override {
    return sink({reinterpret_cast<const std::byte *>(address(place)), bytes});
  }

  Status writeBytes(Place place, uint64_t offset, std::span<const std::byte> from) override {
    std::memcpy(address(place) + offset, from.data(), from.size());
    return Status();
  }

  Expected<std::span<std::byte>> stageBytes(Place place, uint64_t bytes) override {
    return std::span(reinterpret_cast<std::byte *>(address(place)), bytes);
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

  void touchEntry(uint32_t entry) override {
    for (plan::Arena kind : {plan::RESIDENT, plan::TRANSIENT}) {
      const Arena &arena = kind == plan::RESIDENT ? resident : transient;
      std::vector<Piece> pieces = touchedPieces(*programs[entry].entry, kind, pool.size());
      pool.run(static_cast<int64_t>(pieces.size()), [&](unsigned, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          arena.populate(pieces[static_cast<size_t>(i)].begin, pieces[static_cast<size_t>(i)].end);
      });
    }
  }

  Status runEntry(uint32_t entry) override {
    const Program &program = programs[entry];
    WorkerScope scope;
    if (program.collectives && ranks() && ranks()->size() > 1)
      return runWithRanks(programs[entry]);
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const Launch &launch = program.launches[i];
      const Step &first = program.steps[static_cast<size_t>(launch.shares.front().instruction)];
      announce(program, i);
      if (first.collective)
        first.collective->begin(0);
      else if (int failed = runLaunch(program, launch); failed >= 0)
        return failure(program, failed);
    }
    return Status();
  }

  Status observeEntry(uint32_t entry, const InstructionObserver &after) override {
    const Program &program = programs[entry];
    WorkerScope scope;
    for (int i = 0; i < program.entry->instructions_size(); ++i) {
      const Step &step = program.steps[static_cast<size_t>(i)];
      if (stateGuard())
        for (uint32_t variable : plan::changedVariables(*program.entry, *step.source))
          stateGuard()->beforeWrite(variable);
      if (step.collective)
        if (Status status = runCollective(program, step); !status.ok())
          return status;
      for (int stage = 0; stage < step.stages() && !step.collective; ++stage)
        if (runLaunch(program, {{{i, stage, 0, step.tiles(stage)}}}) >= 0)
          return failure(program, i);
      if (after)
        after(static_cast<uint32_t>(i));
    }
    return Status();
  }

  Status timeEntry(uint32_t entry, const LaunchObserver &after) override {
    const Program &program = programs[entry];
    WorkerScope scope;
    std::vector<double> seconds;
    std::vector<LaunchPart> parts;
    if (program.collectives && ranks() && ranks()->size() > 1)
      return runWithRanks(programs[entry], &after);
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const Launch &launch = program.launches[i];
      seconds.assign(launch.shares.size(), 0);
      announce(program, i);
      const Step &first = program.steps[static_cast<size_t>(launch.shares.front().instruction)];
      if (first.collective) {
        if (Status status = runCollective(program, first); !status.ok())
          return status;
        seconds[0] = 1;
      } else if (int failed = runLaunch(program, launch, seconds.data()); failed >= 0) {
        return failure(program, failed);
      }
      addUp(launch, seconds, parts);
      after(parts);
    }
    return Status();
  }

  CollectiveTimes collectiveTimes(uint32_t entry, uint32_t instruction) const override {
    const std::vector<CollectiveTimes> &times = programs[entry].times;
    return times.empty() ? CollectiveTimes() : times[instruction];
  }

  CollectiveTimes collectiveTimes() const override {
    CollectiveTimes sum;
    for (const Program &program : programs)
      for (const CollectiveTimes &one : program.times) {
        sum.calls += one.calls;
        sum.seconds += one.seconds;
        sum.exposedSeconds += one.exposedSeconds;
      }
    return sum;
  }

private:
  char *address(const plan::Buffer &buffer) const {
    return (buffer.arena() == plan::RESIDENT ? resident.data() : transient.data()) + buffer.offset();
  }

  char *address(Place place) const {
    return place.entry ? address(bufferAt(place))
                       : resident.data() + plan().variables(static_cast<int>(place.index)).offset();
  }

  Status resolve(const plan::Entry &entry, const plan::Instruction &instruction, Program &program) {
    Step step;
    step.source = &instruction;
    for (const plan::Operand &operand : instruction.operands())
      step.pointers.push_back(address(entry.buffers(static_cast<int>(operand.buffer()))) + operand.byte_offset());
    if (plan::hasScratch(instruction)) {
      step.scratch = transient.data() + instruction.scratch_offset();
      step.scratchShape = {instruction.scratch_slot_bytes(), static_cast<uint64_t>(plan::tilesOf(entry, instruction)),
                           instruction.scratch_shared_bytes()};
    }
    switch (instruction.call_case()) {
    case plan::Instruction::kKernel:
      if (Status status = findKernel(instruction.kernel(), step); !status.ok())
        return status;
      step.kernelTiles = instruction.kernel().tiles();
      break;
    case plan::Instruction::kMatmul:
      if (instruction.matmul().has_row_kernel())
        if (Status status = findKernel(instruction.matmul().row_kernel(), step); !status.ok())
          return status;
      if (Status status = resolveLibrary(instruction.matmul(), step); !status.ok())
        return status;
      break;
    case plan::Instruction::kConvolution:
      if (Status status = resolveLibrary(instruction.convolution(), step); !status.ok())
        return status;
      break;
    case plan::Instruction::kCopy:
      step.bytes = plan::movedBytes(entry, instruction);
      break;
    case plan::Instruction::kFill:
      step.value = instruction.fill().value();
      step.dtype = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      step.bytes = plan::movedBytes(entry, instruction);
      break;
    case plan::Instruction::kCollective:
      step.collective.emplace(entry, instruction, step.pointers, plan().training().parallel());
      break;
    case plan::Instruction::kTransfer:
    case plan::Instruction::kAttention:
    case plan::Instruction::CALL_NOT_SET:
      return error("it calls nothing that a CPU runs");
    }
    program.steps.push_back(std::move(step));
    return Status::success();
  }

  Status findKernel(const plan::KernelCall &call, Step &step) const {
    step.kernel = objects[call.code()].find(call.symbol());
    if (!step.kernel)
      return error("code object {} has no kernel '{}'; recompile the model with tcc", call.code(), call.symbol());
    return Status::success();
  }

  Expected<std::unique_ptr<LibraryCall>> prepareCall(const plan::MatmulCall &call, const Step &step) const {
    return calls.make(call, level, step.scratchShape, pool.size(), step.kernel);
  }
  Expected<std::unique_ptr<LibraryCall>> prepareCall(const plan::ConvolutionCall &call, const Step &step) const {
    return calls.make(call, level, step.scratchShape, pool.size());
  }

  /// Equal calls share their primitives: twelve layers, one kernel.
  template <typename Call> Status resolveLibrary(const Call &call, Step &step) {
    std::string key =
        call.GetTypeName() +
        fmt::format("/{}/{}/{}/", step.scratchShape.slotBytes, step.scratchShape.slots, step.scratchShape.sharedBytes) +
        call.SerializeAsString();
    auto it = library.find(key);
    if (it == library.end()) {
      uint64_t before = processMemoryBytes();
      auto prepared = prepareCall(call, step);
      libraryTook += std::max(processMemoryBytes(), before) - before;
      if (!prepared)
        return prepared.status();
      it = library.emplace(std::move(key), prepared.take()).first;
    }
    step.library = it->second.get();
    return Status::success();
  }

  void makeLaunches(Program &program) {
    std::vector<InstructionTiles> tiles;
    for (const Step &step : program.steps) {
      tiles.emplace_back().longest = step.library ? step.library->longestStage() : 0;
      for (int stage = 0; stage < step.stages(); ++stage)
        tiles.back().stages.push_back(step.tiles(stage));
    }
    program.launches = launchesOf(*program.entry, tiles, pool.size());
    // The collectives so far, by the last instruction that may run beside each.
    std::vector<int> until;
    for (const Launch &launch : program.launches) {
      int last = 0;
      std::vector<uint32_t> &changed = program.changed.emplace_back();
      for (const Share &share : launch.shares) {
        last = std::max(last, share.instruction);
        for (uint32_t variable : plan::changedVariables(*program.entry, program.entry->instructions(share.instruction)))
          if (std::find(changed.begin(), changed.end(), variable) == changed.end())
            changed.push_back(variable);
      }
      uint64_t &count = program.finished.emplace_back(0);
      for (size_t i = 0; i < until.size(); ++i)
        if (until[i] < last)
          count = i + 1;
      const plan::Instruction &first = program.entry->instructions(launch.shares.front().instruction);
      if (first.has_collective()) {
        program.collectives = true;
        if (first.collective().kind() != plan::CollectiveCall::OWN_SHARD) {
          until.push_back(launch.shares.front().instruction + first.beside());
          program.begun.reserve(until.size());
        }
      }
    }
    if (program.collectives)
      program.times.resize(program.steps.size());
  }

  /// Collectives run on a thread of their own, in order; a launch waits for those whose results it accesses. With
  /// `after`, the time of such a wait is attributed to the collective.
  Status runWithRanks(Program &program, const LaunchObserver *after = nullptr) {
    if (!background)
      background = std::make_unique<Background>([this](size_t step) { return carryOutTimed(*running, step); });
    running = &program;
    program.begun.clear();
    Status status;
    uint64_t done = 0; // collectives
    std::vector<double> seconds;
    std::vector<LaunchPart> parts;
    auto told = [&](const Launch &launch) {
      if (!after)
        return;
      if (launch.shares.size() == 1)
        seconds.assign(1, 1);
      addUp(launch, seconds, parts);
      (*after)(parts);
    };
    auto wait = [&](auto &&finish, size_t last) {
      const auto start = Clock::now();
      Status waited = finish();
      program.times[program.begun[last]].exposedSeconds += std::chrono::duration<double>(Clock::now() - start).count();
      if (after) {
        const LaunchPart part{static_cast<uint32_t>(program.begun[last]), 1};
        (*after)(std::span(&part, 1));
      }
      return waited;
    };
    for (size_t i = 0; i < program.launches.size() && status.ok(); ++i) {
      const Launch &launch = program.launches[i];
      const auto instruction = static_cast<size_t>(launch.shares.front().instruction);
      const Step &first = program.steps[instruction];
      if (const uint64_t count = program.finished[i]; count > done) {
        status = wait([&] { return background->finish(count); }, count - 1);
        done = count;
      }
      if (!status.ok())
        break;
      announce(program, i);
      if (first.collective) {
        first.collective->begin(ranks()->rank());
        if (!first.collective->isLocal()) {
          program.begun.push_back(instruction);
          background->submit(instruction);
        }
      } else {
        if (after)
          seconds.assign(launch.shares.size(), 0);
        if (int failed = runLaunch(program, launch, after ? seconds.data() : nullptr); failed >= 0) {
          status = failure(program, failed);
          ranks()->abort(status.message()); // otherwise collectives in flight would wait for this rank
        }
      }
      told(launch);
    }
    Status all = program.begun.empty() ? background->finishAll()
                                       : wait([&] { return background->finishAll(); }, program.begun.size() - 1);
    return status.ok() ? all : status;
  }

  Status carryOutTimed(Program &program, size_t step) {
    const auto start = Clock::now();
    Status status = carryOut(program, program.steps[step]);
    ++program.times[step].calls;
    program.times[step].seconds += std::chrono::duration<double>(Clock::now() - start).count();
    return status;
  }

  /// Runs a collective on this thread.
  Status runCollective(const Program &program, const Step &step) {
    step.collective->begin(ranks() ? ranks()->rank() : 0);
    return ranks() && ranks()->size() > 1 ? carryOut(program, step) : Status();
  }

  Status carryOut(const Program &program, const Step &step) {
    Status status = step.collective->finish(*ranks());
    return status.ok() ? status
                       : status.withContext(fmt::format("entry '{}', instruction {} (node '{}')", program.entry->name(),
                                                        &step - program.steps.data(), step.source->node()));
  }

  void announce(const Program &program, size_t launch) const {
    if (StateGuard *guard = stateGuard())
      for (uint32_t variable : program.changed[launch])
        guard->beforeWrite(variable);
  }

  Status failure(const Program &program, int index) const {
    return error("entry '{}', instruction {} (node '{}'): the library failed", program.entry->name(), index,
                 program.steps[static_cast<size_t>(index)].source->node());
  }

  /// Returns the instruction that failed, or -1. `seconds`, if given, gets the worker's time for each share; 1 for a
  /// single one.
  int runLaunch(const Program &program, const Launch &launch, double *seconds = nullptr) {
    std::atomic<int> failed{-1};
    auto runShare = [&](const Share &share, unsigned worker, int64_t begin, int64_t end) {
      if (!program.steps[static_cast<size_t>(share.instruction)].run(share.stage, worker, pool.size(), begin, end))
        failed.store(share.instruction, std::memory_order_relaxed);
    };
    if (launch.shares.size() == 1) {
      const Share &all = launch.shares.front();
      pool.run(all.end - all.begin, [&](unsigned worker, int64_t begin, int64_t end) {
        runShare(all, worker, all.begin + begin, all.begin + end);
      });
      if (seconds)
        *seconds = 1;
      return failed.load();
    }
    pool.run(static_cast<int64_t>(launch.shares.size()), [&](unsigned worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Share &share = launch.shares[static_cast<size_t>(i)];
        auto start = seconds ? Clock::now() : Clock::time_point();
        runShare(share, worker, share.begin, share.end);
        if (seconds)
          seconds[i] = std::chrono::duration<double>(Clock::now() - start).count();
      }
    });
    return failed.load();
  }

  static void addUp(const Launch &launch, const std::vector<double> &seconds, std::vector<LaunchPart> &parts) {
    parts.clear();
    for (size_t i = 0; i < launch.shares.size(); ++i) {
      auto instruction = static_cast<uint32_t>(launch.shares[i].instruction);
      auto it =
          std::find_if(parts.begin(), parts.end(), [&](const LaunchPart &p) { return p.instruction == instruction; });
      if (it == parts.end())
        it = parts.insert(parts.end(), {instruction, 0});
      it->workerSeconds += seconds[i];
    }
  }

  // Members are destroyed in reverse order: whatever calls the code, or accesses the arenas, before either.
  DeviceCapabilities abilities;
  const CallMaker &calls;
  const CpuLevel level;
  std::vector<CodeObject> objects;
  Arena resident, transient;
  ThreadPool pool;
  std::map<std::string, std::unique_ptr<LibraryCall>> library;
  uint64_t libraryTook = 0;
  std::vector<Program> programs; ///< by entry
  Program *running = nullptr;
  std::unique_ptr<Background> background; ///< last: its thread uses the members above; null until ranks run together
};
} // namespace

Expected<uint32_t> rankCpuTarget(const std::string &target) {
  if (Status status = checkLevel(target); !status.ok())
    return status;
  return static_cast<uint32_t>(*levelFromName(target));
}

Expected<std::unique_ptr<Device>> createCpuDevice(const plan::PlanReader &reader, const DeviceOptions &options) {
  static const CallMaker ownKernels;
  return createCpuDeviceWith(ownKernels, reader, options);
}

Expected<std::unique_ptr<Device>> createCpuDeviceWith(const CallMaker &calls, const plan::PlanReader &reader,
                                                      const DeviceOptions &options) {
  const plan::Plan &plan = reader.plan();
  if (Status status = checkPlan(reader); !status.ok())
    return status;
  if (!plan.library().empty() && plan.library() != libraryName())
    return error("{}: the plan was made for {}, this program has {}; recompile the model with tcc", reader.path(),
                 plan.library(), libraryName());
  if (Status status = checkLevel(plan.target()); !status.ok())
    return status.withContext(reader.path());
  unsigned threads = options.threads ? options.threads : usableProcessors();
  // Check the memory now: a process that exceeds its control group's limit is killed without a message in its first
  // step.
  if (options.initialValues)
    if (Status status = checkMemory(plan::spaceBytes(plan, plan::RESIDENT) + plan::transientBytes(plan, threads),
                                    freeMemory(/*swap=*/true), threads);
        !status.ok())
      return status.withContext(reader.path());
  std::unique_ptr<CpuDevice> device;
  try {
    device = std::make_unique<CpuDevice>(calls, reader.sharedPlan(), *levelFromName(plan.target()), threads);
  } catch (const std::system_error &problem) {
    return error("{}: cannot start {} threads ({}); use fewer ({}), or raise the limits of processes and memory "
                 "(ulimit -u, -v)",
                 reader.path(), threads, problem.code().message(), advice::option("threads"));
  }
  if (Status status = device->load(reader, options.initialValues, options.rank); !status.ok())
    return status.withContext(reader.path());
  return std::unique_ptr<Device>(std::move(device));
}

} // namespace tcc::runtime
