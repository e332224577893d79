//===- Remat.cpp - tcc-plan remat -----------------------------------------===//
//
// For a budget, prints the cheapest schedule found, with lower bounds that limit its distance from the optimum; a
// frontier does so for budgets from the least feasible one to the memory without recomputation.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Rematerialization.h"
#include "support/AtomicFile.h"
#include "support/BytesText.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/ShortText.h"
#include "support/Status.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/Quantities.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc-plan/Commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tcc::tools {

struct RematGraphFile {
  std::string name;
  planning::RematProblem problem;
  std::vector<bool> backward; ///< for each node: part of the backward pass, as the file says
};

using planning::Bytes;
using planning::Cost;

namespace {

/// Limit of the sums of all sizes and costs, so that sums over many executions fit into 64 bits.
constexpr uint64_t kLargestSum = uint64_t(1) << 53;

/// A whole number, not negative. False: it is not one.
bool readCount(const nlohmann::json &object, const char *key, uint64_t &value) {
  auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned())
    return false;
  value = found->get<uint64_t>();
  return true;
}

} // namespace

/// Reads `{"format": 1, "name", "nodes": [{"name", "cost", "bytes", "backward"}], "edges": [[from, to]…]}`. An error
/// names the node or the edge.
static Expected<RematGraphFile> readRematGraph(const std::string &path) {
  Expected<std::string> content = tcc::readFile(path);
  if (!content)
    return content.status();
  Expected<nlohmann::json> parsed = parseJson(*content, path);
  if (!parsed)
    return parsed.status();
  nlohmann::json &root = *parsed;
  if (!root.is_object() || !root.contains("nodes") || !root["nodes"].is_array() || !root.contains("edges") ||
      !root["edges"].is_array())
    return error("{}: needs the lists `nodes` and `edges`", path);
  if (!root.contains("format") || root["format"] != 1)
    return error("{}: `format` is {}, this version reads 1", path,
                       root.contains("format") ? shortened(jsonText(root["format"])) : "missing");
  RematGraphFile graph;
  graph.name = root.contains("name") && root["name"].is_string() ? root["name"].get<std::string>() : path;
  uint64_t bytes = 0, cost = 0;
  for (const nlohmann::json &entry : root["nodes"]) {
    size_t index = graph.problem.nodes.size();
    if (!entry.is_object())
      return error("{}: node {} is not an object", path, index);
    planning::RematNode node;
    node.name = entry.contains("name") && entry["name"].is_string() ? entry["name"].get<std::string>()
                                                                    : "node " + std::to_string(index);
    if (!readCount(entry, "cost", node.cost) || !readCount(entry, "bytes", node.bytes))
      return error("{}: node {} ({}): `cost` and `bytes` must be whole numbers, not negative", path, index,
                         node.name);
    if (node.cost > kLargestSum || node.bytes > kLargestSum || (bytes += node.bytes) > kLargestSum ||
        (cost += node.cost) > kLargestSum)
      return error("{}: node {} ({}): costs or bytes add up to more than 2^53; use a larger unit", path, index,
                         node.name);
    bool backward = false;
    if (auto found = entry.find("backward"); found != entry.end()) {
      if (!found->is_boolean())
        return error("{}: node {} ({}): `backward` must be true or false", path, index, node.name);
      backward = found->get<bool>();
    }
    graph.problem.nodes.push_back(std::move(node));
    graph.backward.push_back(backward);
  }
  const size_t count = graph.problem.nodes.size();
  graph.problem.inputs.resize(count);
  size_t index = 0;
  for (const nlohmann::json &edge : root["edges"]) {
    if (!edge.is_array() || edge.size() != 2 || !edge[0].is_number_unsigned() || !edge[1].is_number_unsigned())
      return error("{}: edge {}: must be [from, to], two indices of nodes, not {}", path, index,
                   shortened(jsonText(edge)));
    uint64_t from = edge[0].get<uint64_t>(), to = edge[1].get<uint64_t>();
    if (from >= count || to >= count)
      return error("{}: edge {} {}: there are {} nodes", path, index, shortened(jsonText(edge)), count);
    if (from >= to)
      return error("{}: edge {} {}: {} precedes {}; nodes must be in a valid order of execution", path, index,
                   shortened(jsonText(edge)), graph.problem.nodes[to].name, graph.problem.nodes[from].name);
    graph.problem.inputs[to].push_back(int(from));
    ++index;
  }
  for (size_t v = 0; v < count; ++v) {
    std::vector<int> &inputs = graph.problem.inputs[v];
    std::sort(inputs.begin(), inputs.end());
    if (auto twice = std::adjacent_find(inputs.begin(), inputs.end()); twice != inputs.end())
      return error("{}: the edge [{}, {}] occurs twice", path, *twice, v);
  }
  return graph;
}

/// Checkpointing in segments (Chen et al. 2016): the forward nodes are cut into segments; of each, only the values that
/// later segments read are kept, and all others are recomputed when the backward pass first reads any of them. Segments
/// have equal numbers of nodes ("sqrt-n") or equal bytes ("greedy"); of all numbers of segments, the cheapest within
/// the budget is taken. Not feasible if none fits.
static planning::RematSolution checkpointInSegments(const RematGraphFile &graph, Bytes budget, bool byBytes) {
  const planning::RematProblem &problem = graph.problem;
  const size_t count = problem.nodes.size();
  uint64_t whole = 0;
  for (size_t v = 0; v < count; ++v)
    whole += graph.backward[v] ? 0 : byBytes ? problem.nodes[v].bytes : 1;
  planning::RematSolution best;
  for (size_t segments = 1; segments <= count; ++segments) {
    std::vector<size_t> segmentOf(count, 0);
    std::vector<bool> kept(count, false), again(segments, false);
    uint64_t before = 0;
    for (size_t v = 0; v < count; ++v) {
      if (graph.backward[v])
        continue;
      segmentOf[v] = size_t(double(before) * double(segments) / double(std::max<uint64_t>(whole, 1)));
      segmentOf[v] = std::min(segmentOf[v], segments - 1);
      before += byBytes ? problem.nodes[v].bytes : 1;
      for (int input : problem.inputs[v])
        if (segmentOf[size_t(input)] != segmentOf[v])
          kept[size_t(input)] = true;
    }
    planning::RematSchedule schedule;
    for (size_t v = 0; v < count; ++v) {
      if (graph.backward[v])
        for (int input : problem.inputs[v]) {
          size_t segment = segmentOf[size_t(input)];
          // The last segment's outputs are still live.
          if (graph.backward[size_t(input)] || kept[size_t(input)] || again[segment] || segment + 1 == segments)
            continue;
          again[segment] = true;
          for (size_t u = 0; u < count; ++u)
            if (!graph.backward[u] && !kept[u] && segmentOf[u] == segment)
              schedule.push_back(int(u));
        }
      schedule.push_back(int(v));
    }
    planning::RematMeasure measured = planning::measure(problem, schedule);
    if (measured.peak <= budget && (!best.feasible || measured.cost < best.cost))
      best = {true, std::move(schedule), measured.cost, measured.peak};
  }
  return best;
}

namespace {

using planning::Bytes;
using planning::Cost;
using planning::RematBound;
using planning::RematOptions;
using planning::RematProblem;
using planning::RematSchedule;
using planning::RematSolution;

/// Work by default: some seconds for some hundred nodes, half a minute for a thousand.
constexpr uint64_t kWorkPerPair = 10'000, kLeastWork = 1'500'000'000, kMostWork = 7'000'000'000;
/// Number of budgets of a frontier.
constexpr int kFrontierPoints = 16;

struct Answer {
  Bytes budget = 0;
  RematSolution solution;
  RematBound bound;
  double seconds = 0;
};

struct Command {
  RematGraphFile graph;
  RematSchedule given; ///< the nodes in their order
  planning::RematMeasure whole;
  RematOptions options;
  std::string baseline;
  SearchLimits limits;

  Answer answerFor(Bytes budget, RematSolution solution) const;
  RematSolution solve(Bytes budget) const;
  double extra(Cost cost) const { return whole.cost ? double(cost) / double(whole.cost) - 1 : 0; }
};

RematSolution Command::solve(Bytes budget) const {
  if (baseline == "sqrt-n" || baseline == "greedy")
    return checkpointInSegments(graph, budget, baseline == "greedy");
  return planning::rematerialize(graph.problem, budget, options);
}

Answer Command::answerFor(Bytes budget, RematSolution solution) const {
  Answer answer{budget, std::move(solution), {}, 0};
  answer.bound = planning::boundCost(graph.problem, budget, options);
  answer.seconds = limits.seconds();
  return answer;
}

nlohmann::ordered_json json(const Command &command, const Answer &answer) {
  std::vector<int> nodes;
  std::vector<size_t> fetched; // positions in the schedule
  for (int entry : answer.solution.schedule) {
    if (planning::isFetch(entry))
      fetched.push_back(nodes.size());
    nodes.push_back(planning::nodeOfEntry(entry));
  }
  nlohmann::ordered_json result;
  result["schedule"] = nodes;
  if (command.graph.problem.linkBytesPerCost)
    result["fetched"] = fetched;
  result.update({{"cost", answer.solution.cost},
                 {"peak_bytes", answer.solution.peak},
                 {"lower_bound_cost", answer.bound.anyOrder},
                 {"lower_bound_cost_given_order", answer.bound.givenOrder},
                 {"budget_bytes", answer.budget},
                 {"seconds", answer.seconds}});
  return result;
}

/// Points by descending budget. A smaller budget never costs less: its schedule also serves larger budgets.
std::vector<Answer> frontier(const Command &command) {
  const RematProblem &problem = command.graph.problem;
  RematSolution least = planning::leastMemory(problem, command.options);
  std::vector<RematSolution> found{least};
  for (int point = 1; point < kFrontierPoints; ++point) {
    Bytes budget = least.peak + Bytes(double(command.whole.peak - least.peak) * point / kFrontierPoints);
    if (RematSolution solution = command.solve(budget); solution.feasible)
      found.push_back(std::move(solution));
  }
  found.push_back({true, command.given, command.whole.cost, command.whole.peak});
  found.push_back(planning::improve(problem, least.peak, least.schedule, command.options));
  std::stable_sort(found.begin(), found.end(), [](const RematSolution &a, const RematSolution &b) {
    return a.peak != b.peak ? a.peak < b.peak : a.cost < b.cost;
  });
  std::vector<Answer> points;
  for (RematSolution &solution : found)
    if (points.empty() || solution.cost < points.back().solution.cost) {
      Bytes peak = solution.peak;
      points.push_back(command.answerFor(peak, std::move(solution)));
    }
  std::reverse(points.begin(), points.end());
  // A bound for a larger budget is one for a smaller budget.
  for (size_t i = 1; i < points.size(); ++i) {
    points[i].bound.anyOrder = std::max(points[i].bound.anyOrder, points[i - 1].bound.anyOrder);
    points[i].bound.givenOrder = std::max(points[i].bound.givenOrder, points[i - 1].bound.givenOrder);
  }
  return points;
}

std::string table(const Command &command, const std::vector<Answer> &answers) {
  std::string text =
      fmt::format("{}: {} nodes; without recomputation {} and cost {}\n", command.graph.name,
                  command.graph.problem.nodes.size(), bytesText(command.whole.peak), command.whole.cost);
  text += fmt::format("{:>12} {:>7} {:>14} {:>8} {:>12} {:>12} {:>8}\n", "peak", "of it", "cost", "extra",
                      "bound: order", "any order", "gap");
  for (const Answer &answer : answers)
    text += fmt::format("{:>12} {:>6.1f}% {:>14} {:>7.2f}% {:>11.2f}% {:>11.2f}% {:>7.2f}%\n",
                        bytesText(answer.solution.peak),
                        command.whole.peak ? 100 * double(answer.solution.peak) / double(command.whole.peak) : 100.0,
                        answer.solution.cost, 100 * command.extra(answer.solution.cost),
                        100 * command.extra(answer.bound.givenOrder), 100 * command.extra(answer.bound.anyOrder),
                        100 * (double(answer.solution.cost) / double(std::max<Cost>(answer.bound.givenOrder, 1)) - 1));
  text += "extra and bounds: beyond executing each node once; gap: above the bound for the given order\n";
  return text;
}

} // namespace

int rematCommand(int argc, char **argv) {
  CLI::App app(
      "Schedules a graph within a budget of memory by executing nodes more than once, at little cost. GRAPH.json\n"
      "holds nodes (name, cost, bytes) in a valid order, and edges. Exit status 3 if the budget cannot be met;\n"
      "the message names the least that can.",
      "tcc-plan remat");
  std::string path, output, budgetText;
  Command command;
  bool asJson = false, wholeFrontier = false, keepOrder = false;
  app.add_option("GRAPH", path, "JSON file")->required();
  auto *budgetOption =
      app.add_option("--budget", budgetText, "budget: bytes, or with KiB, MiB, GiB, or N% of the given order's peak");
  auto *frontierOption =
      app.add_flag("--frontier", wholeFrontier, "list points from least memory to no recomputation")
          ->excludes(budgetOption);
  app.add_flag("--json", asJson, "print the answer as JSON instead of a table");
  app.add_option("-o,--output", output, "write the answer as JSON to this file");
  app.add_flag("--keep-order", keepOrder, "keep first executions in the given order");
  app.add_option("--link", command.graph.problem.linkBytesPerCost,
                 "allow storing outputs in host memory: bytes that the link moves in a unit of cost")
      ->check(CLI::Range(Bytes(1), Bytes(1) << 53));
  app.add_option("--baseline", command.baseline, "solve by checkpointing in segments instead, for comparison")
      ->check(CLI::IsMember({"sqrt-n", "greedy"}))
      ->excludes(frontierOption);
  command.limits.addTo(app, "elementary visits", "by the number of nodes");
  Arguments arguments = readArguments(app, argc, argv);
  if (arguments.answered)
    return kExitDone;
  if (!arguments.status.ok())
    return printError(arguments.status);
  if (Status status = checkOutputs(app, {{"--output", OwnFile::Schedule}}); !status.ok())
    return printError(status);
  if (!budgetOption->count() && !wholeFrontier)
    return printError(Status("--budget or --frontier is missing; see tcc-plan remat --help", StatusCode::Usage));
  Expected<RematGraphFile> graph = readRematGraph(path);
  if (!graph)
    return printError(graph.status());
  graph->problem.linkBytesPerCost = command.graph.problem.linkBytesPerCost;
  command.graph = std::move(*graph);
  const RematProblem &problem = command.graph.problem;
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    command.given.push_back(int(v));
  command.whole = planning::measure(problem, command.given);
  command.options.keepOrder = keepOrder;
  command.options.atAnyCost = true;
  uint64_t pairs = problem.nodes.size() * problem.nodes.size();
  const uint64_t work = command.limits.work;
  command.options.work = work ? work : std::clamp(kWorkPerPair * pairs, kLeastWork, kMostWork);
  if (wholeFrontier && !work)
    command.options.work /= 4;
  command.options.stop = command.limits.stop();

  std::vector<Answer> answers;
  nlohmann::ordered_json result;
  if (wholeFrontier) {
    answers = frontier(command);
    result = nlohmann::ordered_json::array();
    for (const Answer &answer : answers)
      result.push_back(json(command, answer));
  } else {
    Expected<uint64_t> budget = parseMemorySize("--budget", budgetText, command.whole.peak);
    if (!budget)
      return printError(budget.status());
    RematSolution solution = command.solve(*budget);
    if (!solution.feasible && command.baseline.empty()) {
      RematSolution least = planning::leastMemory(problem, command.options);
      if (least.peak > *budget) {
        auto share = [&](Bytes bytes) {
          return command.whole.peak ? 100 * double(bytes) / double(command.whole.peak) : 100.0;
        };
        const Bytes bound = planning::boundPeak(problem);
        const bool proved =
            bound <= *budget && keepOrder && planning::boundCost(problem, *budget, command.options).infeasible;
        return printError(Status(
            fmt::format(
                "{}: no schedule {}within {} bytes {}; the least budget that {} is {} bytes ({:.1f} % of the given "
                "order's peak)",
                path, keepOrder ? "in the given order " : "", *budget,
                bound > *budget ? std::string("exists, as a bound of the peak proves")
                : proved        ? std::string("exists, as the bound of its cost proves")
                         : fmt::format("was found{}, but one may exist: it is only proved that none stays "
                                       "below {} bytes ({:.1f} %)",
                                       command.limits.hasDeadline() ? " in time" : "", bound, share(bound)),
                bound == least.peak ? "can be met" : "was met", least.peak, share(least.peak)),
            StatusCode::OverBudget));
      }
      solution = planning::improve(problem, *budget, least.schedule, command.options);
    }
    if (!solution.feasible)
      return printError(Status(fmt::format("{}: no checkpointing in segments stays within {} bytes", path, *budget),
                               StatusCode::OverBudget));
    answers.push_back(command.answerFor(*budget, std::move(solution)));
    result = json(command, answers.back());
  }
  for (const Answer &answer : answers)
    if (std::string wrong = planning::validate(problem, answer.solution.schedule); !wrong.empty())
      return printError(error("internal error: the schedule is wrong: {}", wrong));
  if (!output.empty())
    if (Status status = tcc::writeFileAtomically(output, jsonText(result) + "\n", OwnFile::Schedule); !status.ok())
      return printError(status);
  if (asJson)
    printResult("{}\n", jsonText(result));
  else
    printResult("{}", table(command, answers));
  if (command.limits.hasDeadline())
    printMessage("with a deadline: not reproducible\n");
  return kExitDone;
}

} // namespace tcc::tools
