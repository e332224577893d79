//===- VerifierEntry.cpp - buffers, versions and ports of one entry ------===//
//
// Overlap is checked by a sweep over instructions: an ordered map by offset holds the live buffers. As long as they are
// disjoint, a new buffer can overlap only with its neighbours in the map.
//
// Scratch grows with the number of workers. It begins above every live buffer, and two instructions with scratch never
// run concurrently, so scratch overlaps nothing for any number of workers.
//
//===----------------------------------------------------------------------===//
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VerifierImpl.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

namespace tcc::plan::verifier {

namespace {
class EntryVerifier {
public:
  EntryVerifier(const Context &context, const Entry &entry)
      : context(context), plan(context.plan), entry(entry), report(context.report), count(entry.instructions_size()) {}

  void run() {
    if (entry.transient_bytes() > spaceBytes(plan, TRANSIENT))
      report("entry '{}': it needs {} transient bytes, the arena has {}", entry.name(), entry.transient_bytes(),
             spaceBytes(plan, TRANSIENT));
    if (entry.host_transient_bytes() > spaceBytes(plan, HOST_TRANSIENT))
      report("entry '{}': it needs {} transient bytes on the host, the arena has {}", entry.name(),
             entry.host_transient_bytes(), spaceBytes(plan, HOST_TRANSIENT));
    usable.resize(static_cast<size_t>(entry.buffers_size()));
    for (int i = 0; i < entry.buffers_size(); ++i)
      usable[static_cast<size_t>(i)] = verifyBuffer(static_cast<uint32_t>(i));
    for (int space : {TRANSIENT, HOST_TRANSIENT})
      verifyOverlap(space);
    findHighest();
    if (std::find(usable.begin(), usable.end(), 0) == usable.end())
      if (uint64_t needed = transientBytes(entry, plan.max_workers()); needed != entry.transient_bytes())
        report("entry '{}': it states {} transient bytes, with {} workers it needs {}", entry.name(),
               entry.transient_bytes(), plan.max_workers(), needed);
    if (uint64_t needed = hostTransientBytes(entry); needed != entry.host_transient_bytes())
      report("entry '{}': it states {} transient bytes on the host, it needs {}", entry.name(),
             entry.host_transient_bytes(), needed);
    version.assign(static_cast<size_t>(entry.buffers_size()), 0);
    writer.assign(static_cast<size_t>(entry.buffers_size()), -1);
    for (int i = 0; i < count && !report.full(); ++i)
      verifyInstruction(i);
    for (int i = 0; i < count && !report.full(); ++i)
      if (entry.instructions(i).beside() != 0)
        verifyBeside(i);
    verifyPorts(context, entry, [&](uint32_t index) { return version[index] > 0 || definedAtEntry(index); });
  }

private:
  const Buffer &buffer(uint32_t index) const { return entry.buffers(static_cast<int>(index)); }
  bool exists(uint32_t index) const { return index < static_cast<uint32_t>(entry.buffers_size()); }

  /// The runtime writes it before the entry starts.
  static bool isFilled(const Buffer &b) {
    return b.kind() == Buffer::INPUT || b.kind() == Buffer::SCALARS || b.kind() == Buffer::COUNTERS;
  }
  /// Holds a value when the entry starts.
  bool definedAtEntry(uint32_t index) const {
    const Buffer &b = buffer(index);
    return b.variable() >= 0 || isFilled(b);
  }

  bool verifyBuffer(uint32_t index) {
    const Buffer &b = buffer(index);
    std::string where = fmt::format("entry '{}', {}", entry.name(), describe(entry, index));
    bool good = true;
    auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
      report("{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
      good = false;
    };
    if (b.arena() < 0 || b.arena() >= plan.spaces_size()) {
      fail("there is no memory space {}", static_cast<int>(b.arena()));
      return false;
    }
    const MemorySpace &space = plan.spaces(b.arena());
    if (!Buffer::Kind_IsValid(b.kind()))
      fail("there is no kind {} of buffer", static_cast<int>(b.kind()));
    if (dtypeBytes(b.type().dtype()) == 0)
      fail("it has no element type");
    if (space.alignment() == 0 || b.offset() % space.alignment() != 0)
      fail("offset {} is not a multiple of {}", b.offset(), space.alignment());
    uint64_t arena = b.arena() == TRANSIENT        ? entry.transient_bytes()
                     : b.arena() == HOST_TRANSIENT ? entry.host_transient_bytes()
                                                   : space.bytes();
    if (Wide(b.offset()) + b.bytes() > arena)
      fail("{} bytes at offset {} are not inside the {} arena of {} bytes", b.bytes(), b.offset(), space.name(),
           arena);
    std::optional<uint64_t> bytes = tensorBytes(b.type());
    if (!bytes || *bytes > b.bytes())
      fail("{} does not fit its {} bytes", typeName(b.type()), b.bytes());
    if (b.first() < -1 || b.last() > count || b.first() > b.last())
      fail("it lives from {} to {} in an entry of {} instructions", b.first(), b.last(), count);
    if (b.variable() >= plan.variables_size() || b.variable() < -1)
      fail("variable {} does not exist, the plan has {}", b.variable(), plan.variables_size());
    else if (b.variable() >= 0) {
      const Variable &variable = plan.variables(b.variable());
      if (b.arena() != variable.arena() || b.offset() != variable.offset() ||
          b.bytes() < tensorBytes(variable.type()).value_or(UINT64_MAX))
        fail("{} bytes at {} of the {} arena are not variable '{}' at {} of the {} one", b.bytes(), b.offset(),
             space.name(), variable.name(), variable.offset(), spaceName(plan, variable.arena()));
      else if (uint64_t padded =
                   (*tensorBytes(variable.type()) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
               b.bytes() > padded)
        fail("{} bytes reach beyond variable '{}' of {}", b.bytes(), variable.name(), padded);
      // Two buffers of one variable would count its versions separately.
      if (!variables.insert(b.variable()).second)
        fail("variable '{}' is another buffer already", variable.name());
      if (b.first() != -1 || b.last() != count)
        fail("state lives for the whole entry, not from {} to {}", b.first(), b.last());
    } else if (holdsState(b.arena()))
      fail("only variables may be in the {} arena", space.name());
    else if (isOnHost(b.arena()) && b.kind() != Buffer::VALUE)
      fail("only values between two transfers may be in the {} arena", space.name());
    if (isFilled(b) && b.variable() >= 0)
      fail("it is filled before the entry runs, and a variable");
    if (b.variable() < 0 && isFilled(b) && b.first() != -1)
      fail("it is filled before the entry runs, so it lives from -1, not {}", b.first());
    return good;
  }

  /// True if `to` takes over the memory of `from` at the instruction where `from` dies, by a declared in-place pair.
  bool inPlace(uint32_t from, uint32_t to) const {
    const Buffer &source = buffer(from), &destination = buffer(to);
    if (source.last() != destination.first() || destination.first() < 0 || destination.first() >= count)
      return false;
    if (source.arena() != destination.arena() || source.offset() != destination.offset() ||
        source.bytes() != destination.bytes())
      return false;
    return declaredPair(entry.instructions(destination.first()), from, to, /*everyRead=*/true);
  }

  /// True if an in-place pair names these buffers. `everyRead`: every operand that reads `from` must be in such a pair.
  static bool declaredPair(const Instruction &instruction, uint32_t from, uint32_t to, bool everyRead) {
    const MatmulCall &matmul = instruction.matmul();
    if (!instruction.has_kernel() && !matmul.accumulate() && !matmul.has_row_kernel() && !instruction.has_collective())
      return false;
    auto named = [&](int operand) {
      for (const InPlace &pair : instruction.in_place())
        if (pair.source() == static_cast<uint32_t>(operand) &&
            pair.destination() < static_cast<uint32_t>(instruction.operands_size()) &&
            instruction.operands(static_cast<int>(pair.destination())).buffer() == to &&
            instruction.operands(static_cast<int>(pair.destination())).write() &&
            instruction.operands(static_cast<int>(pair.destination())).byte_offset() ==
                instruction.operands(operand).byte_offset())
          return true;
      return false;
    };
    bool any = false;
    for (int i = 0; i < instruction.operands_size(); ++i)
      if (instruction.operands(i).buffer() == from && instruction.operands(i).read() &&
          !instruction.operands(i).write()) {
        if (named(i))
          any = true;
        else if (everyRead)
          return false;
      }
    return any;
  }

  void verifyOverlap(int space) {
    std::vector<uint32_t> born, dying;
    for (uint32_t i = 0; exists(i); ++i)
      if (usable[i] && buffer(i).arena() == space && buffer(i).bytes() > 0)
        born.push_back(i);
    dying = born;
    std::stable_sort(born.begin(), born.end(),
                     [&](uint32_t a, uint32_t b) { return buffer(a).first() < buffer(b).first(); });
    std::stable_sort(dying.begin(), dying.end(),
                     [&](uint32_t a, uint32_t b) { return buffer(a).last() < buffer(b).last(); });
    std::map<uint64_t, uint32_t> alive; // by offset
    size_t nextDying = 0;
    for (uint32_t index : born) {
      const Buffer &b = buffer(index);
      for (; nextDying < dying.size() && buffer(dying[nextDying]).last() < b.first(); ++nextDying) {
        auto it = alive.find(buffer(dying[nextDying]).offset());
        if (it != alive.end() && it->second == dying[nextDying])
          alive.erase(it);
      }
      auto clash = [&](std::map<uint64_t, uint32_t>::iterator it) {
        const Buffer &other = buffer(it->second);
        if (other.offset() + other.bytes() <= b.offset() || b.offset() + b.bytes() <= other.offset())
          return false;
        if (inPlace(it->second, index))
          return false;
        report("entry '{}': {} at [{}, {}) and {} at [{}, {}) overlap while both live, at instruction {}", entry.name(),
               describe(entry, it->second), other.offset(), other.offset() + other.bytes(), describe(entry, index),
               b.offset(), b.offset() + b.bytes(), b.first());
        return true;
      };
      auto after = alive.lower_bound(b.offset());
      bool bad = false;
      if (after != alive.end())
        bad |= clash(after);
      if (!bad && after != alive.begin())
        bad |= clash(std::prev(after));
      if (!bad)
        alive[b.offset()] = index; // replaces the buffer whose memory it takes over in place
      if (report.full())
        return;
    }
  }

  /// Of the buffers that live during each instruction, the one that ends highest.
  void findHighest() {
    std::vector<uint32_t> byEnd;
    for (uint32_t i = 0; exists(i); ++i)
      if (usable[i] && buffer(i).arena() == TRANSIENT)
        byEnd.push_back(i);
    std::stable_sort(byEnd.begin(), byEnd.end(), [&](uint32_t a, uint32_t b) { return endOf(a) > endOf(b); });
    highest.assign(static_cast<size_t>(count), -1);
    // open[i]: the first instruction from i on that has no buffer yet (union-find with path halving).
    std::vector<size_t> open(static_cast<size_t>(count) + 1);
    std::iota(open.begin(), open.end(), size_t(0));
    auto firstOpen = [&](size_t at) {
      while (open[at] != at)
        at = open[at] = open[open[at]];
      return at;
    };
    for (uint32_t i : byEnd)
      for (size_t at = firstOpen(static_cast<size_t>(std::max(buffer(i).first(), 0)));
           at < highest.size() && static_cast<int32_t>(at) <= buffer(i).last(); at = firstOpen(at)) {
        highest[at] = static_cast<int32_t>(i);
        open[at] = at + 1;
      }
  }

  uint64_t endOf(uint32_t index) const { return buffer(index).offset() + buffer(index).bytes(); }

  void verifyOperand(int at, int position, std::set<uint32_t> &written) {
    const Instruction &instruction = entry.instructions(at);
    const Operand &operand = instruction.operands(position);
    uint32_t index = operand.buffer();
    const Buffer &b = buffer(index);
    auto where = [&] { return describeInstruction(entry, at); };
    if (at < b.first() || at > b.last())
      report("{}: {} is used outside its life from {} to {}", where(), describe(entry, index), b.first(), b.last());
    if (!operand.read() && !operand.write())
      report("{}: operand {} is neither read nor written", where(), position);
    if (operand.read()) {
      if (version[index] == 0 && !definedAtEntry(index))
        report("{}: {} is read before anything is written to it", where(), describe(entry, index));
      else if (operand.version() != version[index])
        report("{}: version {} of {} is read, but it holds version {}{}", where(), operand.version(),
               describe(entry, index), version[index],
               writer[index] >= 0 ? fmt::format(", written by instruction {}", writer[index]) : std::string());
    }
    if (operand.write()) {
      if (operand.version_written() != version[index] + 1)
        report("{}: version {} of {} is written, after version {}", where(), operand.version_written(),
               describe(entry, index), version[index]);
      if (!written.insert(index).second)
        report("{}: {} is written through two operands", where(), describe(entry, index));
    }
  }

  void verifyInstruction(int at) {
    const Instruction &instruction = entry.instructions(at);
    bool inBounds = true;
    for (int i = 0; i < instruction.operands_size(); ++i) {
      const Operand &operand = instruction.operands(i);
      if (!exists(operand.buffer())) {
        report("{}: operand {} is buffer {}, the entry has {}", describeInstruction(entry, at), i, operand.buffer(),
               entry.buffers_size());
        inBounds = false;
      } else if (operand.byte_offset() >= std::max<uint64_t>(buffer(operand.buffer()).bytes(), 1)) {
        report("{}: operand {} starts at byte {} of {}, which has {}", describeInstruction(entry, at), i,
               operand.byte_offset(), describe(entry, operand.buffer()), buffer(operand.buffer()).bytes());
        inBounds = false;
      }
    }
    for (const InPlace &pair : instruction.in_place())
      if (std::max(pair.source(), pair.destination()) >= static_cast<uint32_t>(instruction.operands_size())) {
        report("{}: an in-place pair names operands {} and {} of {}", describeInstruction(entry, at), pair.source(),
               pair.destination(), instruction.operands_size());
        inBounds = false;
      }
    if (!inBounds)
      return;
    std::set<uint32_t> written;
    for (int i = 0; i < instruction.operands_size(); ++i) {
      verifyOperand(at, i, written);
      if (const Buffer &b = buffer(instruction.operands(i).buffer());
          isOnHost(b.arena()) && !instruction.has_transfer())
        report("{}: {} is in the memory of the host, which only transfers access", describeInstruction(entry, at),
               describe(entry, instruction.operands(i).buffer()));
    }
    for (int i = 0; i < instruction.operands_size(); ++i) {
      const Operand &operand = instruction.operands(i);
      if (operand.read() && !operand.write() && written.count(operand.buffer()) &&
          !declaredPair(instruction, operand.buffer(), operand.buffer(), /*everyRead=*/true))
        report("{}: {} is read and written without an in-place pair", describeInstruction(entry, at),
               describe(entry, operand.buffer()));
    }
    for (uint32_t index : written) {
      ++version[index];
      writer[index] = at;
    }
    verifyScratch(at, instruction);
    verifyCall(context, entry, at);
  }

  /// Its buffers must live until the last concurrent instruction is done, and none may write what another accesses.
  void verifyBeside(int at) {
    const Instruction &instruction = entry.instructions(at);
    if (instruction.beside() < 0 || instruction.beside() > count - 1 - at) {
      report("{}: it may run beside the next {}, {} follow", describeInstruction(entry, at), instruction.beside(),
             count - 1 - at);
      return;
    }
    if (hasScratch(instruction))
      report("{}: it has scratch, so it must not run beside others", describeInstruction(entry, at));
    if (instruction.has_matmul() || instruction.has_convolution() || instruction.has_attention())
      report("{}: a library call must not run beside others", describeInstruction(entry, at));
    int last = at + instruction.beside();
    for (const auto &[index, write] : touched(instruction)) {
      // The sources of a collective are copied, or overwritten in place, before the next instruction begins; those of a
      // reduce-scatter stay live.
      if (instruction.has_collective() && instruction.collective().kind() != CollectiveCall::REDUCE_SCATTER && !write)
        continue;
      const Buffer &b = buffer(index);
      bool handedOver = b.last() == at && !write && takenOver(instruction, index);
      if (!holdsState(b.arena()) && b.last() < last && !handedOver)
        report("{}: {} dies at instruction {}, but it may run until {} does", describeInstruction(entry, at),
               describe(entry, index), b.last(), last);
      for (int other = at + 1; other <= last; ++other) {
        const char *does = takenOver(entry.instructions(other), index) ? "takes the place of" : nullptr;
        for (const auto &[theirs, theyWrite] : touched(entry.instructions(other)))
          if (theirs == index && (write || theyWrite))
            does = theyWrite ? "writes" : "reads";
        if (does)
          report("{}: it may run beside instruction {}, which {} {}", describeInstruction(entry, at), other, does,
                 describe(entry, index));
      }
    }
  }

  /// Buffers of an instruction, and whether it writes them.
  std::vector<std::pair<uint32_t, bool>> touched(const Instruction &instruction) const {
    std::vector<std::pair<uint32_t, bool>> result;
    for (const Operand &operand : instruction.operands())
      if (exists(operand.buffer()))
        result.emplace_back(operand.buffer(), operand.write());
    return result;
  }

  /// True if a result of the instruction takes over this buffer's memory.
  bool takenOver(const Instruction &instruction, uint32_t from) const {
    for (const Operand &operand : instruction.operands())
      if (operand.write() && exists(operand.buffer()) && inPlace(from, operand.buffer()))
        return true;
    return false;
  }

  void verifyScratch(int at, const Instruction &instruction) {
    uint64_t wanted = instruction.has_matmul() ? instruction.matmul().library_scratch_bytes() : 0;
    uint64_t slot = instruction.scratch_slot_bytes(), shared = instruction.scratch_shared_bytes(),
             offset = instruction.scratch_offset();
    if (int64_t least = leastTiles(instruction); (instruction.has_matmul() || instruction.has_convolution()) &&
                                                 instruction.tiles() < std::max<int64_t>(least, 1))
      report("{}: it states {} tiles, and has at least {}", describeInstruction(entry, at), instruction.tiles(), least);
    if (slot % kAlignmentBytes != 0 || slot < wanted)
      report("{}: scratch slots of {} bytes, {} are needed in multiples of {}", describeInstruction(entry, at), slot,
             wanted, kAlignmentBytes);
    if (!hasScratch(instruction))
      return;
    if (!instruction.has_kernel() && !instruction.has_matmul() && !instruction.has_convolution() &&
        !instruction.has_attention())
      report("{}: it has scratch, which a copy or fill does not use", describeInstruction(entry, at));
    if (shared % kAlignmentBytes != 0)
      report("{}: shared scratch of {} bytes, no multiple of {}", describeInstruction(entry, at), shared,
             kAlignmentBytes);
    if (offset % kAlignmentBytes != 0)
      report("{}: its scratch at offset {}, no multiple of {}", describeInstruction(entry, at), offset,
             kAlignmentBytes);
    if (int32_t index = highest[static_cast<size_t>(at)]; index >= 0 && endOf(static_cast<uint32_t>(index)) > offset)
      report("{}: its scratch at offset {} begins below the end of {} at {}, which is live then",
             describeInstruction(entry, at), offset, describe(entry, static_cast<uint32_t>(index)),
             endOf(static_cast<uint32_t>(index)));
  }

  const Context &context;
  const Plan &plan;
  const Entry &entry;
  Reporter &report;
  int32_t count;
  std::vector<char> usable;
  std::vector<int32_t> highest; // the buffer that ends highest during each instruction; -1: none
  std::set<int32_t> variables;
  std::vector<uint32_t> version;
  std::vector<int> writer;
};
} // namespace

void verifyEntry(const Context &context, const Entry &entry) { EntryVerifier(context, entry).run(); }

namespace {
/// Outputs of which the runtime reads the first element (docs/design/plan-format.md).
constexpr std::array<std::string_view, 5> kNumbers = {outputs::kLossSum, outputs::kLossWeight, outputs::kGradNorm,
                                                      outputs::kCorrect, outputs::kCounted};

bool isNumberOfTraining(const Entry &entry, const std::string &output) {
  return entry.name() != entries::kPredict && entry.name() != entries::kPredictInference &&
         entry.name() != entries::kGradients &&
         (outputs::isTerm(output) || std::find(kNumbers.begin(), kNumbers.end(), output) != kNumbers.end());
}

class PortVerifier {
public:
  PortVerifier(const Context &context, const Entry &entry, const std::function<bool(uint32_t)> &isDefined)
      : plan(context.plan), entry(entry), report(context.report), isDefined(isDefined) {}

  void run() {
    for (const Port &port : entry.inputs())
      verifyInput(port);
    for (const Port &port : entry.outputs())
      verifyOutput(port);
    verifyBatch();
    if (entry.scalars() >= 0)
      verifyScalars(static_cast<uint32_t>(entry.scalars()));
    if (entry.has_counters())
      verifyCounters(entry.counters());
    // The runtime fills only the inputs, scalars and counters that the entry declares.
    for (uint32_t index = 0; exists(index); ++index) {
      Buffer::Kind kind = buffer(index).kind();
      bool filled = kind == Buffer::INPUT      ? filledInputs.contains(index)
                    : kind == Buffer::SCALARS  ? entry.scalars() == static_cast<int64_t>(index)
                    : kind == Buffer::COUNTERS ? entry.has_counters() && entry.counters() == static_cast<int64_t>(index)
                                               : true;
      if (!filled)
        report("entry '{}': nothing fills {}", entry.name(), describe(entry, index));
    }
  }

private:
  const Buffer &buffer(uint32_t index) const { return entry.buffers(static_cast<int>(index)); }
  bool exists(uint32_t index) const { return index < static_cast<uint32_t>(entry.buffers_size()); }

  bool verifyPort(const Port &port, const char *what, std::set<std::string> &names) {
    if (!names.insert(port.name()).second)
      report("entry '{}': {} '{}' is named twice", entry.name(), what, port.name());
    if (!exists(port.buffer())) {
      report("entry '{}', {} '{}': buffer {} does not exist, the entry has {}", entry.name(), what, port.name(),
             port.buffer(), entry.buffers_size());
      return false;
    }
    int rank = buffer(port.buffer()).type().dims_size();
    if (port.sample_axis() < -1 || port.sample_axis() >= std::max(rank, 1))
      report("entry '{}', {} '{}': sample axis {} of a value of rank {}", entry.name(), what, port.name(),
             port.sample_axis(), rank);
    for (const IndexRange &range : port.index_ranges()) {
      bool good = range.begin_size() == range.end_size() && (range.begin_size() == 0 || range.begin_size() == rank);
      for (int d = 0; good && d < range.begin_size(); ++d)
        good = range.begin(d) >= 0 && range.begin(d) <= range.end(d) &&
               range.end(d) <= buffer(port.buffer()).type().dims(d);
      if (!good)
        report("entry '{}', {} '{}': the range of its indices is not of its shape", entry.name(), what, port.name());
    }
    return true;
  }

  void verifyInput(const Port &port) {
    if (!verifyPort(port, "input", inputs))
      return;
    if (buffer(port.buffer()).kind() != Buffer::INPUT)
      report("entry '{}', input '{}': {} is not of kind INPUT", entry.name(), port.name(),
             describe(entry, port.buffer()));
    if (!filledInputs.insert(port.buffer()).second)
      report("entry '{}', input '{}': {} is another input already", entry.name(), port.name(),
             describe(entry, port.buffer()));
  }

  void verifyOutput(const Port &port) {
    if (!verifyPort(port, "output", outputs))
      return;
    const Buffer &b = buffer(port.buffer());
    if (isOnHost(b.arena()))
      report("entry '{}', output '{}': {} is in the memory of the host", entry.name(), port.name(),
             describe(entry, port.buffer()));
    if (b.last() != entry.instructions_size())
      report("entry '{}', output '{}': {} dies at instruction {}, before the end", entry.name(), port.name(),
             describe(entry, port.buffer()), b.last());
    if (!isDefined(port.buffer()))
      report("entry '{}', output '{}': nothing is ever written to {}", entry.name(), port.name(),
             describe(entry, port.buffer()));
    if (isNumberOfTraining(entry, port.name()) && elementCount(b.type()).value_or(0) != 1)
      report("entry '{}', output '{}': {} is {}, not one number", entry.name(), port.name(),
             describe(entry, port.buffer()), typeName(b.type()));
  }

  /// The batch size must be the length of some input's sample axis.
  void verifyBatch() {
    bool isLength = entry.batch() == 1;
    for (const Port &port : entry.inputs())
      if (exists(port.buffer()) && port.sample_axis() >= 0 &&
          port.sample_axis() < buffer(port.buffer()).type().dims_size())
        isLength |= buffer(port.buffer()).type().dims(port.sample_axis()) == entry.batch();
    if (!isLength || entry.batch() < 1)
      report("entry '{}': a batch of {} samples is that of no input", entry.name(), entry.batch());
  }

  /// The run-time scalars that an entry is given.
  uint64_t scalarsOf(const Entry &one) const {
    const std::string_view name = one.name(), base = entries::baseOf(name);
    for (const Phase &phase : plan.training().phases())
      if (name.size() > base.size() && name.substr(base.size() + 1) == phase.name())
        return static_cast<uint64_t>(phase.training().scalars_size());
    for (const Stage &stage : plan.training().stages())
      if (name.size() > base.size() && name.substr(base.size() + 1) == stage.name())
        return static_cast<uint64_t>(stage.training().scalars_size());
    return static_cast<uint64_t>(plan.training().scalars_size());
  }

  void verifyScalars(uint32_t index) {
    if (!exists(index))
      report("entry '{}': its scalars are buffer {}, it has {}", entry.name(), index, entry.buffers_size());
    else if (const Buffer &b = buffer(index); b.kind() != Buffer::SCALARS || b.type().dtype() != F32 ||
                                              elementCount(b.type()).value_or(0) < scalarsOf(entry))
      report("entry '{}': {} cannot hold the {} run-time scalars", entry.name(), describe(entry, index),
             scalarsOf(entry));
  }

  void verifyCounters(int32_t number) {
    auto index = static_cast<uint32_t>(number);
    if (!exists(index))
      report("entry '{}': its counters are buffer {}, it has {}", entry.name(), index, entry.buffers_size());
    else if (const Buffer &b = buffer(index);
             b.kind() != Buffer::COUNTERS || b.type().dtype() != U32 || elementCount(b.type()).value_or(0) != 4)
      report("entry '{}': {} cannot hold the counters of random numbers, 4 words", entry.name(),
             describe(entry, index));
  }

  const Plan &plan;
  const Entry &entry;
  Reporter &report;
  const std::function<bool(uint32_t)> &isDefined;
  std::set<std::string> inputs, outputs;
  std::set<uint32_t> filledInputs;
};
} // namespace

void verifyPorts(const Context &context, const Entry &entry, const std::function<bool(uint32_t)> &isDefined) {
  PortVerifier(context, entry, isDefined).run();
}

} // namespace tcc::plan::verifier
