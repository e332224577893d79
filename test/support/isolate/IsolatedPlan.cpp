//===- IsolatedPlan.cpp ---------------------------------------------------===//
#include "test/support/isolate/IsolatedPlan.h"

#include "runtime/cpu/CodeObject.h"
#include "runtime/cpu/InitialValues.h"
#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/parallel/CollectiveStep.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace tcc::test {

using namespace runtime;

namespace {
constexpr char kOutside = '\xa5';
char runningText[256] = "no instruction";

uint64_t pageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

/// Memory between two inaccessible pages. It begins right after the first (`atStart`), or ends as close to the second
/// as its alignment allows; isIntact() checks the bytes around it on its own pages.
class Guarded {
public:
  Guarded(uint64_t bytes, uint64_t alignment, bool atStart = false) : bytes(bytes) {
    uint64_t page = pageBytes();
    inside = (bytes + alignment + page - 1) / page * page;
    void *start = ::mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
      return;
    mapping = static_cast<char *>(start);
    if (::mprotect(mapping + page, inside, PROT_READ | PROT_WRITE) != 0)
      return;
    data = mapping + page + (atStart ? 0 : (inside - bytes) / alignment * alignment);
    std::memset(mapping + page, kOutside, static_cast<size_t>(data - mapping) - page);
    std::memset(data + bytes, kOutside, static_cast<size_t>(end() - (data + bytes)));
  }
  ~Guarded() {
    if (mapping)
      ::munmap(mapping, inside + 2 * pageBytes());
  }
  Guarded(const Guarded &) = delete;
  Guarded &operator=(const Guarded &) = delete;

  void makeReadOnly() { ::mprotect(mapping + pageBytes(), inside, PROT_READ); }

  bool isIntact() const {
    auto outside = [](char byte) { return byte == kOutside; };
    return std::all_of(mapping + pageBytes(), data, outside) && std::all_of(data + bytes, end(), outside);
  }

  char *data = nullptr; ///< null if the allocation failed
  uint64_t bytes;

private:
  char *end() const { return mapping + pageBytes() + inside; }
  char *mapping = nullptr;
  uint64_t inside = 0;
};
} // namespace

struct IsolatedPlan::State {
  State(const plan::Plan &plan, CpuLevel level, unsigned threads) : plan(plan), level(level), pool(threads) {}

  std::vector<char> &arenaOf(const plan::Buffer &buffer) {
    return buffer.arena() == plan::RESIDENT ? resident : transient;
  }

  Expected<plan::KernelFunction> kernelOf(const plan::KernelCall &call) const {
    plan::KernelFunction function = objects[call.code()].find(call.symbol());
    if (!function)
      return error("code object {} has no kernel '{}'", call.code(), call.symbol());
    return function;
  }

  Status prepareAll() {
    for (const plan::Entry &entry : plan.entries())
      for (const plan::Instruction &instruction : entry.instructions()) {
        Scratch scratch{instruction.scratch_slot_bytes(), static_cast<uint64_t>(plan::tilesOf(entry, instruction)),
                        instruction.scratch_shared_bytes()};
        plan::KernelFunction rows = nullptr;
        if (instruction.has_kernel() || instruction.matmul().has_row_kernel()) {
          auto found = kernelOf(instruction.has_kernel() ? instruction.kernel() : instruction.matmul().row_kernel());
          if (!found)
            return found.status();
          rows = *found;
        }
        if (!instruction.has_matmul() && !instruction.has_convolution())
          continue;
        auto call = instruction.has_matmul() ? prepare(instruction.matmul(), level, scratch, pool.size(), rows)
                                             : prepare(instruction.convolution(), level, scratch, pool.size());
        if (!call)
          return call.status();
        calls[&instruction] = call.take();
      }
    return Status::success();
  }

  Status run(const plan::Entry &entry, std::mt19937_64 &random, const IsolatedRun &options) {
    how = options;
    std::fill(transient.begin(), transient.end(), how.unset);
    for (const plan::Buffer &buffer : entry.buffers())
      if (buffer.kind() == plan::Buffer::INPUT || buffer.kind() == plan::Buffer::SCALARS ||
          buffer.kind() == plan::Buffer::COUNTERS)
        how.legalInputs ? drawLegal(entry, buffer, random) : draw(buffer, random);
    for (int i = 0; i < entry.instructions_size(); ++i)
      if (Status status = runInstruction(entry, i); !status.ok())
        return status.withContext(runningText);
    return Status::success();
  }

  /// Fills a buffer with random bits, small integers or zeros: numbers and NaN, indices in and out of range.
  void draw(const plan::Buffer &buffer, std::mt19937_64 &random) {
    char *data = arenaOf(buffer).data() + buffer.offset();
    uint64_t kind = random() % 3, size = std::max<uint64_t>(plan::dtypeBytes(buffer.type().dtype()), 1);
    for (uint64_t i = 0; i < buffer.bytes(); ++i) {
      uint64_t bits = random();
      data[i] = kind == 0 || (kind == 1 && i % size != 0) ? 0 : static_cast<char>(kind == 1 ? bits % 8 : bits);
    }
  }

  /// Fills a buffer with numbers in [-1, 1], or in (0, 1] for scalars of an optimizer's step; or with indices that the
  /// entry's ports allow, without ranges 0 and 1.
  void drawLegal(const plan::Entry &entry, const plan::Buffer &buffer, std::mt19937_64 &random) {
    char *data = arenaOf(buffer).data() + buffer.offset();
    int64_t low = 0, high = 1;
    bool bounded = false;
    for (const plan::Port &port : entry.inputs())
      if (&entry.buffers(static_cast<int>(port.buffer())) == &buffer)
        for (const plan::IndexRange &range : port.index_ranges()) {
          low = bounded ? std::max(low, range.low()) : range.low();
          high = std::max(low, bounded ? std::min(high, range.high()) : range.high());
          bounded = true;
        }
    const plan::DType dtype = buffer.type().dtype();
    const uint64_t size = std::max<uint64_t>(plan::dtypeBytes(dtype), 1);
    for (uint64_t at = 0; at + size <= buffer.bytes(); at += size) {
      double fraction = static_cast<double>(random() >> 11) * 0x1p-53;
      double number = buffer.kind() == plan::Buffer::SCALARS ? 1 - fraction : 2 * fraction - 1;
      int64_t integer =
          low + static_cast<int64_t>(fraction * static_cast<double>(std::min<int64_t>(high - low, 1 << 20) + 1));
      if (plan::isFloatingPoint(dtype))
        plan::fillElements(data + at, dtype, 1, number);
      else
        std::memcpy(data + at, &integer, size);
    }
  }

  Status runInstruction(const plan::Entry &entry, int index) {
    const plan::Instruction &instruction = entry.instructions(index);
    fmt::format_to_n(runningText, sizeof(runningText) - 1, "entry '{}', instruction {} (node '{}'){}", entry.name(),
                     index, instruction.node(), '\0');
    // Buffers at the same address, which are in-place pairs, share one mapping.
    struct Place {
      std::unique_ptr<Guarded> memory;
      const plan::Buffer *buffer;
      bool written;
      bool fresh; ///< no earlier instruction has written it
    };
    std::map<std::pair<int, uint64_t>, Place> places;
    auto keyOf = [](const plan::Buffer &buffer) { return std::pair(int(buffer.arena()), buffer.offset()); };
    uint64_t alignment = instruction.has_kernel() ? 1 : plan::kAlignmentBytes;
    for (const plan::Operand &operand : instruction.operands()) {
      const plan::Buffer &buffer = entry.buffers(static_cast<int>(operand.buffer()));
      Place &place = places.try_emplace(keyOf(buffer), Place{nullptr, &buffer, false, true}).first->second;
      place.written |= operand.write();
      place.fresh &= !operand.read() && buffer.first() == index;
      if (buffer.bytes() > place.buffer->bytes())
        place.buffer = &buffer;
    }
    for (auto &[key, place] : places) {
      // Generated kernels need no more than element alignment, so that their operands can end exactly at the guard
      // page.
      uint64_t aligned =
          alignment == 1 ? std::max<uint64_t>(plan::dtypeBytes(place.buffer->type().dtype()), 1) : alignment;
      if (place.buffer->bytes() % aligned != 0)
        aligned = 1;
      place.memory = std::make_unique<Guarded>(place.buffer->bytes(), std::max(aligned, alignment), how.atStart);
      if (!place.memory->data)
        return error("no memory for a copy of {} bytes", place.buffer->bytes());
      if (place.fresh)
        std::memset(place.memory->data, how.unset, place.buffer->bytes());
      else
        std::memcpy(place.memory->data, arenaOf(*place.buffer).data() + place.buffer->offset(), place.buffer->bytes());
      if (!place.written)
        place.memory->makeReadOnly();
    }
    std::vector<void *> pointers;
    for (const plan::Operand &operand : instruction.operands())
      pointers.push_back(places.at(keyOf(entry.buffers(static_cast<int>(operand.buffer())))).memory->data +
                         operand.byte_offset());
    if (Status status = execute(entry, instruction, pointers); !status.ok())
      return status;
    for (auto &[key, place] : places)
      if (!place.memory->isIntact()) {
        fmt::print(stderr, "{}: written outside buffer '{}'\n", runningText, place.buffer->name());
        std::abort();
      } else if (place.written) {
        std::memcpy(arenaOf(*place.buffer).data() + place.buffer->offset(), place.memory->data, place.buffer->bytes());
      }
    return Status::success();
  }

  Status execute(const plan::Entry &entry, const plan::Instruction &instruction, std::vector<void *> &pointers) {
    auto remaining = [&](int index) {
      const plan::Operand &operand = instruction.operands(index);
      uint64_t bytes = plan::tensorBytes(entry.buffers(static_cast<int>(operand.buffer())).type()).value_or(0);
      return bytes - std::min(bytes, operand.byte_offset());
    };
    if (instruction.has_copy()) {
      std::memmove(pointers[1], pointers[0], std::min(remaining(0), remaining(1)));
      return Status::success();
    }
    if (instruction.has_fill()) {
      plan::DType dtype = entry.buffers(static_cast<int>(instruction.operands(0).buffer())).type().dtype();
      plan::fillElements(pointers[0], dtype, remaining(0) / plan::dtypeBytes(dtype), instruction.fill().value());
      return Status::success();
    }
    if (instruction.has_collective()) { // runs as in a job of one rank
      CollectiveStep(entry, instruction, pointers, plan.training().parallel()).begin(0);
      return Status::success();
    }
    if (instruction.has_kernel()) {
      // The slot is guarded on both sides, since the memory around it would belong to another worker.
      WorkerScope scope;
      bool hasScratch = plan::hasScratch(instruction);
      Guarded slot(instruction.scratch_slot_bytes(), plan::kAlignmentBytes);
      std::memset(slot.data, -1, slot.bytes);
      plan::KernelFunction kernel = *kernelOf(instruction.kernel());
      for (int64_t tile = instruction.kernel().tiles(); tile-- > 0;)
        kernel(pointers.data(), tile, tile + 1, hasScratch ? slot.data : nullptr);
      return Status::success();
    }
    uint64_t bytes = plan::scratchBytes(entry, instruction, pool.size());
    Guarded scratch(bytes, plan::kAlignmentBytes);
    if (!scratch.data)
      return error("no memory for {} bytes of scratch", bytes);
    std::memset(scratch.data, -1, bytes);
    WorkerScope scope;
    if (!runCall(*calls.at(&instruction), pool, pointers.data(), bytes ? scratch.data : nullptr))
      return error("the library failed");
    return Status::success();
  }

  const plan::Plan &plan;
  CpuLevel level;
  IsolatedRun how;
  std::vector<char> resident, transient;
  std::vector<CodeObject> objects;
  ThreadPool pool;
  std::map<const plan::Instruction *, std::unique_ptr<LibraryCall>> calls;
};

IsolatedPlan::IsolatedPlan(std::unique_ptr<State> state) : state(std::move(state)) {}
IsolatedPlan::IsolatedPlan(IsolatedPlan &&) = default;
IsolatedPlan::~IsolatedPlan() = default;

Expected<IsolatedPlan> IsolatedPlan::load(const plan::PlanReader &reader, unsigned threads, uint64_t mostBytes) {
  const plan::Plan &plan = reader.plan();
  if (Status status = checkLevel(plan.target()); !status.ok())
    return status;
  if (plan::spaceBytes(plan, plan::RESIDENT) > mostBytes || plan::spaceBytes(plan, plan::TRANSIENT) > mostBytes)
    return error("arenas of {} and {} bytes are too large to test", plan::spaceBytes(plan, plan::RESIDENT),
                 plan::spaceBytes(plan, plan::TRANSIENT));
  auto state = std::make_unique<State>(plan, *levelFromName(plan.target()), threads);
  state->resident.resize(plan::spaceBytes(plan, plan::RESIDENT));
  state->transient.resize(plan::spaceBytes(plan, plan::TRANSIENT));
  for (const plan::CodeObject &code : plan.code_objects()) {
    auto object = CodeObject::load(reader.payload(code.payload()));
    if (!object)
      return object.status();
    state->objects.push_back(object.take());
  }
  if (Status status = state->prepareAll(); !status.ok())
    return status;
  if (Status status = loadInitialValues(reader, state->resident.data(), state->pool); !status.ok())
    return status;
  return IsolatedPlan(std::move(state));
}

Status IsolatedPlan::run(const plan::Entry &entry, std::mt19937_64 &random, const IsolatedRun &options) {
  return state->run(entry, random, options);
}

std::span<const char> IsolatedPlan::bytesOf(const plan::Buffer &buffer) const {
  return std::span(state->arenaOf(buffer)).subspan(buffer.offset(), buffer.bytes());
}

void nameFaults() {
  auto handler = [](int signal) {
    auto write = [](const char *text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); };
    write("fault in ");
    write(runningText);
    write("\n");
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  };
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGXCPU})
    std::signal(signal, handler);
}

std::string findOverlap(const plan::Entry &entry) {
  auto takesOver = [&](const plan::Buffer &from, const plan::Buffer &to) {
    if (from.last() != to.first() || to.first() < 0 || to.first() >= entry.instructions_size() ||
        from.offset() != to.offset())
      return false;
    const plan::Instruction &at = entry.instructions(to.first());
    return std::any_of(at.in_place().begin(), at.in_place().end(), [&](const plan::InPlace &pair) {
      auto bufferOf = [&](uint32_t operand) {
        return &entry.buffers(static_cast<int>(at.operands(static_cast<int>(operand)).buffer()));
      };
      return bufferOf(pair.source()) == &from && bufferOf(pair.destination()) == &to;
    });
  };
  for (const plan::Buffer &a : entry.buffers())
    for (const plan::Buffer &b : entry.buffers()) {
      if (&a == &b || a.arena() != b.arena() || a.bytes() == 0 || b.bytes() == 0)
        continue;
      bool bothLive = a.first() <= b.last() && b.first() <= a.last();
      bool meet = a.offset() < b.offset() + b.bytes() && b.offset() < a.offset() + a.bytes();
      if (bothLive && meet && !takesOver(a, b) && !takesOver(b, a))
        return fmt::format("entry '{}': buffers '{}' and '{}' share memory while both live", entry.name(), a.name(),
                           b.name());
    }
  return "";
}

} // namespace tcc::test
