//===- ReportDiff.cpp - compare two plans ---------------------------------===//
#include "tools/tcc/ReportDiff.h"
#include "tools/tcc/ReportStops.h"
#include "runtime/plan/Spaces.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
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
  compare(result, "allocated_bytes", plan::spaceBytes(a, plan::RESIDENT) + before.arenaBytes, plan::spaceBytes(b, plan::RESIDENT) + after.arenaBytes);
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

} // namespace tcc::report
