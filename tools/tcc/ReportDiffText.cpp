//===- ReportDiffText.cpp - print the comparison of two plans -------------===//
#include "tools/tcc/ReportDiff.h"
#include "support/Json.h"

#include <fmt/format.h>

namespace tcc::report {

namespace {

using Json = nlohmann::ordered_json;

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
    text += quantitiesText("what lives at the peak of " + name, program["at_peak"], false, "buffer");
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
