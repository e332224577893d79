//===- CpuDevice.cpp - running plans on this machine's cores -------------===//
//
// When the device is created each instruction becomes a step with its addresses, tiles and function resolved; running
// an entry walks the steps. Nothing is allocated, looked up or locked on the way.
//
//===----------------------------------------------------------------------===//
#include "runtime/Device.h"
#include "runtime/cpu/Arena.h"
#include "runtime/cpu/CodeObject.h"
#include "runtime/cpu/InitialValues.h"
#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/MachineMemory.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Verifier.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <sched.h>

namespace tcc::runtime {

namespace {
/// One resolved instruction.
struct Step {
  std::vector<void *> pointers;
  plan::KernelFunction kernel = nullptr;
  const LibraryCall *library = nullptr;
  int64_t tiles = 0;
  char *scratch = nullptr;
  Scratch scratchShape;
  uint64_t bytes = 0;                   // of a copy or fill
  double value = 0;                     // of a fill
  plan::DType dtype = plan::DTYPE_NONE; // of a fill
  const plan::Instruction *source = nullptr;
};

struct Program {
  const plan::Entry *entry = nullptr;
  std::vector<Step> steps;
};

unsigned usableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

/// A range of bytes of an arena.
struct Piece {
  uint64_t begin, end;
};

/// What an entry's buffers cover of an arena, cut at multiples of a piece of some huge pages. Scratch is left out: it has
/// slots for workers that may not be there.
std::vector<Piece> touchedPieces(const plan::Entry &entry, plan::Arena arena) {
  constexpr uint64_t pieceBytes = uint64_t(16) << 20;
  std::vector<Piece> covered, pieces;
  for (const plan::Buffer &buffer : entry.buffers())
    if (buffer.arena() == arena && buffer.bytes() > 0 && buffer.kind() != plan::Buffer::SCRATCH)
      covered.push_back({buffer.offset(), buffer.offset() + buffer.bytes()});
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
  CpuDevice(std::shared_ptr<const plan::Plan> sharedPlan, unsigned threads)
      : plan(std::move(sharedPlan)), pool(threads) {}

  plan::Status load(const plan::PlanReader &reader, bool withValues) {
    auto residentArena = Arena::allocate(plan->resident_bytes(), "resident");
    if (!residentArena)
      return residentArena.status();
    resident = residentArena.take();
    auto transientArena = Arena::allocate(plan->transient_bytes(), "transient");
    if (!transientArena)
      return transientArena.status();
    transient = transientArena.take();
    for (int i = 0; i < plan->code_objects_size(); ++i) {
      auto object = CodeObject::load(reader.payload(plan->code_objects(i).payload()));
      if (!object)
        return object.status().withContext(fmt::format("code object {}", i));
      objects.push_back(object.take());
    }
    for (const plan::Entry &entry : plan->entries()) {
      Program &program = programs[entry.name()];
      program.entry = &entry;
      program.steps.reserve(static_cast<size_t>(entry.instructions_size()));
      for (int i = 0; i < entry.instructions_size(); ++i)
        if (plan::Status status = resolve(entry, entry.instructions(i), program); !status.ok())
          return status.withContext(
              fmt::format("entry '{}', instruction {} (node '{}')", entry.name(), i, entry.instructions(i).node()));
    }
    plan::Status status = withValues ? loadInitialValues(reader, resident.data(), pool) : plan::Status::success();
    // The weights lie in the arena now; a second copy of them in mapped pages would last as long as the process.
    reader.releasePages();
    return status;
  }

  unsigned threads() const override { return pool.size(); }
  uint64_t libraryBytes() const override { return libraryTook; }
  uint64_t residentBytes() const override { return resident.bytes(); }
  uint64_t transientBytes() const override { return transient.bytes(); }

  void *variableData(uint32_t variable) override {
    if (variable >= static_cast<uint32_t>(plan->variables_size()))
      return nullptr;
    return resident.data() + plan->variables(static_cast<int>(variable)).offset();
  }

  void *bufferData(const std::string &entry, uint32_t buffer) override {
    auto it = programs.find(entry);
    if (it == programs.end() || buffer >= static_cast<uint32_t>(it->second.entry->buffers_size()))
      return nullptr;
    return address(it->second.entry->buffers(static_cast<int>(buffer)));
  }

  void touch(const std::string &entry) override {
    auto it = programs.find(entry);
    if (it == programs.end())
      return;
    for (plan::Arena kind : {plan::RESIDENT, plan::TRANSIENT}) {
      const Arena &arena = kind == plan::RESIDENT ? resident : transient;
      std::vector<Piece> pieces = touchedPieces(*it->second.entry, kind);
      pool.run(static_cast<int64_t>(pieces.size()), [&](unsigned, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          arena.populate(pieces[static_cast<size_t>(i)].begin, pieces[static_cast<size_t>(i)].end);
      });
    }
  }

  plan::Status run(const std::string &entry) override { return walk(entry, nullptr); }

  plan::Status runObserved(const std::string &entry, const InstructionObserver &after) override {
    return walk(entry, after ? &after : nullptr);
  }

private:
  char *address(const plan::Buffer &buffer) const {
    return (buffer.arena() == plan::RESIDENT ? resident.data() : transient.data()) + buffer.offset();
  }

  plan::Status resolve(const plan::Entry &entry, const plan::Instruction &instruction, Program &program) {
    Step step;
    step.source = &instruction;
    for (const plan::Operand &operand : instruction.operands())
      step.pointers.push_back(address(entry.buffers(static_cast<int>(operand.buffer()))) + operand.byte_offset());
    if (instruction.scratch() >= 0) {
      step.scratch = address(entry.buffers(instruction.scratch()));
      uint32_t slots = instruction.scratch_slots() ? instruction.scratch_slots() : plan->max_workers();
      step.scratchShape = {instruction.scratch_slot_bytes(), slots, instruction.scratch_shared_bytes()};
    }
    auto remaining = [&](int index) {
      const plan::Operand &operand = instruction.operands(index);
      uint64_t bytes = plan::tensorBytes(entry.buffers(static_cast<int>(operand.buffer())).type()).value_or(0);
      return bytes - std::min(bytes, operand.byte_offset());
    };
    switch (instruction.call_case()) {
    case plan::Instruction::kKernel: {
      const plan::KernelCall &call = instruction.kernel();
      step.kernel = objects[call.code()].find(call.symbol());
      if (!step.kernel)
        return plan::error("code object {} has no kernel '{}'; recompile the model with tcc", call.code(),
                           call.symbol());
      step.tiles = call.tiles();
      break;
    }
    case plan::Instruction::kMatmul:
      if (plan::Status status = resolveLibrary(instruction.matmul(), step); !status.ok())
        return status;
      break;
    case plan::Instruction::kConvolution:
      if (plan::Status status = resolveLibrary(instruction.convolution(), step); !status.ok())
        return status;
      break;
    case plan::Instruction::kCopy:
      step.bytes = std::min(remaining(0), remaining(1));
      break;
    case plan::Instruction::kFill:
      step.value = instruction.fill().value();
      step.dtype = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      step.bytes = remaining(0);
      break;
    case plan::Instruction::CALL_NOT_SET:
      return plan::error("it calls nothing");
    }
    program.steps.push_back(std::move(step));
    return plan::Status::success();
  }

  /// Equal calls share their primitives: twelve layers, one kernel.
  template <typename Call> plan::Status resolveLibrary(const Call &call, Step &step) {
    std::string key =
        call.GetTypeName() +
        fmt::format("/{}/{}/{}/", step.scratchShape.slotBytes, step.scratchShape.slots, step.scratchShape.sharedBytes) +
        call.SerializeAsString();
    auto it = library.find(key);
    if (it == library.end()) {
      uint64_t before = processMemoryBytes();
      auto prepared = prepare(call, step.scratchShape, pool.size());
      libraryTook += std::max(processMemoryBytes(), before) - before;
      if (!prepared)
        return prepared.status();
      it = library.emplace(std::move(key), prepared.take()).first;
    }
    step.library = it->second.get();
    return plan::Status::success();
  }

  plan::Status walk(const std::string &name, const InstructionObserver *after) {
    auto it = programs.find(name);
    if (it == programs.end())
      return plan::error("the plan has no entry '{}'; compile it with tcc --entry", name);
    WorkerScope scope;
    uint32_t index = 0;
    for (const Step &step : it->second.steps) {
      if (!execute(step))
        return plan::error("entry '{}', instruction {} (node '{}'): the library failed", name, index,
                           step.source->node());
      if (after)
        (*after)(index);
      ++index;
    }
    return plan::Status::success();
  }

  bool execute(const Step &step) {
    if (step.kernel) {
      pool.run(step.tiles, [this, &step](unsigned worker, int64_t begin, int64_t end) {
        char *slot = step.scratch;
        if (slot)
          slot += slotOf(begin, step.tiles, worker, pool) * step.scratchShape.slotBytes;
        step.kernel(step.pointers.data(), begin, end, slot);
      });
      return true;
    }
    if (step.library)
      return step.library->run(pool, step.pointers.data(), step.scratch);
    constexpr uint64_t piece = uint64_t(1) << 20; // a multiple of every element
    pool.run(static_cast<int64_t>((step.bytes + piece - 1) / piece), [&step](unsigned, int64_t begin, int64_t end) {
      uint64_t from = static_cast<uint64_t>(begin) * piece,
               to = std::min(static_cast<uint64_t>(end) * piece, step.bytes);
      if (step.dtype == plan::DTYPE_NONE)
        std::memmove(static_cast<char *>(step.pointers[1]) + from, static_cast<char *>(step.pointers[0]) + from,
                     to - from);
      else if (step.value == 0)
        std::memset(static_cast<char *>(step.pointers[0]) + from, 0, to - from);
      else
        plan::fillElements(static_cast<char *>(step.pointers[0]) + from, step.dtype,
                           (to - from) / plan::dtypeBytes(step.dtype), step.value);
    });
    return true;
  }

  std::shared_ptr<const plan::Plan> plan;
  ThreadPool pool;
  Arena resident, transient;
  std::vector<CodeObject> objects;
  std::map<std::string, std::unique_ptr<LibraryCall>> library;
  uint64_t libraryTook = 0;
  std::map<std::string, Program> programs;
};
} // namespace

static plan::Expected<std::unique_ptr<Device>> create(const plan::PlanReader &reader, unsigned threads,
                                                      bool withValues) {
  const plan::Plan &plan = reader.plan();
  std::vector<std::string> problems = plan::verifyPlan(plan, 5);
  if (!problems.empty())
    return plan::error("{}: the plan is not safe to run:\n  {}", reader.path(), fmt::join(problems, "\n  "));
  if (!plan.library().empty() && plan.library() != libraryName())
    return plan::error("{}: the plan was made for {}, this program has {}; recompile the model with tcc", reader.path(),
                       plan.library(), libraryName());
  if (plan::Status status = selectLevel(plan.target()); !status.ok())
    return status.withContext(reader.path());
  if (threads == 0)
    threads = usableProcessors();
  threads = std::min(threads, plan.max_workers());
  auto device = std::make_unique<CpuDevice>(reader.sharedPlan(), threads);
  if (plan::Status status = device->load(reader, withValues); !status.ok())
    return status.withContext(reader.path());
  return std::unique_ptr<Device>(std::move(device));
}

plan::Expected<std::unique_ptr<Device>> createCpuDevice(const plan::PlanReader &reader, unsigned threads) {
  return create(reader, threads, true);
}

plan::Expected<std::unique_ptr<Device>> createEmptyCpuDevice(const plan::PlanReader &reader, unsigned threads) {
  return create(reader, threads, false);
}

} // namespace tcc::runtime
