//===- ReportJson.cpp - the report for programs ---------------------------===//
//
// Keys are a contract (docs/guide/report.md). A value that this version cannot know is 0, an empty list or null; its
// key is never left out.
//
//===----------------------------------------------------------------------===//
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Stages.h"
#include "tools/common/Stages.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportSections.h"

#include <set>

namespace tcc::report {

namespace {

using Json = nlohmann::ordered_json;

/// Live bytes at each instruction of a program.
Json timelineOf(const ProgramMemory &program) {
  Json rows = Json::array();
  for (const TimelineRow &row : program.timeline)
    rows.push_back(
        {{"step", row.step}, {"live_bytes", row.liveBytes}, {"instruction", row.instruction}, {"node", row.node}});
  return rows;
}

Json buffersOf(const ProgramMemory &program) {
  Json rows = Json::array();
  for (int id = 0; id < program.program->buffers_size(); ++id) {
    const plan::Buffer &buffer = program.program->buffers(id);
    rows.push_back({{"name", buffer.name()},
                    {"node", buffer.node()},
                    {"bytes", buffer.bytes()},
                    {"offset", buffer.offset()},
                    {"first", buffer.first()},
                    {"last", buffer.last()},
                    {"why_alive", buffer.why_alive()},
                    {"arena", plan::kSpaceNames[size_t(buffer.arena())]},
                    {"purpose", purposeName(program.lives.buffers[size_t(id)].purpose)}});
  }
  return rows;
}

Json frontierOf(const plan::Plan &plan, const ProgramMemory &program) {
  const uint64_t stateBytes = plan::spaceBytes(plan, plan::RESIDENT) + plan::spaceBytes(plan, plan::HOST_RESIDENT);
  Json rows = Json::array();
  for (const plan::FrontierPoint &point : program.program->frontier())
    rows.push_back({{"program", program.name},
                    {"arena_bytes", point.transient_bytes()},
                    {"cost_ns", point.cost()},
                    {"lower_bound_cost_ns", point.lower_bound_cost()},
                    {"device_bytes", stateBytes - point.moved_state_bytes() + point.transient_bytes()},
                    {"host_bytes", point.host_bytes() + point.moved_state_bytes()},
                    {"moved_state_bytes", point.moved_state_bytes()},
                    {"chosen", point.chosen()}});
  return rows;
}

Json recomputeOf(const Recomputation &recomputation) {
  Json tensors = Json::array();
  for (const RecomputedTensor &tensor : recomputation.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"node", tensor.node},
                       {"bytes", tensor.bytes},
                       {"flops", tensor.flops},
                       {"cost_ns", tensor.cost},
                       {"program", tensor.program},
                       {"given_up", tensor.givenUp < 0 ? Json(nullptr) : Json(tensor.givenUp)},
                       {"step", tensor.step}});
  return {{"extra_flops_fraction", recomputation.extraFlopsFraction()},
          {"extra_cost_fraction", recomputation.extraCostFraction()},
          {"bound_fraction", recomputation.boundFraction()},
          {"gap", recomputation.gap()},
          {"saved_bytes", recomputation.bytes},
          {"cost_ns", recomputation.cost},
          {"lower_bound_cost_ns", recomputation.lowerBoundCost},
          {"tensors", std::move(tensors)}};
}

Json variantsOf(const Report &report) {
  Json rows = Json::array();
  for (int i = 0; i < report.plan->variants_size(); ++i) {
    const plan::Variant &variant = report.plan->variants(i);
    rows.push_back({{"arena_bytes", variant.transient_bytes()},
                    {"bytes", plan::spaceBytes(*report.plan, plan::RESIDENT) + variant.transient_bytes()},
                    {"cost_ns", variant.cost()},
                    {"reported", uint32_t(i) == report.variant}});
  }
  return rows;
}

Json memoryOf(const Report &report, bool details) {
  const plan::Plan &plan = *report.plan;
  Json memory;
  memory["peak_bytes"] = report.peakBytes();
  memory["arena_bytes"] = report.arenaBytes;
  memory["resident_bytes"] = plan::spaceBytes(plan, plan::RESIDENT);
  memory["host_bytes"] = report.hostBytes;
  memory["host"] = {{"averages", report.hostMemory.averages},
                    {"staging", report.hostMemory.staging},
                    {"loader", report.hostMemory.loader},
                    {"kept_for_card", report.hostMemory.kept}};
  memory["library_bytes"] = report.process ? report.process->libraryBytes : 0;
  memory["process_bytes"] = report.process ? report.process->processBytes : 0;
  memory["budget_bytes"] = plan.budget_bytes() ? Json(plan.budget_bytes()) : Json(nullptr);
  memory["lower_bound_bytes"] = report.lowerBoundBytes();
  memory["without_recompute_bytes"] = report.withoutRecomputeBytes();
  auto role = [&](plan::VariableRole role) {
    auto found = report.residentBytes.find(role);
    return found == report.residentBytes.end() ? uint64_t(0) : found->second;
  };
  memory["resident"] = {{"parameters", role(plan::PARAMETER)},
                        {"frozen", role(plan::FROZEN)},
                        {"constants", role(plan::CONSTANT)},
                        {"optimizer", role(plan::OPTIMIZER)},
                        {"accumulators", role(plan::ACCUMULATOR)},
                        {"averages", role(plan::EMA)}};
  memory["variants"] = variantsOf(report);
  memory["frontier"] = Json::array();
  memory["entries"] = Json::object();
  for (const EntryMemory &entry : report.entries) {
    Json &row = memory["entries"][entry.name];
    row["peak_bytes"] = entry.peakBytes();
    row["arena_bytes"] = entry.arenaBytes();
    row["lower_bound_bytes"] = entry.lowerBoundBytes();
    row["without_recompute_bytes"] = entry.withoutRecomputeBytes();
    for (const ProgramMemory &program : entry.programs) {
      for (const Json &point : frontierOf(plan, program))
        memory["frontier"].push_back(point);
      row["programs"][program.name] = {{"peak_bytes", program.peakBytes},
                                       {"arena_bytes", program.arenaBytes},
                                       {"lower_bound_bytes", program.lowerBoundBytes},
                                       {"without_recompute_bytes", program.withoutRecomputeBytes},
                                       {"instructions", program.program->instructions_size()},
                                       {"batch", program.program->batch()},
                                       {"flops", program.program->flops()},
                                       {"cost_ns", program.recomputation.cost}};
      for (const plan::Dim &dim : program.program->dims())
        row["programs"][program.name]["dims"][dim.name()] = dim.value();
      if (details) {
        row["programs"][program.name]["timeline"] = timelineOf(program);
        row["programs"][program.name]["buffers"] = buffersOf(program);
      }
    }
  }
  const ProgramMemory *largest = report.largest();
  memory["program"] = largest ? Json(largest->name) : Json(nullptr);
  if (details) {
    memory["timeline"] = largest ? timelineOf(*largest) : Json::array();
    memory["buffers"] = largest ? buffersOf(*largest) : Json::array();
  }
  return memory;
}

Json zeroFill(const plan::Plan &plan) {
  Json result = {{"elided", Json::array()}, {"kept", Json::array()}};
  for (const plan::Decisions::ZeroFill &fill : plan.decisions().zero_fill_elided())
    result["elided"].push_back({{"parameter", fill.parameter()}, {"bytes", fill.bytes()}, {"reason", fill.reason()}});
  for (const plan::Decisions::ZeroFill &fill : plan.decisions().zero_fill_kept())
    result["kept"].push_back({{"parameter", fill.parameter()}, {"bytes", fill.bytes()}, {"reason", fill.reason()}});
  return result;
}

Json parameters(const plan::Plan &plan) {
  std::set<std::string> unused;
  Json result = {{"trainable", Json::array()},
                 {"frozen", Json::array()},
                 {"unused", Json::array()},
                 {"groups", Json::array()},
                 {"stages", report::stagesJson(plan::stagesOf(plan))}};
  for (const plan::Decisions::Unused &parameter : plan.decisions().unused_parameters()) {
    unused.insert(parameter.name());
    result["unused"].push_back(
        {{"name", parameter.name()}, {"reason", parameter.reason()}, {"node", parameter.node()}});
  }
  for (const plan::Variable &variable : plan.variables()) {
    if (unused.count(variable.name()))
      continue;
    if (variable.role() == plan::PARAMETER)
      result["trainable"].push_back(variable.name());
    else if (variable.role() == plan::FROZEN)
      result["frozen"].push_back(variable.name());
  }
  result["decisions"] = Json::array();
  for (const Decision &decision : decisionsOf(plan)) {
    const plan::Variable *variable = decision.variable;
    result["decisions"].push_back(
        {{"name", decision.name},
         {"decision", decision.list},
         {"sign", decision.reason},
         {"doubtful", decision.reason.starts_with("doubtful")},
         {"node", variable ? variable->node() : ""},
         {"folded_from", !variable || variable->display().empty() ? Json(nullptr) : Json(variable->display())}});
  }
  result["ties"] = Json::array();
  for (const plan::Tie &tie : plan.ties())
    result["ties"].push_back({{"name", tie.name()}, {"of", tie.of()}, {"permutation", tie.permutation()}});
  const plan::Optimizer &optimizer = plan.training().optimizer();
  for (int i = 0; i < optimizer.groups_size(); ++i) {
    Json group = {{"name", optimizer.groups(i).name()},
                  {"lr_scale", optimizer.groups(i).lr_scale()},
                  {"weight_decay", optimizer.groups(i).weight_decay()},
                  {"parameters", Json::array()}};
    if (i < plan.decisions().groups_size())
      for (const std::string &name : plan.decisions().groups(i).parameters())
        group["parameters"].push_back(name);
    result["groups"].push_back(std::move(group));
  }
  return result;
}

/// Of several losses; empty for one.
Json losses(const plan::Plan &plan) {
  Json list = Json::array();
  for (const plan::LossTerm &loss : plan.training().losses())
    list.push_back(
        {{"name", loss.name()},
         {"scale", loss.scale()},
         {"sample_weight", loss.sample_weight().empty() ? Json(nullptr) : Json(loss.sample_weight())}});
  return list;
}

/// Null without adapters.
Json adaptersOf(const Report &report) {
  const plan::Plan &plan = *report.plan;
  if (!plan.has_adapters())
    return nullptr;
  const plan::Adapters &adapters = plan.adapters();
  Json list = Json::array();
  for (const plan::Adapter &adapter : adapters.list())
    list.push_back(
        {{"of", adapter.of()}, {"a", adapter.a()}, {"b", adapter.b()}, {"input_first", adapter.input_first()}});
  return {{"rank", adapters.rank()},
          {"alpha", adapters.alpha()},
          {"scale", adapters.scale()},
          {"dropout", adapters.dropout()},
          {"list", std::move(list)},
          {"base", integerBaseJson(report)}};
}

} // namespace

Json reportJson(const Report &report, bool details) {
  const plan::Plan &plan = *report.plan;
  Json result;
  result["version"] = 1;
  result["model"] = plan.model();
  result["target"] = plan.target();
  result["precision"] = plan.precision();
  result["producer"] = plan.producer();
  result["library"] = plan.library();
  result["max_workers"] = plan.max_workers();
  result["entries"] = Json::array();
  for (const EntryMemory &entry : report.entries)
    result["entries"].push_back(entry.name);
  result["memory"] = memoryOf(report, details);
  result["workers"] = workersJson(report);
  if (Json communication = communicationJson(report); !communication.is_null())
    result["communication"] = std::move(communication);
  result["recompute"] = recomputeOf(report.recomputation);
  result["offload"] = offloadJson(report);
  result["attention"] = attentionJson(plan);
  result["epilogues"] = epiloguesJson(plan);
  result["stop_gradient"] = stopsJson(plan);
  result["zero_fill"] = zeroFill(plan);
  result["losses"] = losses(plan);
  result["parameters"] = parameters(plan);
  result["adapters"] = adaptersOf(report);
  result["kernels"] = Json::array();
  for (const KernelUse &kernel : report.kernels) {
    Json beside = Json::array();
    for (const BesideOthers &call : kernel.beside)
      beside.push_back({{"program", call.program},
                        {"step", call.step},
                        {"until", call.until},
                        {"node", call.node},
                        {"variable", call.variable},
                        {"first_node", call.firstNode},
                        {"last_node", call.lastNode}});
    result["kernels"].push_back({{"name", kernel.name},
                                 {"nodes", kernel.nodes},
                                 {"flops", kernel.flops},
                                 {"bytes", kernel.bytes},
                                 {"count", kernel.count},
                                 {"beside", beside}});
  }
  result["flops_per_step"] = report.flopsPerStep;
  if (Json card = cardJson(report); !card.is_null())
    result["card"] = std::move(card);
  result["notes"] = Json::array();
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (isGeneralNote(note))
      result["notes"].push_back({{"kind", note.kind()}, {"subject", note.subject()}, {"text", note.text()}});
  return result;
}

} // namespace tcc::report
