//===- RematGraph.cpp - graphs of rematerialisation as files --------------===//
#include "tools/tcc-plan/RematGraph.h"

#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/ShortText.h"


#include <algorithm>

namespace tcc::tools {

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

Expected<RematGraphFile> readRematGraph(const std::string &path) {
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
      return error("{}: edge {}: must be [from, to], two indices of nodes, not {}", path, index, shortened(jsonText(edge)));
    uint64_t from = edge[0].get<uint64_t>(), to = edge[1].get<uint64_t>();
    if (from >= count || to >= count)
      return error("{}: edge {} {}: there are {} nodes", path, index, shortened(jsonText(edge)), count);
    if (from >= to)
      return error("{}: edge {} {}: {} stands before {}; nodes must stand in a valid order of execution", path,
                         index, shortened(jsonText(edge)), graph.problem.nodes[to].name, graph.problem.nodes[from].name);
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

planning::RematSolution checkpointInSegments(const RematGraphFile &graph, Bytes budget, bool byBytes) {
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

} // namespace tcc::tools
