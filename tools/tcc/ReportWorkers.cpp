//===- ReportWorkers.cpp - memory and speed of more workers ---------------===//
//
// Parallel efficiency follows from tile counts and the planner's costs alone: an instruction ends when the worker with
// the most tiles is done. Memory bandwidth and caches are ignored.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/Parallelism.h"
#include "tools/common/TextTable.h"

#include <fmt/format.h>

namespace tcc::report {

using Json = nlohmann::ordered_json;

namespace {
constexpr uint64_t kMostWorkers = 128;
constexpr size_t kLimitingShown = 8;

Json workersOf(const ProgramMemory &memory) {
  const plan::Entry &program = *memory.program;
  Json counts = Json::array(), limiting = Json::array();
  // The entry of the plan: `program` has a buffer for the scratch of max_workers.
  for (uint64_t workers = 1; workers <= kMostWorkers; workers *= 2)
    counts.push_back({{"workers", workers},
                      {"arena_bytes", plan::transientBytes(*memory.planned, workers)},
                      {"efficiency", plan::parallelEfficiency(program, workers)}});
  const std::vector<plan::IdleTime> idle = plan::idleTimes(program, kMostWorkers);
  double sum = 0;
  for (const plan::IdleTime &one : idle)
    sum += one.nanoseconds;
  for (size_t i = 0; i < std::min(idle.size(), kLimitingShown); ++i) {
    const plan::Instruction &instruction = program.instructions(idle[i].instruction);
    limiting.push_back({{"step", idle[i].instruction},
                        {"instruction", instructionName(instruction)},
                        {"node", instruction.node()},
                        {"tiles", plan::tilesOf(program, instruction)},
                        {"idle_share", idle[i].nanoseconds / sum}});
  }
  return {{"program", memory.name}, {"counts", counts}, {"limiting", limiting}};
}
} // namespace

Json workersJson(const Report &report) {
  Json result = {{"planned", report.plan->max_workers()}, {"programs", Json::array()}};
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      result["programs"].push_back(workersOf(program));
  return result;
}

std::string workersText(const Report &report) {
  const ProgramMemory *shown = report.largest();
  if (!shown || shown->timeline.empty())
    return "";
  const Json workers = workersOf(*shown);
  std::string text = fmt::format("\nworkers ({}): arena, and efficiency by tiles and planned costs\n", shown->name);
  Table counts(">>>", {"workers", "arena", "efficiency"});
  for (const Json &row : workers["counts"])
    counts.add({std::to_string(row["workers"].get<uint64_t>()), formatBytes(row["arena_bytes"].get<uint64_t>()),
                fmt::format("{:.1f} %", 100 * row["efficiency"].get<double>())});
  text += counts.text();
  if (workers["limiting"].empty())
    return text;
  text += fmt::format("  idle time of {} workers, by instruction\n", kMostWorkers);
  Table limiting(">><<", {"share", "tiles", "instruction", "node"});
  for (const Json &row : workers["limiting"])
    limiting.add({fmt::format("{:.1f} %", 100 * row["idle_share"].get<double>()),
                  std::to_string(row["tiles"].get<int64_t>()), row["instruction"].get<std::string>(),
                  row["node"].get<std::string>()});
  return text + limiting.text();
}

} // namespace tcc::report
