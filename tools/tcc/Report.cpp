//===- Report.cpp - numbers that follow from a plan -----------------------===//
//
// Live bytes are the union of the address ranges of all live values: values that alias on purpose (a result in its
// operand's memory) count once, and the plan's list of in-place pairs need not be trusted. The planner's own sums are
// not used.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Report.h"
#include "runtime/cpu/calls/Needs.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/InitializerLists.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Shapes.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VirtualRanks.h"
#include "support/Json.h"
#include "support/PlanNames.h"
#include "tools/common/InstructionText.h"
#include "tools/tcc/ReportSections.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::report {

namespace {

std::vector<const ProgramMemory *> programsOf(const Report &report) {
  std::vector<const ProgramMemory *> programs;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      programs.push_back(&program);
  return programs;
}

/// Bytes of the arena that hold something live at each time, overlaps counted once. Time 0 is the entry's start, time
/// i + 1 instruction i, the last time the entry's end.
std::vector<uint64_t> liveBytes(const plan::Entry &program) {
  size_t times = size_t(program.instructions_size()) + 2;
  auto timeOf = [&](int32_t instruction) {
    return size_t(std::clamp<int64_t>(int64_t(instruction) + 1, 0, int64_t(times) - 1));
  };
  std::vector<std::vector<const plan::Buffer *>> born(times), died(times);
  for (const plan::Buffer &buffer : program.buffers())
    if (buffer.arena() == plan::TRANSIENT && buffer.last() >= buffer.first()) {
      born[timeOf(buffer.first())].push_back(&buffer);
      died[timeOf(buffer.last())].push_back(&buffer);
    }
  std::multiset<std::pair<uint64_t, uint64_t>> places; // address ranges of live values: start and end, by start
  std::vector<uint64_t> live(times, 0);
  for (size_t time = 0; time < times; ++time) {
    for (const plan::Buffer *buffer : born[time])
      places.emplace(buffer->offset(), buffer->offset() + buffer->bytes());
    uint64_t end = 0;
    for (auto [start, stop] : places) {
      start = std::max(end, start);
      live[time] += stop > start ? stop - start : 0;
      end = std::max(end, stop);
    }
    for (const plan::Buffer *buffer : died[time])
      places.erase(places.find({buffer->offset(), buffer->offset() + buffer->bytes()}));
  }
  return live;
}

/// The entry with the scratch of so many workers added as buffers, each live during one instruction.
std::shared_ptr<plan::Entry> withScratch(const plan::Entry &entry, uint32_t workers) {
  auto shown = std::make_shared<plan::Entry>(entry);
  for (int32_t at = 0; at < entry.instructions_size(); ++at) {
    const plan::Instruction &instruction = entry.instructions(at);
    const uint64_t bytes = plan::scratchBytes(entry, instruction, workers);
    if (!bytes)
      continue;
    plan::Buffer &buffer = *shown->add_buffers();
    buffer.set_name(fmt::format("{} scratch #{}", instruction.node(), at));
    buffer.set_node(instruction.node());
    buffer.set_arena(plan::TRANSIENT);
    buffer.set_offset(instruction.scratch_offset());
    buffer.set_bytes(bytes);
    buffer.mutable_type()->set_dtype(plan::U8);
    buffer.mutable_type()->add_dims(static_cast<int64_t>(bytes));
    buffer.set_first(at);
    buffer.set_last(at);
    buffer.set_variable(-1);
    buffer.set_kind(plan::Buffer::PARTIAL_SUMS);
    buffer.set_why_alive("used by one instruction");
  }
  return shown;
}

ProgramMemory analyzeProgram(const plan::Plan &plan, const plan::Entry &entry) {
  ProgramMemory memory;
  memory.program = withScratch(entry, plan.max_workers());
  memory.planned = &entry;
  const plan::Entry &program = *memory.program;
  memory.name = program.name();
  memory.lives = emit::analyzeLives(plan, program);
  memory.arenaBytes = program.transient_bytes();
  std::vector<uint64_t> live = liveBytes(program);
  int32_t count = program.instructions_size();
  for (int32_t step = 0; step < count; ++step) {
    const plan::Instruction &instruction = program.instructions(step);
    // Unread inputs and outputs live before or after all instructions: count them at the first and the last.
    uint64_t bytes = live[size_t(step) + 1];
    if (step == 0)
      bytes = std::max(bytes, live.front());
    if (step + 1 == count)
      bytes = std::max(bytes, live.back());
    memory.timeline.push_back(
        {step, plan::spaceBytes(plan, plan::RESIDENT) + bytes, instructionName(instruction), instruction.node()});
    memory.peakBytes = std::max(memory.peakBytes, memory.timeline.back().liveBytes);
  }
  if (count == 0)
    memory.peakBytes = plan::spaceBytes(plan, plan::RESIDENT) + std::max(live.front(), live.back());
  memory.lowerBoundBytes = memory.peakBytes;
  memory.recomputation = analyzeRecomputation(program, memory.lives);
  memory.offload = analyzeOffload(plan, program);
  // Without recomputation both figures are equal.
  bool known = !memory.recomputation.tensors.empty() && program.without_recompute_bytes();
  memory.withoutRecomputeBytes =
      known ? plan::spaceBytes(plan, plan::RESIDENT) + program.without_recompute_bytes() : memory.peakBytes;
  return memory;
}

/// How often each program runs in one update, in a plan of several shapes in the one of most operations, whose
/// dimensions are `shape`; empty if the plan does not train.
std::map<std::string, uint64_t> callsPerUpdate(const Report &report, std::string &shape) {
  std::map<std::string, uint64_t> calls;
  std::map<uint64_t, double> flops; // by shape
  auto visit = [&](auto take) {
    for (const EntryMemory &entry : report.entries)
      for (const ProgramMemory &program : entry.programs)
        if (entries::isOfUpdate(program.name))
          take(*program.program, entries::readsStateAlone(program.name));
  };
  visit([&](const plan::Entry &program, bool) {
    flops[entries::shapeNumberOf(program.name())] +=
        program.flops() * double(plan::callsPerUpdate(report.plan->training(), program.name()));
  });
  const auto most = std::ranges::max_element(flops, {}, [](const auto &one) { return one.second; });
  visit([&](const plan::Entry &program, bool ofAll) {
    if (!ofAll && entries::shapeNumberOf(program.name()) != most->first)
      return;
    calls[program.name()] = plan::callsPerUpdate(report.plan->training(), program.name());
    if (!ofAll)
      shape = plan::shapeText(*report.plan, program);
  });
  return calls;
}

/// The name of the first state that the instruction writes; empty if it writes none.
std::string writtenVariable(const plan::Plan &plan, const plan::Entry &entry, const plan::Instruction &instruction) {
  for (const plan::Operand &operand : instruction.operands()) {
    if (!operand.write() || operand.buffer() >= uint32_t(entry.buffers_size()))
      continue;
    int32_t variable = entry.buffers(int(operand.buffer())).variable();
    if (variable >= 0 && variable < plan.variables_size())
      return plan.variables(variable).name();
  }
  return "";
}

void countKernels(Report &report) {
  std::string shape;
  std::map<std::string, uint64_t> &calls = report.calls;
  calls = callsPerUpdate(report, shape);
  report.counted = shape.empty() ? "one update" : fmt::format("one update ({})", shape);
  bool trains = !calls.empty();
  for (const char *name : {entries::kGradients, entries::kEvaluate, entries::kPredict})
    if (calls.empty())
      for (const EntryMemory &entry : report.entries)
        if (entry.name == name) {
          calls[name] = 1;
          report.counted = std::string("one call of ") + name;
        }
  std::map<std::string, size_t> index;
  std::vector<std::set<std::string>> seen;
  for (const ProgramMemory *program : programsOf(report)) {
    const plan::Entry &entry = *program->program;
    auto found = calls.find(entry.name());
    if (found == calls.end() || found->second == 0)
      continue;
    if (trains)
      report.flopsPerStep += entry.flops() * double(found->second);
    addRecomputation(report.recomputation, program->recomputation, found->second);
    addOffload(report.offload, program->offload, found->second);
    for (int step = 0; step < entry.instructions_size(); ++step) {
      const plan::Instruction &instruction = entry.instructions(step);
      std::string name = instructionName(instruction);
      auto [at, fresh] = index.try_emplace(name, report.kernels.size());
      if (fresh) {
        report.kernels.push_back({name, {}, 0, 0, 0, instruction.has_kernel()});
        seen.emplace_back();
      }
      KernelUse &use = report.kernels[at->second];
      use.flops += instruction.flops() * double(found->second);
      use.bytes += instruction.bytes() * found->second;
      use.count += found->second;
      if (int until = step + instruction.beside(); until > step && until < entry.instructions_size())
        use.beside.push_back({entry.name(), step, until, instruction.node(),
                              writtenVariable(*report.plan, entry, instruction), entry.instructions(step + 1).node(),
                              entry.instructions(until).node()});
      for (const std::string &node : instruction.nodes())
        if (seen[at->second].insert(node).second)
          use.nodes.push_back(node);
    }
  }
  std::stable_sort(report.kernels.begin(), report.kernels.end(), [](const KernelUse &a, const KernelUse &b) {
    return a.flops != b.flops ? a.flops > b.flops : a.bytes > b.bytes;
  });
}

/// True if a program is the one of its name in `variant`, or, if the variant has none, in the first that has one.
bool belongs(const plan::Plan &plan, const plan::Entry &program, uint32_t variant) {
  if (program.variant() == variant)
    return true;
  for (const plan::Entry &other : plan.entries())
    if (other.name() == program.name() && (other.variant() == variant || other.variant() < program.variant()))
      return false;
  return true;
}

template <typename Get> uint64_t largestOf(const std::vector<ProgramMemory> &programs, Get get) {
  uint64_t most = 0;
  for (const ProgramMemory &program : programs)
    most = std::max(most, get(program));
  return most;
}

} // namespace

std::string instructionName(const plan::Instruction &instruction) {
  switch (instruction.call_case()) {
  case plan::Instruction::kKernel:
    return instruction.kernel().symbol();
  case plan::Instruction::kMatmul:
    return "matmul " + runtime::implementationName(instruction.matmul()) + epilogueText(instruction.matmul()) +
           (instruction.matmul().has_row_kernel() ? " " + instruction.matmul().row_kernel().symbol() : "");
  case plan::Instruction::kConvolution: {
    static constexpr const char *kinds[] = {"convolution", "convolution input gradient", "convolution weight gradient"};
    int kind = instruction.convolution().kind();
    return std::string(kind >= 0 && kind < 3 ? kinds[kind] : "convolution") +
           (instruction.convolution().implementation() == plan::ConvolutionCall::CUDNN ? " cuDNN" : "") +
           finishText(instruction.convolution());
  }
  case plan::Instruction::kAttention:
    return instruction.attention().kind() == plan::AttentionCall::GRADIENT ? "attention gradient cuDNN"
                                                                           : "attention cuDNN";
  case plan::Instruction::kCopy:
    return "copy";
  case plan::Instruction::kFill:
    return "fill";
  case plan::Instruction::kCollective:
    return std::string(plan::collectiveName(instruction.collective().kind()));
  case plan::Instruction::kTransfer:
    return "transfer between card and host";
  case plan::Instruction::CALL_NOT_SET:
    break;
  }
  return "unknown";
}

bool isGeneralNote(const plan::Decisions::Note &note) {
  return !isDecisionNote(note) && !isStopNote(note) && !isAttentionNote(note) && !isEpilogueNote(note);
}

uint64_t EntryMemory::peakBytes() const {
  return largestOf(programs, [](auto &p) { return p.peakBytes; });
}
uint64_t EntryMemory::arenaBytes() const {
  return largestOf(programs, [](auto &p) { return p.arenaBytes; });
}
uint64_t EntryMemory::lowerBoundBytes() const {
  return largestOf(programs, [](auto &p) { return p.lowerBoundBytes; });
}
uint64_t EntryMemory::withoutRecomputeBytes() const {
  return largestOf(programs, [](auto &p) { return p.withoutRecomputeBytes; });
}

int32_t ProgramMemory::peakStep() const {
  for (const TimelineRow &row : timeline)
    if (row.liveBytes == peakBytes)
      return row.step;
  return -1;
}

const ProgramMemory *Report::largest() const {
  const ProgramMemory *most = nullptr;
  for (const EntryMemory &entry : entries)
    for (const ProgramMemory &program : entry.programs)
      if (!most || program.peakBytes > most->peakBytes)
        most = &program;
  return most;
}

uint64_t Report::peakBytes() const {
  return largest() ? largest()->peakBytes : plan::spaceBytes(*plan, plan::RESIDENT);
}
uint64_t Report::lowerBoundBytes() const {
  uint64_t most = plan::spaceBytes(*plan, plan::RESIDENT);
  for (const EntryMemory &entry : entries)
    most = std::max(most, entry.lowerBoundBytes());
  return most;
}

uint64_t Report::withoutRecomputeBytes() const {
  uint64_t most = plan::spaceBytes(*plan, plan::RESIDENT);
  for (const EntryMemory &entry : entries)
    most = std::max(most, entry.withoutRecomputeBytes());
  return most;
}

const char *purposeName(emit::Purpose purpose) {
  static constexpr const char *names[emit::kPurposes] = {"activation", "saved",  "recomputed", "gradient",
                                                         "input",      "output", "scratch",    "state"};
  return names[size_t(purpose)];
}

Report analyzePlan(const plan::Plan &plan, uint64_t planFileBytes, uint32_t variant) {
  Report report;
  report.plan = &plan;
  report.variant = variant;
  report.arenaBytes = plan.variants_size() ? 0 : plan::spaceBytes(plan, plan::TRANSIENT);
  for (const plan::Entry &program : plan.entries()) {
    if (!belongs(plan, program, variant))
      continue;
    report.arenaBytes = std::max(report.arenaBytes, program.transient_bytes());
    const std::string &given = program.name();
    std::string name =
        entries::isOfUpdate(given) ? entries::kTrain : given.substr(0, given.find(entries::kShapeMark));
    auto entry = std::find_if(report.entries.begin(), report.entries.end(), [&](auto &e) { return e.name == name; });
    if (entry == report.entries.end())
      entry = report.entries.insert(entry, EntryMemory{name, {}});
    entry->programs.push_back(analyzeProgram(plan, program));
  }
  for (const plan::Variable &variable : plan.variables())
    if (!plan::isOnHost(variable.arena()))
      report.residentBytes[variable.role()] += plan::tensorBytes(variable.type()).value_or(0);
  // Other payloads are released once the weights are in the arena.
  report.hostBytes = planFileBytes;
  for (const plan::Payload &payload : plan.payloads())
    report.hostBytes -= std::min(report.hostBytes, payload.bytes());
  for (const plan::CodeObject &code : plan.code_objects())
    if (code.payload() < uint32_t(plan.payloads_size()))
      report.hostBytes += plan.payloads(int(code.payload())).bytes();
  report.hostMemory = runtime::hostMemoryOf(plan, plan.training(), plan.data());
  report.hostBytes += report.hostMemory.total();
  countKernels(report);
  return report;
}

} // namespace tcc::report

// measureProcess gives the only numbers of a report that do not follow from the plan: the memory of shared libraries,
// heap and primitives is measured, in the program that will run the plan.
extern char **environ;

namespace tcc::report {

namespace {
/// Standard output of a command that ends with status 0.
std::optional<std::string> outputOf(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  bool started = ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char block[4096];
  while (started) {
    ssize_t count = ::read(ends[0], block, sizeof(block));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    text.append(block, size_t(count));
  }
  ::close(ends[0]);
  int status = 0;
  while (started && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!started || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return std::nullopt;
  return text;
}
} // namespace

std::optional<ProcessMemory> measureProcess(const std::string &planPath, const std::string &target,
                                            uint32_t variant) {
  std::error_code code;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code)
    return std::nullopt;
  std::optional<std::string> text =
      outputOf({(self.parent_path() / "trun").string(), "memory", planPath, "--target", target, "--variant",
                std::to_string(variant)});
  nlohmann::json line = parseJsonOrNull(text.value_or(""));
  if (!line.is_object())
    return std::nullopt;
  return ProcessMemory{line.value("process_bytes", uint64_t(0)), line.value("host_bytes", uint64_t(0)),
                       line.value("library_bytes", uint64_t(0))};
}

/// Earlier plans: a note on each initializer of rank 1 and more; the variable's role says the rest.
static constexpr char kParameterNote[] = "parameter";

std::vector<Decision> decisionsOf(const plan::Plan &plan) {
  std::map<std::string, const plan::Variable *> variables;
  for (const plan::Variable &variable : plan.variables())
    variables[variable.name()] = &variable;
  std::vector<Decision> decisions;
  for (const plan::Decisions::Note &note : plan.decisions().notes()) {
    auto found = variables.find(note.subject());
    const plan::Variable *variable = found == variables.end() ? nullptr : found->second;
    if (plan::lists::isList(note.kind()))
      decisions.push_back({note.subject(), note.kind(), note.text(), variable});
    else if (note.kind() == kParameterNote && variable)
      decisions.push_back({note.subject(),
                           variable->role() == plan::PARAMETER ? plan::lists::kTrained : plan::lists::kFrozen,
                           note.text(), variable});
  }
  return decisions;
}

bool isDecisionNote(const plan::Decisions::Note &note) {
  return note.kind() == kParameterNote || plan::lists::isList(note.kind());
}

using Json = nlohmann::ordered_json;

bool isStopNote(const plan::Decisions::Note &note) { return note.kind() == "stop_gradient"; }

Json stopsJson(const plan::Plan &plan) {
  Json rows = Json::array();
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (isStopNote(note))
      rows.push_back({{"node", note.subject()}, {"source", note.text()}});
  return rows;
}

std::string stopsText(const plan::Plan &plan) {
  constexpr size_t kShown = 12;
  const Json rows = stopsJson(plan);
  if (rows.empty())
    return "";
  std::string text = fmt::format("\nstopped gradients: {}\n", counted(rows.size(), "node"));
  Table table("<<", {"  node", "marked by"});
  const size_t shown = rows.size() > kShown + 1 ? kShown : rows.size();
  for (size_t i = 0; i < shown; ++i)
    table.add({"  " + rows[i]["node"].get<std::string>(), rows[i]["source"].get<std::string>()});
  text += table.text();
  if (shown < rows.size())
    text += fmt::format("  and {} more\n", rows.size() - shown);
  return text;
}

} // namespace tcc::report
