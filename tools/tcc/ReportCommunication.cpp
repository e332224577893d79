//===- ReportCommunication.cpp - the collectives of a plan ----------------===//
//
// Bytes and the instructions beside a collective follow from the plan. Times are those of the planner's costs and of a
// nominal link, one message after the other: a collective begins when its instruction is reached and the previous
// collective is done; the wait for its results is exposed time. `trun profile --nproc N --all` measures the same.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/Shards.h"
#include "tools/common/TextTable.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::report {

using Json = nlohmann::ordered_json;

namespace {
constexpr size_t kShown = 12;

/// Bytes of the operands on the side of whole tensors.
uint64_t bytesOf(const plan::Entry &program, const plan::Instruction &instruction) {
  uint64_t sources = 0, results = 0;
  for (const plan::Operand &operand : instruction.operands())
    if (operand.buffer() < uint32_t(program.buffers_size()))
      (operand.write() ? results : sources) +=
          plan::tensorBytes(program.buffers(int(operand.buffer())).type()).value_or(0);
  return std::max(sources, results);
}

/// The bytes that a rank sends; for a large number of ranks if the plan does not know the number.
double sentBytes(const plan::CollectiveCall &call, double bytes, const plan::Parallel &parallel) {
  const double ranks = parallel.ranks();
  const bool some =
      ranks > 0 && call.reach() != plan::CollectiveCall::ACROSS_NODES &&
      (!plan::replicatesShards(parallel) || call.reach() == plan::CollectiveCall::WITHIN_NODE ||
       call.kind() == plan::CollectiveCall::REDUCE_SCATTER || call.kind() == plan::CollectiveCall::ALL_GATHER);
  const double share = some ? (ranks - 1) / ranks : 1;
  return bytes * share * (call.kind() == plan::CollectiveCall::ALL_REDUCE ? 2 : 1);
}

std::string kindOf(const plan::CollectiveCall &call) {
  std::string name(plan::collectiveName(call.kind()));
  return call.reach() == plan::CollectiveCall::ACROSS_NODES  ? name + " across nodes"
         : call.reach() == plan::CollectiveCall::WITHIN_NODE ? name + " in a node"
                                                             : name;
}

Json communicationOf(const ProgramMemory &memory, const plan::Parallel &parallel) {
  const plan::Entry &program = *memory.program;
  struct Collective {
    int step;
    double nanoseconds, besideNs = 0, done = 0, exposed = 0;
  };
  std::vector<Collective> all;
  Json rows = Json::array();
  double clock = 0, channel = 0;
  size_t waited = 0; // collectives that have been waited for
  auto waitBefore = [&](int step) {
    for (;
         waited < all.size() && (step < 0 || all[waited].step + program.instructions(all[waited].step).beside() < step);
         ++waited) {
      all[waited].exposed = std::max(0.0, all[waited].done - clock);
      clock = std::max(clock, all[waited].done);
    }
  };
  for (int step = 0; step < program.instructions_size(); ++step) {
    const plan::Instruction &instruction = program.instructions(step);
    waitBefore(step);
    if (!instruction.has_collective()) {
      clock += double(instruction.cost());
      continue;
    }
    if (instruction.collective().kind() == plan::CollectiveCall::OWN_SHARD)
      continue;
    const auto bytes = double(bytesOf(program, instruction));
    Collective one{step, sentBytes(instruction.collective(), bytes, parallel) / plan::kNominalLinkBytesPerNs};
    for (int beside = 1; beside <= instruction.beside(); ++beside)
      if (const plan::Instruction &other = program.instructions(step + beside); !other.has_collective())
        one.besideNs += double(other.cost());
    one.done = channel = std::max(clock, channel) + one.nanoseconds;
    all.push_back(one);
  }
  waitBefore(-1);
  double exposed = 0, sent = 0;
  for (const Collective &one : all) {
    const plan::Instruction &instruction = program.instructions(one.step);
    const double ownSent = one.nanoseconds * plan::kNominalLinkBytesPerNs;
    exposed += one.exposed;
    sent += ownSent;
    rows.push_back({{"step", one.step},
                    {"collective", kindOf(instruction.collective())},
                    {"tensors", instruction.operands_size() / 2},
                    {"node", instruction.node()},
                    {"bytes", bytesOf(program, instruction)},
                    {"sent_bytes", uint64_t(ownSent)},
                    {"beside", instruction.beside()},
                    {"beside_ns", uint64_t(one.besideNs)},
                    {"exposed_ns", uint64_t(one.exposed)}});
  }
  return {{"program", memory.name},
          {"sent_bytes", uint64_t(sent)},
          {"compute_ns", uint64_t(clock - exposed)},
          {"exposed_ns", uint64_t(exposed)},
          {"collectives", std::move(rows)}};
}

std::string timeText(const Json &nanoseconds) {
  const double value = nanoseconds.get<double>();
  return value >= 1e6 ? fmt::format("{:.1f} ms", value / 1e6) : fmt::format("{:.0f} µs", value / 1e3);
}
} // namespace

Json communicationJson(const Report &report) {
  const plan::Parallel &parallel = report.plan->training().parallel();
  Json programs = Json::array();
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      if (Json one = communicationOf(program, parallel); !one["collectives"].empty())
        programs.push_back(std::move(one));
  if (programs.empty())
    return nullptr;
  return {{"mode", parallel.mode()},
          {"ranks", parallel.ranks() ? Json(parallel.ranks()) : Json(nullptr)},
          {"link_bytes_per_second", plan::kNominalLinkBytesPerNs * 1e9},
          {"programs", std::move(programs)}};
}

std::string communicationText(const Report &report) {
  const Json all = communicationJson(report);
  if (all.is_null())
    return "";
  std::string text;
  for (const Json &program : all["programs"]) {
    const Json &rows = program["collectives"];
    text +=
        fmt::format("\ncommunication ({}): a rank sends {} in {}; of nominal {} of computing and a link of {:.0f} GB/s "
                    "{} are exposed\n",
                    program["program"].get<std::string>(), formatBytes(program["sent_bytes"].get<uint64_t>()),
                    counted(rows.size(), "collective"), timeText(program["compute_ns"]), plan::kNominalLinkBytesPerNs,
                    timeText(program["exposed_ns"]));
    Table table("><>>>>", {"instruction", "collective", "tensors", "bytes", "beside", "exposed"});
    for (size_t i = 0; i < std::min(rows.size(), kShown); ++i)
      table.add({fmt::format("#{}", rows[i]["step"].get<int>()), rows[i]["collective"].get<std::string>(),
                 std::to_string(rows[i]["tensors"].get<int>()), formatBytes(rows[i]["bytes"].get<uint64_t>()),
                 fmt::format("{} in {}", timeText(rows[i]["beside_ns"]), rows[i]["beside"].get<int>()),
                 timeText(rows[i]["exposed_ns"])});
    text += table.text();
    if (rows.size() > kShown)
      text += fmt::format("  and {} more: --json, --html\n", rows.size() - kShown);
  }
  return text;
}

} // namespace tcc::report
