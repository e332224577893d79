//===- ReportHtml.cpp - the report as one page ----------------------------===//
//
// report/ holds the scripts of this page (Page.h has the rest). The page shows the report's JSON, and for each program
// columns of numbers: one list for each property of its buffers and instructions, texts as indices into one list of
// strings. A plan of 5,000 buffers takes some 600 KB that way.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Report.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/Roles.h"
#include "runtime/plan/Shapes.h"
#include "tools/common/Page.h"

#include <string_view>
#include <unordered_map>

namespace tcc::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage =
#include "tools/tcc/ReportPage.inc"
    ;

/// Each text once, in the order of first use.
class Strings {
public:
  size_t operator()(const std::string &text) {
    auto [found, fresh] = index.try_emplace(text, list.size());
    if (fresh)
      list.push_back(text);
    return found->second;
  }
  Json json() { return std::move(list); }

private:
  std::unordered_map<std::string, size_t> index;
  Json list = Json::array();
};

/// Operations as an integer, which is shorter as text.
uint64_t wholeNumber(double value) { return value >= 0 && value < 1e18 ? uint64_t(value) : 0; }

Json buffersOf(const ProgramMemory &program, Strings &strings) {
  Json columns;
  for (const char *name : {"name", "node", "type", "why", "purpose", "bytes", "offset", "first", "last"})
    columns[name] = Json::array();
  for (int id = 0; id < program.program->buffers_size(); ++id) {
    const plan::Buffer &buffer = program.program->buffers(id);
    columns["name"].push_back(strings(buffer.name()));
    columns["node"].push_back(strings(buffer.node()));
    columns["type"].push_back(strings(plan::typeName(buffer.type())));
    columns["why"].push_back(strings(buffer.why_alive()));
    columns["purpose"].push_back(size_t(program.lives.buffers[size_t(id)].purpose));
    columns["bytes"].push_back(buffer.bytes());
    columns["offset"].push_back(buffer.offset());
    columns["first"].push_back(buffer.first());
    columns["last"].push_back(buffer.last());
  }
  return columns;
}

void addInstructions(const ProgramMemory &program, Strings &strings, Json &result) {
  for (const char *name : {"live", "kernel", "node", "nodes", "flops", "bytes", "cost", "beside", "reads", "writes"})
    result[name] = Json::array();
  std::string phases;
  for (const TimelineRow &row : program.timeline) {
    const plan::Instruction &instruction = program.program->instructions(row.step);
    result["live"].push_back(row.liveBytes);
    result["kernel"].push_back(strings(row.instruction));
    result["node"].push_back(strings(row.node));
    Json nodes = Json::array(), reads = Json::array(), writes = Json::array();
    for (const std::string &node : instruction.nodes())
      nodes.push_back(strings(node));
    for (const plan::Operand &operand : instruction.operands()) {
      if (operand.buffer() >= uint32_t(program.program->buffers_size()))
        continue;
      if (operand.read())
        reads.push_back(operand.buffer());
      if (operand.write())
        writes.push_back(operand.buffer());
    }
    result["nodes"].push_back(std::move(nodes));
    result["reads"].push_back(std::move(reads));
    result["writes"].push_back(std::move(writes));
    result["flops"].push_back(wholeNumber(instruction.flops()));
    result["bytes"].push_back(instruction.bytes());
    result["cost"].push_back(instruction.cost());
    result["beside"].push_back(instruction.beside());
    phases += "FBUR"[size_t(program.lives.phases[size_t(row.step)])];
  }
  result["phase"] = phases;
}

Json programOf(const plan::Plan &plan, const std::string &entry, const ProgramMemory &program, const Json &frontier,
               Strings &strings) {
  Json result = {{"entry", entry},
                 {"name", program.name},
                 {"batch", program.program->batch()},
                 {"shape", plan::shapeText(plan, *program.program)},
                 {"arena_bytes", program.arenaBytes},
                 {"peak_bytes", program.peakBytes},
                 {"peak_step", program.peakStep()},
                 {"without_recompute_bytes", program.withoutRecomputeBytes},
                 {"frontier", Json::array()}};
  for (const Json &point : frontier)
    if (point["program"] == program.name)
      result["frontier"].push_back(point);
  addInstructions(program, strings, result);
  result["buffers"] = buffersOf(program, strings);
  return result;
}

Json variablesOf(const plan::Plan &plan) {
  Json rows = Json::array();
  for (const plan::Variable &variable : plan.variables())
    rows.push_back({{"name", variable.name()},
                    {"role", plan::roleName(variable.role())},
                    {"type", plan::typeName(variable.type())},
                    {"bytes", plan::tensorBytes(variable.type()).value_or(0)},
                    {"offset", variable.offset()},
                    {"node", variable.node()}});
  return rows;
}

} // namespace

std::string reportHtml(const Report &report) {
  Strings strings;
  Json data;
  data["report"] = reportJson(report, false);
  data["counted"] = report.counted;
  data["recipe"] = report.plan->recipe();
  data["variables"] = variablesOf(*report.plan);
  data["programs"] = Json::array();
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs)
      data["programs"].push_back(
          programOf(*report.plan, entry.name, program, data["report"]["memory"]["frontier"], strings));
  data["strings"] = strings.json();

  return pageWith(kPage, data);
}

} // namespace tcc::report
