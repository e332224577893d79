//===- ReportDiff.cpp - compare two plans ---------------------------------===//
#include "tools/tcc/ReportDiff.h"
#include "runtime/plan/Spaces.h"
#include "support/Json.h"
#include "tools/tcc/ReportSections.h"

#include <algorithm>
#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
#include <map>
#include <sstream>

namespace tcc::report {

namespace {

using Json = nlohmann::ordered_json;

/// Buffers that are compared as one: their bytes and their number.
struct Quantity {
  uint64_t bytes = 0, count = 0;
  double flops = 0;
  bool operator==(const Quantity &) const = default;
};

/// Named quantities in the order of first appearance.
class Quantities {
public:
  using Key = std::pair<std::string, std::string>; // name, node
  Quantity &operator[](const Key &key) {
    auto [found, fresh] = index.try_emplace(key, rows.size());
    if (fresh)
      rows.emplace_back(key, Quantity());
    return rows[found->second].second;
  }
  const Quantity *find(const Key &key) const {
    auto found = index.find(key);
    return found == index.end() ? nullptr : &rows[found->second].second;
  }
  std::vector<std::pair<Key, Quantity>> rows;

private:
  std::map<Key, size_t> index;
};

/// "a" and "b" of a difference.
template <typename T> void compare(Json &result, const char *key, const T &before, const T &after) {
  if (before != after)
    result[key] = {{"a", before}, {"b", after}};
}

/// `appeared`, `vanished` and `changed`, most bytes first.
Json compareAll(const Quantities &before, const Quantities &after, bool kernels) {
  auto row = [&](const Quantities::Key &key) {
    Json result = {{"name", key.first}};
    if (!kernels)
      result["node"] = key.second;
    return result;
  };
  auto add = [&](Json &result, const Quantity &quantity) {
    result["bytes"] = quantity.bytes;
    result["count"] = quantity.count;
    if (kernels)
      result["flops"] = quantity.flops;
  };
  Json appeared = Json::array(), vanished = Json::array(), changed = Json::array();
  for (const auto &[key, quantity] : before.rows) {
    const Quantity *now = after.find(key);
    if (now && *now == quantity)
      continue;
    Json result = row(key);
    if (!now) {
      add(result, quantity);
      vanished.push_back(result);
      continue;
    }
    add(result["a"], quantity);
    add(result["b"], *now);
    changed.push_back(result);
  }
  for (const auto &[key, quantity] : after.rows)
    if (!before.find(key)) {
      Json result = row(key);
      add(result, quantity);
      appeared.push_back(result);
    }
  auto bytes = [](const Json &entry) { return entry["bytes"].get<uint64_t>(); };
  auto change = [](const Json &entry) {
    uint64_t a = entry["a"]["bytes"], b = entry["b"]["bytes"];
    return a > b ? a - b : b - a;
  };
  std::stable_sort(appeared.begin(), appeared.end(), [&](auto &a, auto &b) { return bytes(a) > bytes(b); });
  std::stable_sort(vanished.begin(), vanished.end(), [&](auto &a, auto &b) { return bytes(a) > bytes(b); });
  std::stable_sort(changed.begin(), changed.end(), [&](auto &a, auto &b) { return change(a) > change(b); });
  Json result = Json::object();
  for (auto [name, list] : {std::pair("appeared", &appeared), {"vanished", &vanished}, {"changed", &changed}})
    if (!list->empty())
      result[name] = std::move(*list);
  return result;
}

/// "node_gelu #495" → "node_gelu": the number counts values of the whole program.
std::string stem(const std::string &name) {
  size_t mark = name.rfind(" #");
  bool number = mark != std::string::npos && mark + 2 < name.size() &&
                name.find_first_not_of("0123456789", mark + 2) == std::string::npos;
  return number ? name.substr(0, mark) : name;
}

Quantities atPeak(const ProgramMemory &program) {
  Quantities result;
  int32_t step = program.peakStep();
  for (const plan::Buffer &buffer : program.program->buffers())
    if (buffer.arena() == plan::TRANSIENT && buffer.first() <= step && buffer.last() >= step) {
      Quantity &quantity = result[{stem(buffer.name()), buffer.node()}];
      quantity.bytes += buffer.bytes();
      ++quantity.count;
    }
  return result;
}

Quantities kernelsOf(const Report &report) {
  Quantities result;
  for (const KernelUse &kernel : report.kernels) {
    Quantity &quantity = result[{kernel.name, ""}];
    quantity.bytes += kernel.bytes;
    quantity.count += kernel.count;
    quantity.flops += kernel.flops;
  }
  return result;
}

Quantities recomputedOf(const Report &report) {
  Quantities result;
  for (const RecomputedTensor &tensor : report.recomputation.tensors) {
    Quantity &quantity = result[{stem(tensor.name), tensor.node}];
    quantity.bytes += tensor.bytes;
    ++quantity.count;
  }
  return result;
}

std::vector<std::string> sequenceOf(const plan::Entry &program) {
  std::vector<std::string> result;
  for (const plan::Instruction &instruction : program.instructions())
    result.push_back(instructionName(instruction) + '\0' + instruction.node());
  return result;
}

Json programOf(const ProgramMemory &before, const ProgramMemory &after) {
  Json result = Json::object();
  compare(result, "peak_bytes", before.peakBytes, after.peakBytes);
  compare(result, "arena_bytes", before.arenaBytes, after.arenaBytes);
  compare(result, "without_recompute_bytes", before.withoutRecomputeBytes, after.withoutRecomputeBytes);
  compare(result, "batch", before.program->batch(), after.program->batch());
  compare(result, "flops", before.program->flops(), after.program->flops());
  compare(result, "cost_ns", before.recomputation.cost, after.recomputation.cost);
  compare(result, "instructions", before.program->instructions_size(), after.program->instructions_size());
  std::vector<std::string> a = sequenceOf(*before.program), b = sequenceOf(*after.program);
  if (a != b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a == b)
      result["reordered"] = true;
  }
  if (Json buffers = compareAll(atPeak(before), atPeak(after), false); !buffers.empty())
    result["at_peak"] = std::move(buffers);
  return result;
}

Json programsOf(const Report &before, const Report &after) {
  std::vector<std::pair<std::string, std::pair<const ProgramMemory *, const ProgramMemory *>>> pairs;
  for (bool second : {false, true})
    for (const EntryMemory &entry : (second ? after : before).entries)
      for (const ProgramMemory &program : entry.programs) {
        auto found = std::find_if(pairs.begin(), pairs.end(), [&](auto &pair) { return pair.first == program.name; });
        if (found == pairs.end())
          found = pairs.insert(found, {program.name, {nullptr, nullptr}});
        (second ? found->second.second : found->second.first) = &program;
      }
  Json result = Json::object();
  for (const auto &[name, pair] : pairs) {
    auto [a, b] = pair;
    if (!a || !b) {
      const ProgramMemory &only = a ? *a : *b;
      result[name] = {{"change", a ? "vanished" : "appeared"},
                      {"peak_bytes", only.peakBytes},
                      {"arena_bytes", only.arenaBytes},
                      {"instructions", only.program->instructions_size()}};
    } else if (Json change = programOf(*a, *b); !change.empty()) {
      result[name] = std::move(change);
    }
  }
  return result;
}

/// The elements that only one of two lists holds, in its order.
Json listsOf(const std::vector<std::string> &before, const std::vector<std::string> &after) {
  std::map<std::string, int64_t> surplus;
  for (const std::string &text : before)
    ++surplus[text];
  for (const std::string &text : after)
    --surplus[text];
  Json result = Json::object();
  for (const std::string &text : before)
    if (surplus[text] > 0) {
      --surplus[text];
      result["vanished"].push_back(text);
    }
  for (const std::string &text : after)
    if (surplus[text] < 0) {
      ++surplus[text];
      result["appeared"].push_back(text);
    }
  return result;
}

/// Lines with their table, "[optimizer] lr = 0.1", so that the order of tables makes no difference.
std::vector<std::string> recipeLines(const std::string &recipe) {
  std::vector<std::string> result;
  std::stringstream lines(recipe);
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    size_t begin = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#')
      continue;
    line = line.substr(begin, end - begin + 1);
    if (line.starts_with("["))
      table = line;
    else
      result.push_back(table.empty() ? line : table + " " + line);
  }
  return result;
}

Json parametersOf(const plan::Plan &before, const plan::Plan &after) {
  Json result = Json::object();
  auto put = [&](const char *key, Json lists) {
    if (!lists.empty())
      result[key] = std::move(lists);
  };
  auto names = [](const plan::Plan &plan, plan::VariableRole role) {
    std::vector<std::string> list;
    for (const plan::Variable &variable : plan.variables())
      if (variable.role() == role)
        list.push_back(variable.name());
    return list;
  };
  put("trainable", listsOf(names(before, plan::PARAMETER), names(after, plan::PARAMETER)));
  put("frozen", listsOf(names(before, plan::FROZEN), names(after, plan::FROZEN)));
  auto unused = [](const plan::Plan &plan) {
    std::vector<std::string> list;
    for (const plan::Decisions::Unused &parameter : plan.decisions().unused_parameters())
      list.push_back(parameter.name());
    return list;
  };
  put("unused", listsOf(unused(before), unused(after)));
  auto groups = [](const plan::Plan &plan) {
    std::vector<std::string> list;
    const plan::Optimizer &optimizer = plan.training().optimizer();
    for (int i = 0; i < optimizer.groups_size(); ++i) {
      const plan::OptimizerGroup &group = optimizer.groups(i);
      std::string what =
          fmt::format("\"{}\": lr x {:g}, weight decay {:g}", group.name(), group.lr_scale(), group.weight_decay());
      if (i < plan.decisions().groups_size())
        for (const std::string &name : plan.decisions().groups(i).parameters())
          list.push_back(name + " in " + what);
    }
    return list;
  };
  put("groups", listsOf(groups(before), groups(after)));
  return result;
}

Json memoryOf(const Report &before, const Report &after) {
  Json result = Json::object();
  const plan::Plan &a = *before.plan, &b = *after.plan;
  compare(result, "allocated_bytes", plan::spaceBytes(a, plan::RESIDENT) + before.arenaBytes,
          plan::spaceBytes(b, plan::RESIDENT) + after.arenaBytes);
  compare(result, "arena_bytes", before.arenaBytes, after.arenaBytes);
  compare(result, "resident_bytes", plan::spaceBytes(a, plan::RESIDENT), plan::spaceBytes(b, plan::RESIDENT));
  static constexpr std::pair<plan::VariableRole, const char *> roles[] = {{plan::PARAMETER, "parameters"},
                                                                          {plan::FROZEN, "frozen"},
                                                                          {plan::CONSTANT, "constants"},
                                                                          {plan::OPTIMIZER, "optimizer"},
                                                                          {plan::ACCUMULATOR, "accumulators"},
                                                                          {plan::EMA, "averages"}};
  auto bytes = [](const Report &report, plan::VariableRole role) {
    auto found = report.residentBytes.find(role);
    return found == report.residentBytes.end() ? uint64_t(0) : found->second;
  };
  for (auto [role, name] : roles)
    compare(result, name, bytes(before, role), bytes(after, role));
  compare(result, "peak_bytes", before.peakBytes(), after.peakBytes());
  compare(result, "lower_bound_bytes", before.lowerBoundBytes(), after.lowerBoundBytes());
  compare(result, "without_recompute_bytes", before.withoutRecomputeBytes(), after.withoutRecomputeBytes());
  auto budget = [](const plan::Plan &plan) { return plan.budget_bytes() ? Json(plan.budget_bytes()) : Json(nullptr); };
  compare(result, "budget_bytes", budget(a), budget(b));
  compare(result, "host_bytes", before.hostBytes, after.hostBytes);
  return result;
}

Json planOf(const plan::Plan &before, const plan::Plan &after) {
  Json result = Json::object();
  compare(result, "model", before.model(), after.model());
  compare(result, "target", before.target(), after.target());
  compare(result, "producer", before.producer(), after.producer());
  compare(result, "library", before.library(), after.library());
  compare(result, "max_workers", before.max_workers(), after.max_workers());
  compare(result, "seed", before.training().seed(), after.training().seed());
  return result;
}

Json recomputeOf(const Report &before, const Report &after) {
  Json result = compareAll(recomputedOf(before), recomputedOf(after), false);
  compare(result, "extra_flops_fraction", before.recomputation.extraFlopsFraction(),
          after.recomputation.extraFlopsFraction());
  compare(result, "extra_cost_fraction", before.recomputation.extraCostFraction(),
          after.recomputation.extraCostFraction());
  return result;
}

std::vector<std::string> notesOf(const plan::Plan &plan) {
  std::vector<std::string> result;
  for (const plan::Decisions::Note &note : plan.decisions().notes())
    if (isStopNote(note))
      result.push_back(fmt::format("{}: gradient stopped by {}", note.subject(), note.text()));
    else if (isGeneralNote(note))
      result.push_back((note.subject().empty() ? "" : note.subject() + ": ") + note.text());
  return result;
}

} // namespace

Json diffJson(const Report &before, const Report &after) {
  const plan::Plan &a = *before.plan, &b = *after.plan;
  Json result;
  result["version"] = 1;
  result["identical"] = google::protobuf::util::MessageDifferencer::Equals(a, b);
  result["plan"] = planOf(a, b);
  result["memory"] = memoryOf(before, after);
  result["programs"] = programsOf(before, after);
  result["recompute"] = recomputeOf(before, after);
  result["kernels"] = compareAll(kernelsOf(before), kernelsOf(after), true);
  if (before.flopsPerStep != after.flopsPerStep)
    result["kernels"]["flops_per_step"] = {{"a", before.flopsPerStep}, {"b", after.flopsPerStep}};
  result["parameters"] = parametersOf(a, b);
  result["recipe"] = listsOf(recipeLines(a.recipe()), recipeLines(b.recipe()));
  result["notes"] = listsOf(notesOf(a), notesOf(b));
  return result;
}

namespace {
constexpr size_t kRowsShown = 12;

enum class Unit { Bytes, Flops, Time, Fraction, Count, Name };

Unit unitOf(const std::string &key) {
  if (key.ends_with("_fraction"))
    return Unit::Fraction;
  if (key.ends_with("_ns"))
    return Unit::Time;
  if (key.starts_with("flops"))
    return Unit::Flops;
  for (const char *count : {"batch", "instructions", "count", "max_workers", "seed"})
    if (key == count)
      return Unit::Count;
  return Unit::Bytes;
}

std::string titleOf(const std::string &key) {
  static constexpr std::pair<const char *, const char *> titles[] = {
      {"allocated_bytes", "trun allocates"},
      {"arena_bytes", "arena"},
      {"resident_bytes", "resident"},
      {"peak_bytes", "peak"},
      {"lower_bound_bytes", "lower bound"},
      {"without_recompute_bytes", "without recomputation"},
      {"budget_bytes", "budget"},
      {"host_bytes", "host"},
      {"cost_ns", "time, by the model"},
      {"flops", "operations"},
      {"flops_per_step", "operations in one update"},
      {"extra_flops_fraction", "more operations"},
      {"extra_cost_fraction", "more time, by the model"},
      {"max_workers", "workers that memory is for"}};
  for (auto [name, title] : titles)
    if (key == name)
      return title;
  return key;
}

std::string valueText(const Json &value, Unit unit) {
  if (value.is_string())
    return value.get<std::string>();
  if (value.is_null())
    return "none";
  switch (unit) {
  case Unit::Bytes:
    return formatBytes(value.get<uint64_t>());
  case Unit::Flops:
    return flopText(value.get<double>());
  case Unit::Time:
    return timeText(value.get<uint64_t>());
  case Unit::Fraction:
    return percentText(value.get<double>());
  default:
    return jsonText(value);
  }
}

std::string changeText(const Json &a, const Json &b, Unit unit) {
  if (!a.is_number() || !b.is_number() || unit == Unit::Fraction)
    return "";
  double before = a.get<double>(), after = b.get<double>();
  std::string sign = after < before ? "-" : "+";
  std::string text = unit == Unit::Bytes ? sign + formatBytes(uint64_t(std::abs(after - before))) : "";
  std::string share = before > 0 ? fmt::format("{}{}", sign, percentText(std::abs(after - before) / before)) : "";
  return text + (text.empty() || share.empty() ? "" : "  ") + share;
}

/// Rows of the members of `object` that are {"a", "b"}.
void addPairs(Table &table, const Json &object, const std::string &indent) {
  for (const auto &[key, value] : object.items())
    if (value.is_object() && value.size() == 2 && value.contains("a") && !value["a"].is_structured()) {
      Unit unit = unitOf(key);
      table.add({indent + titleOf(key), valueText(value["a"], unit), valueText(value["b"], unit),
                 changeText(value["a"], value["b"], unit)});
    }
}

Table pairTable(const std::string &title) { return Table("<>>>", {title, "A", "B", "change"}); }

std::string pairsText(const std::string &title, const Json &object) {
  Table table = pairTable(title);
  addPairs(table, object, "  ");
  if (table.empty())
    return "";
  std::string text = table.text();
  return "\n" + text.substr(2, title.size()) + "  " + text.substr(2 + title.size());
}

std::string nameOf(const Json &row, bool kernels) {
  std::string name = row["name"];
  if (kernels)
    return kernelText(name);
  std::string node = row["node"];
  return node.empty() || node == name ? name : name + " (" + node + ")";
}

/// "+", "-" and "~" rows of what appeared, vanished and changed; a title and sums first.
std::string quantitiesText(const std::string &title, const Json &changes, bool kernels, const std::string &noun) {
  std::vector<std::string> sums;
  for (const char *kind : {"appeared", "vanished", "changed"}) {
    if (!changes.contains(kind))
      continue;
    uint64_t bytes = 0, count = 0;
    for (const Json &row : changes[kind])
      if (row.contains("bytes")) {
        bytes += row["bytes"].get<uint64_t>();
        count += row["count"].get<uint64_t>();
      }
    size_t rows = changes[kind].size();
    sums.push_back(std::string(kind) == "changed"
                       ? fmt::format("{} changed", rows)
                       : fmt::format("{} {} ({})", counted(kernels ? rows : count, noun), kind, formatBytes(bytes)));
  }
  if (sums.empty())
    return "";
  std::string text = fmt::format("\n{}: {}\n", title, fmt::join(sums, ", "));
  Table table("<>>>", {"", "A", "B", ""});
  size_t left = 0;
  for (auto [kind, sign] : {std::pair("vanished", "-"), {"appeared", "+"}, {"changed", "~"}}) {
    if (!changes.contains(kind))
      continue;
    size_t shown = 0;
    for (const Json &row : changes[kind]) {
      if (shown++ >= kRowsShown) {
        ++left;
        continue;
      }
      auto cell = [&](const Json &quantity) {
        std::string bytes = formatBytes(quantity["bytes"].get<uint64_t>());
        uint64_t count = quantity["count"];
        return count == 1 ? bytes : fmt::format("{} x {}", count, bytes.insert(0, "total "));
      };
      bool both = row.contains("a");
      std::string before = both           ? cell(row["a"])
                           : *sign == '-' ? cell(row)
                                          : "",
                  after = both           ? cell(row["b"])
                          : *sign == '+' ? cell(row)
                                         : "";
      table.add({fmt::format("{} {}", sign, nameOf(row, kernels)), before, after,
                 both ? changeText(row["a"]["bytes"], row["b"]["bytes"], Unit::Bytes) : ""});
    }
  }
  std::string rows = table.text();
  text += rows.substr(rows.find('\n') + 1);
  return left ? text + fmt::format("  and {} more; --json lists all\n", left) : text;
}

std::string linesText(const std::string &title, const Json &lists) {
  std::string text;
  for (auto [kind, sign] : {std::pair("vanished", "-"), {"appeared", "+"}}) {
    if (!lists.contains(kind))
      continue;
    size_t shown = std::min(lists[kind].size(), 2 * kRowsShown);
    for (size_t i = 0; i < shown; ++i)
      text += fmt::format("  {} {}\n", sign, lists[kind][i].get<std::string>());
    if (shown < lists[kind].size())
      text += fmt::format("  {} and {} more; --json lists all\n", sign, lists[kind].size() - shown);
  }
  return text.empty() ? "" : "\n" + title + "\n" + text;
}

std::string programText(const std::string &name, const Json &program) {
  if (program.contains("change"))
    return fmt::format("\nprogram {}: {} ({} instructions, peak {}, arena {})\n", name,
                       program["change"] == "vanished" ? "in A alone" : "in B alone", jsonText(program["instructions"]),
                       formatBytes(program["peak_bytes"].get<uint64_t>()),
                       formatBytes(program["arena_bytes"].get<uint64_t>()));
  std::string text = pairsText("program " + name, program);
  if (program.contains("reordered"))
    text += fmt::format("{}  the same instructions in another order\n", text.empty() ? "\nprogram " + name + "\n" : "");
  if (program.contains("at_peak"))
    text += quantitiesText("buffers live at the peak of " + name, program["at_peak"], false, "buffer");
  return text;
}

} // namespace

std::string diffText(const Json &difference) {
  std::string text = pairsText("plan", difference["plan"]) + pairsText("memory", difference["memory"]);
  for (const auto &[name, program] : difference["programs"].items())
    text += programText(name, program);
  text += pairsText("recomputation", difference["recompute"]);
  text += quantitiesText("recomputed", difference["recompute"], false, "tensor");
  text += pairsText("kernels", difference["kernels"]);
  text += quantitiesText("kernels of one update", difference["kernels"], true, "kernel");
  const Json &parameters = difference["parameters"];
  for (auto [key, title] : {std::pair("trainable", "trained parameters"),
                            {"frozen", "frozen"},
                            {"unused", "parameters without a gradient"},
                            {"groups", "optimizer groups"}})
    if (parameters.contains(key))
      text += linesText(title, parameters[key]);
  text += linesText("recipe", difference["recipe"]) + linesText("notes", difference["notes"]);
  if (!text.empty())
    return text.substr(1);
  return difference["identical"].get<bool>()
             ? "no difference\n"
             : "no difference in the reports; the files differ in constants, weights, code or places of buffers\n";
}

} // namespace tcc::report
