//===- ReportText.cpp - the report for people -----------------------------===//
#include "tools/tcc/Report.h"

#include "runtime/plan/DType.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace tcc::report {

namespace {

constexpr size_t kBuffersShown = 12, kKernelsShown = 10, kNamesShown = 12, kLineWidth = 110;

/// Cells under headings; every column as wide as its widest cell. Columns are separated by two spaces.
class Table {
public:
  /// `alignments`: one character a column, '<' for text and '>' for numbers.
  Table(std::string alignments, std::vector<std::string> headings)
      : alignments(std::move(alignments)), rows{std::move(headings)} {}

  void add(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  bool empty() const { return rows.size() == 1; }

  std::string text() const {
    std::vector<size_t> widths(alignments.size(), 0);
    for (const auto &row : rows)
      for (size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], columns(row[i]));
    std::string text;
    for (const auto &row : rows) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        std::string padding(widths[i] - columns(row[i]), ' ');
        line += "  " + (alignments[i] == '>' ? padding + row[i] : row[i] + padding);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

private:
  /// Characters of a UTF-8 text: bytes that do not go on with another character.
  static size_t columns(const std::string &text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }

  std::string alignments;
  std::vector<std::vector<std::string>> rows;
};

/// "1 buffer", "2 buffers".
std::string counted(uint64_t count, const std::string &noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string flopText(double flops) {
  if (flops < 1e3)
    return fmt::format("{:.0f} FLOP", flops);
  static constexpr const char *units[] = {"KFLOP", "MFLOP", "GFLOP", "TFLOP"};
  int unit = -1;
  for (; unit < 3 && flops >= 999.95; ++unit)
    flops /= 1000;
  return fmt::format("{:.1f} {}", flops, units[unit]);
}

/// "a, b, c and 9 more", in lines of at most kLineWidth characters that start with `indent` spaces after the first.
std::string listText(const std::vector<std::string> &names, size_t shown, size_t indent = 0) {
  if (names.size() <= shown + 1)
    shown = names.size();
  std::string text, line;
  for (size_t i = 0; i < shown; ++i) {
    std::string word = names[i] + (i + 1 < shown ? "," : "");
    if (indent && !line.empty() && indent + line.size() + 1 + word.size() > kLineWidth) {
      text += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  text += line;
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

/// Generated kernels are named by a hash of their code: its start is enough for a person.
std::string shortName(const KernelUse &kernel) {
  return kernel.generated && kernel.name.size() > 13 ? kernel.name.substr(0, 13) : kernel.name;
}

std::string lifeText(const plan::Buffer &buffer, int32_t count) {
  std::string from = buffer.first() < 0 ? "entry" : std::to_string(buffer.first());
  std::string to = buffer.last() >= count ? "exit" : std::to_string(buffer.last());
  return from == to ? from : from + "–" + to;
}

std::string memoryText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  uint64_t total = plan.resident_bytes() + plan.transient_bytes();
  std::string text = "\nmemory\n";
  Table sums("<><", {"", "", ""});
  sums.add({"trun allocates", formatBytes(total), fmt::format("{} B, once, before the first step", total)});

  static constexpr std::pair<plan::VariableRole, const char *> roles[] = {{plan::PARAMETER, "parameters"},
                                                                          {plan::FROZEN, "frozen"},
                                                                          {plan::CONSTANT, "constants"},
                                                                          {plan::OPTIMIZER, "optimizer"},
                                                                          {plan::ACCUMULATOR, "accumulated gradients"}};
  std::vector<std::string> parts;
  uint64_t sum = 0;
  for (auto [role, name] : roles)
    if (auto found = report.residentBytes.find(role); found != report.residentBytes.end() && found->second) {
      parts.push_back(fmt::format("{} {}", name, formatBytes(found->second)));
      sum += found->second;
    }
  if (plan.resident_bytes() > sum)
    parts.push_back(fmt::format("alignment {}", formatBytes(plan.resident_bytes() - sum)));
  sums.add({"  resident", formatBytes(plan.resident_bytes()), fmt::format("{}", fmt::join(parts, ", "))});
  sums.add({"  transient", formatBytes(plan.transient_bytes()), "the largest program's; all share it"});
  if (const ProgramMemory *largest = report.largest()) {
    auto peak = std::find_if(largest->timeline.begin(), largest->timeline.end(),
                             [&](auto &row) { return row.liveBytes == largest->peakBytes; });
    std::string where = peak == largest->timeline.end()
                            ? ""
                            : fmt::format(", instruction {} of {}{}", peak->step, largest->timeline.size(),
                                          peak->node.empty() ? "" : ", node " + peak->node);
    sums.add({"peak", formatBytes(report.peakBytes()), fmt::format("live at once: {}{}", largest->name, where)});
    sums.add({"lower bound", formatBytes(report.lowerBoundBytes()),
              "no placement of this order of instructions takes less"});
  }
  sums.add({"host", formatBytes(report.hostBytes), "the plan file, mapped, and loaded code"});
  if (plan.budget_bytes())
    sums.add({"budget", formatBytes(plan.budget_bytes()), ""});
  std::string lines = sums.text();
  text += lines.substr(lines.find('\n') + 1) + "\n";

  Table programs("<<>>>>>>",
                 {"entry", "program", "batch", "instructions", "peak", "arena", "packed ÷ bound", "operations"});
  for (const EntryMemory &entry : report.entries)
    for (const ProgramMemory &program : entry.programs) {
      uint64_t bound = program.lowerBoundBytes - plan.resident_bytes();
      programs.add({entry.name, program.name, std::to_string(program.program->batch()),
                    std::to_string(program.program->instructions_size()), formatBytes(program.peakBytes),
                    formatBytes(program.arenaBytes),
                    bound ? fmt::format("{:.3f}", double(program.arenaBytes) / double(bound)) : "-",
                    flopText(program.program->flops())});
    }
  return text + programs.text();
}

/// What lives at the peak of one program.
std::string buffersText(const ProgramMemory *largest) {
  if (!largest || largest->timeline.empty())
    return "";
  const plan::Entry &program = *largest->program;
  int32_t count = program.instructions_size(), at = 0;
  for (const TimelineRow &row : largest->timeline)
    if (row.liveBytes == largest->peakBytes) {
      at = row.step;
      break;
    }
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
    bool scratch = buffer.kind() == plan::Buffer::SCRATCH;
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
    if (entry.name == "train")
      for (const ProgramMemory &program : entry.programs)
        if (!training || program.peakBytes > training->peakBytes)
          training = &program;
  return buffersText(largest) + (training && training != largest ? buffersText(training) : "");
}

std::string decisionsText(const plan::Plan &plan);

std::string parametersText(const plan::Plan &plan) {
  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
    std::vector<std::string> names;
    void add(const plan::Variable &variable) {
      ++tensors;
      elements += plan::elementCount(variable.type()).value_or(0);
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
  std::string text = fmt::format("\nparameters\n  trainable: {}\n", trained.text());
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
  if (plan.decisions().unused_parameters_size()) {
    text += "  without a gradient, and not trained:\n";
    Table table("<<<", {"parameter", "node", "reason"});
    for (const plan::Decisions::Unused &parameter : plan.decisions().unused_parameters())
      table.add({"  " + parameter.name(), parameter.node(), parameter.reason()});
    text += table.text();
  }
  return text + decisionsText(plan);
}

/// By which sign each initializer is trained or not: one line a sign.
std::string decisionsText(const plan::Plan &plan) {
  std::map<std::string, plan::VariableRole> roles;
  for (const plan::Variable &variable : plan.variables())
    roles[variable.name()] = variable.role();
  std::vector<std::pair<std::string, std::vector<std::string>>> bySign;
  for (const plan::Decisions::Note &note : plan.decisions().notes()) {
    auto role = roles.find(note.subject());
    if (note.kind() != "parameter" || role == roles.end())
      continue;
    // What a note says of one parameter alone goes behind its name.
    std::string sign = note.text(), name = note.subject();
    if (sign.starts_with("folded from ") && sign.ends_with(", by the exporter's notes")) {
      name += " (" + sign.substr(12, sign.size() - 12 - 25) + ")";
      sign = "folded from the parameter in brackets, by the exporter's notes";
    } else if (sign.starts_with("read as a weight by ")) {
      name += " (" + sign.substr(20) + ")";
      sign = "read as a weight by the node in brackets";
    }
    sign = (role->second == plan::PARAMETER ? "trained: " : "frozen: ") + sign;
    auto found = std::find_if(bySign.begin(), bySign.end(), [&](auto &entry) { return entry.first == sign; });
    if (found == bySign.end())
      found = bySign.insert(bySign.end(), {sign, {}});
    found->second.push_back(name);
  }
  std::string text = bySign.empty() ? "" : "  what was decided, and by which sign:\n";
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
      rows.add({shortName(kernel), std::to_string(kernel.count), flopText(kernel.flops), share(kernel.flops, flops),
                formatBytes(kernel.bytes), share(double(kernel.bytes), double(bytes)), listText(kernel.nodes, 3)});
    }
    if (rest.count)
      rows.add({fmt::format("{} more", sorted.size() - kKernelsShown), std::to_string(rest.count), flopText(rest.flops),
                share(rest.flops, flops), formatBytes(rest.bytes), share(double(rest.bytes), double(bytes)), ""});
    text += rows.text();
  };
  table("by operations", [](const KernelUse &kernel) { return kernel.flops; });
  table("by bytes", [](const KernelUse &kernel) { return double(kernel.bytes); });
  return text;
}

} // namespace

std::string reportText(const Report &report) {
  const plan::Plan &plan = *report.plan;
  std::vector<std::string> entries;
  for (const EntryMemory &entry : report.entries)
    entries.push_back(entry.name);
  std::string text =
      fmt::format("{} for {}, at most {}; made by {} with {}\nentries: {}\n", plan.model(), plan.target(),
                  counted(plan.max_workers(), "worker"), plan.producer(), plan.library(), fmt::join(entries, ", "));
  if (report.flopsPerStep > 0)
    text += fmt::format("operations in one update: {}\n", flopText(report.flopsPerStep));
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (note.kind() != "parameter")
      text += fmt::format("note: {}{}{}\n", note.subject(), note.subject().empty() ? "" : ": ", note.text());
  return text + memoryText(report) + buffersText(report) + parametersText(plan) + zeroFillText(plan) +
         kernelsText(report);
}

} // namespace tcc::report
