//===- ReportText.cpp - the report for people -----------------------------===//
#include "tools/common/Stages.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportSections.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/InitializerLists.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Shapes.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Stages.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

namespace tcc::report {

namespace {

constexpr size_t kBuffersShown = 12, kKernelsShown = 10, kNamesShown = 12, kTensorsShown = 10;

std::string lifeText(const plan::Buffer &buffer, int32_t count) {
  std::string from = buffer.first() < 0 ? "entry" : std::to_string(buffer.first());
  std::string to = buffer.last() >= count ? "exit" : std::to_string(buffer.last());
  return from == to ? from : from + "–" + to;
}

std::string memoryText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  uint64_t total = plan::spaceBytes(plan, plan::RESIDENT) + report.arenaBytes;
  std::string text = "\nmemory\n";
  Table sums("<><", {"", "", ""});
  sums.add({"trun allocates", formatBytes(total), fmt::format("{} B, once, before the first step", total)});

  static constexpr std::pair<plan::VariableRole, const char *> roles[] = {{plan::PARAMETER, "parameters"},
                                                                          {plan::FROZEN, "frozen"},
                                                                          {plan::CONSTANT, "constants"},
                                                                          {plan::OPTIMIZER, "optimizer"},
                                                                          {plan::ACCUMULATOR, "accumulated gradients"},
                                                                          {plan::EMA, "averages"}};
  std::vector<std::string> parts;
  uint64_t sum = 0;
  for (auto [role, name] : roles)
    if (auto found = report.residentBytes.find(role); found != report.residentBytes.end() && found->second) {
      parts.push_back(fmt::format("{} {}", name, formatBytes(found->second)));
      sum += found->second;
    }
  if (plan::spaceBytes(plan, plan::RESIDENT) > sum)
    parts.push_back(fmt::format("alignment {}", formatBytes(plan::spaceBytes(plan, plan::RESIDENT) - sum)));
  sums.add(
      {"  resident", formatBytes(plan::spaceBytes(plan, plan::RESIDENT)), fmt::format("{}", fmt::join(parts, ", "))});
  sums.add({"  transient", formatBytes(report.arenaBytes), "the largest program's; all share it"});
  if (const ProgramMemory *largest = report.largest()) {
    std::string where;
    if (int32_t step = largest->peakStep(); step >= 0) {
      const std::string &node = largest->timeline[size_t(step)].node;
      where =
          fmt::format(", instruction {} of {}{}", step, largest->timeline.size(), node.empty() ? "" : ", node " + node);
    }
    sums.add({"peak", formatBytes(report.peakBytes()), fmt::format("live at once: {}{}", largest->name, where)});
    sums.add({"lower bound", formatBytes(report.lowerBoundBytes()),
              "no placement of this order of instructions takes less"});
  }
  std::string host = "the plan as objects, loaded code, threads";
  if (report.hostMemory.kept)
    host += fmt::format(", kept for the card {}", formatBytes(report.hostMemory.kept));
  if (report.hostMemory.averages)
    host += fmt::format(", averages {}", formatBytes(report.hostMemory.averages));
  if (report.hostMemory.staging)
    host += fmt::format(", copies for checkpoints {}", formatBytes(report.hostMemory.staging));
  if (report.hostMemory.loader)
    host += fmt::format(", batches read ahead {}", formatBytes(report.hostMemory.loader));
  sums.add({"host", formatBytes(report.hostBytes), host});
  if (report.process) {
    sums.add({"library", formatBytes(report.process->libraryBytes), "its primitives and their code, measured"});
    sums.add({"process", formatBytes(report.process->processBytes), "trun before it opens a plan, measured"});
  }
  if (plan.budget_bytes())
    sums.add({"budget", formatBytes(plan.budget_bytes()),
              fmt::format("{} of it allocated", percentText(double(total) / double(plan.budget_bytes())))});
  std::string lines = sums.text();
  text += lines.substr(lines.find('\n') + 1) + "\n";

  const bool severalShapes =
      std::ranges::any_of(plan.entries(), [](const plan::Entry &entry) { return entry.dims_size() != 0; });
  std::vector<std::string> heads = {"entry",  "program", "batch", "instructions", "peak", "arena", "packed ÷ bound",
                                    "operations"};
  if (severalShapes)
    heads.push_back("shape");
  Table programs(severalShapes ? "<<>>>>>><" : "<<>>>>>>", heads);
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      uint64_t bound = program.lowerBoundBytes - plan::spaceBytes(plan, plan::RESIDENT);
      std::vector<std::string> row = {entry.name, program.name, std::to_string(program.program->batch()),
                                      std::to_string(program.program->instructions_size()),
                                      formatBytes(program.peakBytes), formatBytes(program.arenaBytes),
                                      bound ? fmt::format("{:.3f}", double(program.arenaBytes) / double(bound)) : "-",
                                      flopText(program.program->flops())};
      if (severalShapes)
        row.push_back(plan::shapeText(plan, *program.program));
      programs.add(row);
    }
  return text + programs.text();
}

/// The savings and cost of recomputation; frontier and variants if the plan has them.
std::string recomputeText(const Report &report) {
  const Recomputation &all = report.recomputation;
  if (all.tensors.empty())
    return "";
  std::string text = fmt::format("\nrecomputed: {} in {}\n  saves {} of the arena ({} in total without), for {} more "
                                 "operations and {} more time\n",
                                 counted(all.tensors.size(), "tensor"), report.counted, formatBytes(all.bytes),
                                 formatBytes(report.withoutRecomputeBytes()), percentText(all.extraFlopsFraction()),
                                 percentText(all.extraCostFraction()));
  if (!report.plan->budget_bytes() && report.plan->variants_size() == 0)
    text += "  without a budget: compiler.recompute_time = 0 recomputes nothing\n";
  if (all.lowerBoundCost)
    text += fmt::format("  no order and recomputation in these bytes takes less than {} more: {} above that\n",
                        percentText(all.boundFraction()), percentText(all.gap()));
  // One row for each node, not for each tensor.
  struct Row {
    std::string node;
    uint64_t tensors = 0, bytes = 0, cost = 0;
    double flops = 0;
  };
  std::vector<Row> rows;
  std::map<std::string, size_t> index;
  for (const RecomputedTensor &tensor : all.tensors) {
    auto [found, fresh] = index.try_emplace(tensor.node.empty() ? tensor.name : tensor.node, rows.size());
    if (fresh)
      rows.push_back({found->first});
    Row &row = rows[found->second];
    ++row.tensors;
    row.bytes += tensor.bytes;
    row.cost += tensor.cost;
    row.flops += tensor.flops;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) { return a.bytes > b.bytes; });
  Table table("<>>>>", {"node", "tensors", "bytes", "operations", "time"});
  for (size_t i = 0; i < std::min(rows.size(), kTensorsShown); ++i)
    table.add({rows[i].node, std::to_string(rows[i].tensors), formatBytes(rows[i].bytes), flopText(rows[i].flops),
               timeText(rows[i].cost)});
  text += table.text();
  if (rows.size() > kTensorsShown)
    text += fmt::format("  and {} more\n", counted(rows.size() - kTensorsShown, "node"));
  return text;
}

std::string frontierText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  const uint64_t stateBytes = plan::spaceBytes(plan, plan::RESIDENT) + plan::spaceBytes(plan, plan::HOST_RESIDENT);
  auto hostText = [](const plan::FrontierPoint &point) {
    const uint64_t bytes = point.host_bytes() + point.moved_state_bytes();
    return bytes ? formatBytes(bytes) : std::string("-");
  };
  std::string text;
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      if (program.program->frontier_size() < 2)
        continue; // nothing to choose from
      text += fmt::format("\nfrontier of {}: packed plans from no recomputation to least memory\n", program.name);
      const bool anyOnHost = std::ranges::any_of(program.program->frontier(), [](const auto &point) {
        return point.host_bytes() + point.moved_state_bytes() > 0;
      });
      std::vector<std::string> heads = {"trun allocates", "arena", "cost", "", "lower bound", "gap", ""};
      if (anyOnHost)
        heads.insert(heads.begin() + 2, "on the host");
      Table table(anyOnHost ? ">>>>>>><" : ">>>>>><", heads);
      uint64_t least = 0;
      for (const plan::FrontierPoint &point : program.program->frontier())
        least = least ? std::min(least, point.cost()) : point.cost();
      for (const plan::FrontierPoint &point : program.program->frontier()) {
        uint64_t bound = point.lower_bound_cost();
        std::vector<std::string> row = {formatBytes(stateBytes - point.moved_state_bytes() + point.transient_bytes()),
                                        formatBytes(point.transient_bytes()),
                                        timeText(point.cost()),
                                        least ? "+" + percentText(double(point.cost()) / double(least) - 1) : "",
                                        bound ? timeText(bound) : "-",
                                        bound ? percentText(double(point.cost()) / double(bound) - 1) : "-",
                                        point.chosen() ? "this plan" : ""};
        if (anyOnHost)
          row.insert(row.begin() + 2, hostText(point));
        table.add(row);
      }
      text += table.text();
    }
  if (!plan.variants_size())
    return text;
  text += "\nplans in this file: trun takes the fastest that fits\n";
  Table table(">>>><", {"", "trun allocates", "arena", "one update", ""});
  for (int i = 0; i < plan.variants_size(); ++i)
    table.add({std::to_string(i),
               formatBytes(plan::spaceBytes(plan, plan::RESIDENT) + plan.variants(i).transient_bytes()),
               formatBytes(plan.variants(i).transient_bytes()), timeText(plan.variants(i).cost()),
               uint32_t(i) == report.variant ? "this report" : ""});
  return text + table.text();
}

/// The buffers live at the peak of one program.
std::string buffersText(const ProgramMemory *largest) {
  if (!largest || largest->timeline.empty())
    return "";
  const plan::Entry &program = *largest->program;
  int32_t count = program.instructions_size(), at = largest->peakStep();
  std::vector<const plan::Buffer *> live;
  for (const plan::Buffer &buffer : program.buffers())
    if (buffer.arena() == plan::TRANSIENT && buffer.first() <= at && buffer.last() >= at)
      live.push_back(&buffer);
  std::stable_sort(live.begin(), live.end(), [](auto *a, auto *b) { return a->bytes() > b->bytes(); });
  std::string text = fmt::format("\nlargest of {} at the peak ({}, instruction {})\n", counted(live.size(), "buffer"),
                                 program.name(), at);
  Table table(">><<<<", {"bytes", "offset", "life", "node", "type", "why alive"});
  for (size_t i = 0; i < std::min(live.size(), kBuffersShown); ++i) {
    const plan::Buffer &buffer = *live[i];
    bool scratch = buffer.kind() == plan::Buffer::PARTIAL_SUMS;
    table.add({formatBytes(buffer.bytes()), std::to_string(buffer.offset()), lifeText(buffer, count),
               buffer.node().empty() ? buffer.name() : buffer.node(),
               scratch ? "scratch" : plan::typeName(buffer.type()), buffer.why_alive()});
  }
  return text + table.text();
}

/// The program with the largest peak; where that is not training, the largest of training as well.
std::string buffersText(const Report &report) {
  const ProgramMemory *largest = report.largest(), *training = nullptr;
  for (const EntryMemory &entry : report.entries)
    if (entry.name == entries::kTrain)
      for (const ProgramMemory &program : entry.programs)
        if (!training || program.peakBytes > training->peakBytes)
          training = &program;
  return buffersText(largest) + (training && training != largest ? buffersText(training) : "");
}

std::string decisionsText(const plan::Plan &plan);

std::string parametersText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
    std::vector<std::string> names;
    void add(const plan::Variable &variable) {
      ++tensors;
      elements += plan::elementCount(plan::valueType(variable)).value_or(0);
      bytes += plan::tensorBytes(variable.type()).value_or(0);
      names.push_back(variable.name());
    }
    std::string text() const {
      return fmt::format("{}, {}, {}", counted(tensors, "tensor"), counted(elements, "element"), formatBytes(bytes));
    }
  };
  std::set<std::string> unused;
  for (const plan::Decisions::Unused &parameter : plan.decisions().unused_parameters())
    unused.insert(parameter.name());
  Sum trained, frozen;
  std::map<std::string, const plan::Variable *> byName;
  for (const plan::Variable &variable : plan.variables()) {
    byName[variable.name()] = &variable;
    if (variable.role() == plan::PARAMETER && !unused.count(variable.name()))
      trained.add(variable);
    else if (variable.role() == plan::FROZEN && !unused.count(variable.name()))
      frozen.add(variable);
  }
  std::string losses;
  for (const plan::LossTerm &loss : plan.training().losses())
    losses += fmt::format("{}{} × {:g}", losses.empty() ? "\nloss\n  " : " + ", loss.name(), loss.scale());
  std::string text =
      fmt::format("{}\nparameters\n  trainable: {}\n", losses.empty() ? "" : losses + "\n", trained.text());
  for (const plan::StageSummary &stage : plan::stagesOf(plan)) {
    Sum members;
    for (const std::string &name : stage.parameters)
      if (byName.count(name))
        members.add(*byName[name]);
    text += fmt::format("    {}, trains: {}\n      {}\n", stageText(stage), members.text(),
                        listText(members.names, kNamesShown, 6));
  }
  const plan::Optimizer &optimizer = plan.training().optimizer();
  for (int i = 0; i < std::min(optimizer.groups_size(), plan.decisions().groups_size()); ++i) {
    const plan::OptimizerGroup &group = optimizer.groups(i);
    Sum members;
    for (const std::string &name : plan.decisions().groups(i).parameters())
      if (byName.count(name))
        members.add(*byName[name]);
    text +=
        fmt::format("    group \"{}\": lr × {:g}, weight decay {:g}: {}\n      {}\n", group.name(), group.lr_scale(),
                    group.weight_decay(), members.text(), listText(members.names, kNamesShown, 6));
  }
  if (!optimizer.groups_size() && trained.tensors)
    text += fmt::format("    {}\n", listText(trained.names, kNamesShown, 4));
  if (frozen.tensors)
    text += fmt::format("  frozen: {}\n    {}\n", frozen.text(), listText(frozen.names, kNamesShown, 4));
  if (plan.has_adapters()) {
    const plan::Adapters &adapters = plan.adapters();
    Sum adapted, added;
    for (const plan::Adapter &adapter : adapters.list())
      if (byName.count(adapter.of()) && byName.count(adapter.a()) && byName.count(adapter.b())) {
        adapted.add(*byName[adapter.of()]);
        adapted.names.back() = byName[adapter.of()]->has_torch() ? byName[adapter.of()]->torch().name() : adapter.of();
        added.add(*byName[adapter.a()]);
        added.add(*byName[adapter.b()]);
      }
    text += fmt::format("  adapters: {} of rank {}, scale {:g}{}: {} beside {}\n    {}\n", adapters.list_size(),
                        adapters.rank(), adapters.scale(),
                        adapters.dropout() ? fmt::format(", dropout {:g}", adapters.dropout()) : "",
                        counted(added.elements, "element"), counted(adapted.elements, "element"),
                        listText(adapted.names, kNamesShown, 4));
    text += integerBaseText(report);
  }
  if (plan.decisions().unused_parameters_size()) {
    text += "  without a gradient, and not trained:\n";
    Table table("<<<", {"parameter", "node", "reason"});
    for (const plan::Decisions::Unused &parameter : plan.decisions().unused_parameters())
      table.add({"  " + parameter.name(), parameter.node(), parameter.reason()});
    text += table.text();
  }
  return text + decisionsText(plan);
}

/// The four lists of floating-point initializers: one line a reason.
std::string decisionsText(const plan::Plan &plan) {
  std::vector<std::pair<std::string, std::vector<std::string>>> bySign;
  std::vector<Decision> decisions = decisionsOf(plan);
  auto orderOf = [](const std::string &list) {
    return std::find(std::begin(plan::lists::kAll), std::end(plan::lists::kAll), list) - std::begin(plan::lists::kAll);
  };
  std::stable_sort(decisions.begin(), decisions.end(),
                   [&](const Decision &a, const Decision &b) { return orderOf(a.list) < orderOf(b.list); });
  for (const Decision &decision : decisions) {
    // The text of a note on one parameter follows its name.
    std::string sign = decision.reason, name = decision.name;
    if (sign.starts_with("folded from ") && sign.ends_with(", by the exporter's notes")) {
      name += " (" + sign.substr(12, sign.size() - 12 - 25) + ")";
      sign = "folded from the parameter in brackets, by the exporter's notes";
    } else if (sign.starts_with("read as a weight by ")) {
      name += " (" + sign.substr(20) + ")";
      sign = "read as a weight by the node in brackets";
    } else if (sign.starts_with("running statistic of ")) {
      name += " (" + sign.substr(21) + ")";
      sign = "running statistic of the node in brackets";
    }
    sign = fmt::format("{}: {}", decision.list, sign);
    auto found = std::find_if(bySign.begin(), bySign.end(), [&](auto &entry) { return entry.first == sign; });
    if (found == bySign.end())
      found = bySign.insert(bySign.end(), {sign, {}});
    found->second.push_back(name);
  }
  std::string text = bySign.empty() ? "" : "  floating-point initializers, each in one list, and why:\n";
  for (const auto &[sign, names] : bySign)
    text += fmt::format("    {}\n      {}\n", sign, listText(names, kNamesShown, 6));
  for (const plan::Tie &tie : plan.ties())
    text += fmt::format("  tied: {} is {}{}\n", tie.name(), tie.of(), tie.permutation_size() ? " transposed" : "");
  return text;
}

std::string zeroFillText(const plan::Plan &plan) {
  const plan::Decisions &decisions = plan.decisions();
  if (!decisions.zero_fill_elided_size() && !decisions.zero_fill_kept_size())
    return "";
  uint64_t elided = 0, kept = 0;
  for (const auto &fill : decisions.zero_fill_elided())
    elided += fill.bytes();
  for (const auto &fill : decisions.zero_fill_kept())
    kept += fill.bytes();
  std::string text = fmt::format("\ngradient buffers that start as zeros\n  needless, left out: {}, {}\n",
                                 counted(decisions.zero_fill_elided_size(), "buffer"), formatBytes(elided));
  if (!decisions.zero_fill_kept_size())
    return text + "  kept: none\n";
  text += fmt::format("  kept: {}, {}\n", counted(decisions.zero_fill_kept_size(), "buffer"), formatBytes(kept));
  Table table("<><", {"  parameter", "bytes", "reason"});
  for (const auto &fill : decisions.zero_fill_kept())
    table.add({"  " + fill.parameter(), formatBytes(fill.bytes()), fill.reason()});
  return text + table.text();
}

/// Memory-bound updates that overlap with later products, longest first.
std::string besideText(const Report &report) {
  std::vector<std::pair<const BesideOthers *, const KernelUse *>> calls;
  for (const KernelUse &kernel : report.kernels)
    for (const BesideOthers &call : kernel.beside)
      calls.emplace_back(&call, &kernel);
  if (calls.empty())
    return "";
  std::stable_sort(calls.begin(), calls.end(), [](const auto &a, const auto &b) {
    return a.first->until - a.first->step > b.first->until - b.first->step;
  });
  std::string text =
      fmt::format("  {} may run concurrently with later instructions\n", counted(calls.size(), "instruction"));
  Table rows("<<><", {"kernel", "", "instructions", "runs beside"});
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i >= kKernelsShown && calls.size() > kKernelsShown + 1) {
      rows.add({fmt::format("{} more", calls.size() - kKernelsShown), "", "", ""});
      break;
    }
    const auto &[call, kernel] = calls[i];
    bool several = call->until > call->step + 1;
    rows.add({kernelText(kernel->name), call->variable.empty() ? call->node : "updates " + call->variable,
              std::to_string(call->until - call->step),
              several ? call->firstNode + " … " + call->lastNode : call->firstNode});
  }
  return text + rows.text();
}

std::string kernelsText(const Report &report) {
  if (report.kernels.empty())
    return "";
  double flops = 0;
  uint64_t bytes = 0, calls = 0;
  for (const KernelUse &kernel : report.kernels) {
    flops += kernel.flops;
    bytes += kernel.bytes;
    calls += kernel.count;
  }
  std::string text = fmt::format("\nkernels: {} in {}: {}, {} read and written\n", counted(calls, "call"),
                                 report.counted, flopText(flops), formatBytes(bytes));
  auto share = [](double part, double whole) { return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-"; };
  auto table = [&](const std::string &title, auto key) {
    std::vector<const KernelUse *> sorted;
    for (const KernelUse &kernel : report.kernels)
      if (key(kernel) > 0)
        sorted.push_back(&kernel);
    std::stable_sort(sorted.begin(), sorted.end(), [&](auto *a, auto *b) { return key(*a) > key(*b); });
    text += "  " + title + "\n";
    Table rows("<>>>>><", {"kernel", "calls", "operations", "", "bytes", "", "nodes"});
    KernelUse rest;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const KernelUse &kernel = *sorted[i];
      if (i >= kKernelsShown && sorted.size() > kKernelsShown + 1) {
        rest.flops += kernel.flops;
        rest.bytes += kernel.bytes;
        rest.count += kernel.count;
        continue;
      }
      rows.add({kernelText(kernel.name), std::to_string(kernel.count), flopText(kernel.flops),
                share(kernel.flops, flops), formatBytes(kernel.bytes), share(double(kernel.bytes), double(bytes)),
                listText(kernel.nodes, 3)});
    }
    if (rest.count)
      rows.add({fmt::format("{} more", sorted.size() - kKernelsShown), std::to_string(rest.count), flopText(rest.flops),
                share(rest.flops, flops), formatBytes(rest.bytes), share(double(rest.bytes), double(bytes)), ""});
    text += rows.text();
  };
  table("by operations", [](const KernelUse &kernel) { return kernel.flops; });
  table("by bytes", [](const KernelUse &kernel) { return double(kernel.bytes); });
  return text + besideText(report);
}

} // namespace

std::string summaryText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  const bool isForCard = plan::runsOnGrids(plan);
  std::vector<std::string> entries;
  for (const EntryMemory &entry : report.entries)
    entries.push_back(entry.name);
  std::string text =
      fmt::format("{} for {}, products in {}, {}; made by {}{}\nentries: {}\n", plan.model(), plan.target(),
                  plan.precision().empty() ? "f32" : plan.precision(),
                  isForCard ? "scratch for " + counted(plan.max_workers(), "thread")
                            : "memory for " + counted(plan.max_workers(), "worker"),
                  plan.producer(),
                  plan.library().empty() ? "" : " with " + plan.library(), fmt::join(entries, ", "));
  if (report.flopsPerStep > 0)
    text += fmt::format("operations in one update: {}\n", flopText(report.flopsPerStep));
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (isGeneralNote(note))
      text += fmt::format("note: {}{}{}\n", note.subject(), note.subject().empty() ? "" : ": ", note.text());
  return text + memoryText(report);
}

std::string reportText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  const bool isForCard = plan::runsOnGrids(plan);
  return summaryText(report) + (isForCard ? cardText(report) : workersText(report)) + communicationText(report) +
         buffersText(report) + recomputeText(report) + offloadText(report) + frontierText(report) +
         parametersText(report) + stopsText(plan) + attentionText(plan) + epiloguesText(plan) + zeroFillText(plan) +
         kernelsText(report);
}

} // namespace tcc::report
