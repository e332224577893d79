//===- SchedulingGraph.cpp - live bytes by the set of executed instructions -===//
#include "compiler/planning/SchedulingGraph.h"

#include <algorithm>

namespace tcc::planning {

namespace {

void sortUnique(std::vector<int> &list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// The instructions in order, each after its predecessors. The stack is explicit: chains are as long as models are
/// deep.
Sequence validOrder(const std::vector<SchedulingGraph::Node> &nodes) {
  enum : char { kOpen, kWaiting, kPlaced };
  std::vector<char> state(nodes.size(), kOpen);
  Sequence order;
  std::vector<std::pair<int, size_t>> stack; // instruction, and how many of its predecessors were looked at
  for (int first = 0; first < int(nodes.size()); ++first) {
    if (state[size_t(first)] == kOpen)
      stack.push_back({first, 0});
    while (!stack.empty()) {
      auto &[id, looked] = stack.back();
      const std::vector<int> &before = nodes[size_t(id)].before;
      state[size_t(id)] = kWaiting;
      while (looked < before.size() && state[size_t(before[looked])] == kPlaced)
        ++looked;
      if (looked == before.size()) {
        state[size_t(id)] = kPlaced;
        order.push_back(id);
        stack.pop_back();
      } else if (state[size_t(before[looked])] == kWaiting) {
        return {};
      } else {
        stack.push_back({before[looked], 0});
      }
    }
  }
  return order;
}

} // namespace

SchedulingGraph::SchedulingGraph(const Program &program) {
  const Bytes alignment = PackingProblem().alignment;
  values.resize(program.values.size());
  nodes.resize(program.instructions.size());
  auto rounded = [&](Bytes bytes) {
    return int64_t((std::max<Bytes>(bytes, 1) + alignment - 1) / alignment * alignment);
  };
  for (size_t v = 0; v < values.size(); ++v) {
    values[v].bytes = rounded(program.values[v].bytes);
    values[v].producer = program.values[v].producer;
    values[v].atExit = program.values[v].atExit;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node &node = nodes[i];
    const ProgramInstruction &instruction = program.instructions[i];
    node.reads = instruction.reads;
    sortUnique(node.reads);
    for (int v : node.reads) {
      values[size_t(v)].readers.push_back(int(i));
      if (int producer = values[size_t(v)].producer; producer >= 0 && producer != int(i))
        node.before.push_back(producer);
    }
    for (int earlier : instruction.after)
      if (earlier != int(i))
        node.before.push_back(earlier);
    sortUnique(node.before);
    for (int earlier : node.before)
      nodes[size_t(earlier)].after.push_back(int(i));
    node.workspace = instruction.workspace ? rounded(instruction.workspace) : 0;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node &node = nodes[i];
    const ProgramInstruction &instruction = program.instructions[i];
    for (int v : instruction.writes) {
      if (instruction.omits && !values[size_t(v)].outlives())
        values[size_t(v)].bytes = 0;
      else
        node.writes.push_back(v);
    }
    for (auto [read, written] : instruction.inPlace)
      if (values[size_t(written)].bytes > 0 && !values[size_t(read)].atExit &&
          std::binary_search(node.reads.begin(), node.reads.end(), read))
        node.inPlace.push_back({read, written});
  }
  given = validOrder(nodes);
  for (const Value &value : values) {
    if (value.producer < 0)
      entryBytes += value.bytes;
    if (value.atExit)
      exitBytes += value.bytes;
  }
}

SchedulingGraph SchedulingGraph::withoutSmallValues(int64_t leastBytes) const {
  SchedulingGraph coarse = *this;
  for (Value &value : coarse.values)
    if (value.bytes < leastBytes) {
      if (value.producer < 0)
        coarse.entryBytes -= value.bytes;
      if (value.atExit)
        coarse.exitBytes -= value.bytes;
      value.bytes = 0;
    }
  return coarse;
}

LiveBytes::LiveBytes(const SchedulingGraph &graph) : graph(graph) {
  for (const SchedulingGraph::Value &value : graph.values) {
    left.push_back(int(value.readers.size()) + value.atExit);
    if (value.producer < 0)
      (value.outlives() ? bytes : unread) += value.bytes;
  }
  for (const SchedulingGraph::Node &node : graph.nodes)
    waiting.push_back(int(node.before.size()));
  executed.assign(graph.size(), 0);
  takesPart.assign(graph.values.size(), 0);
}

int64_t LiveBytes::during(int id) const { return bytes + step(id, 1) + (steps == 0 ? unread : 0); }

int64_t LiveBytes::afterwards(int id) const { return bytes + byRunning(id).beside; }

int64_t LiveBytes::step(int id, int readers) const {
  const SchedulingGraph::Node &node = graph.nodes[size_t(id)];
  int64_t most = node.workspace;
  for (int v : node.writes)
    most += graph.values[size_t(v)].bytes;
  ++question;
  for (auto [read, written] : node.inPlace) {
    uint64_t &from = takesPart[size_t(read)], &to = takesPart[size_t(written)];
    if (left[size_t(read)] != readers || from == question || to == question)
      continue;
    from = to = question;
    most -= graph.values[size_t(written)].bytes;
  }
  return most;
}

int64_t LiveBytes::freed(int id, int readers) const {
  int64_t freed = 0;
  for (int v : graph.nodes[size_t(id)].reads)
    if (left[size_t(v)] == readers)
      freed += graph.values[size_t(v)].bytes;
  return freed;
}

int64_t LiveBytes::taken(int id) const {
  int64_t taken = 0;
  for (int v : graph.nodes[size_t(id)].writes)
    if (graph.values[size_t(v)].outlives())
      taken += graph.values[size_t(v)].bytes;
  return taken;
}

void LiveBytes::tryRun(int id) {
  bytes = afterwards(id);
  for (int v : graph.nodes[size_t(id)].reads)
    --left[size_t(v)];
  ++steps;
}

void LiveBytes::untry(int id) {
  bytes += byTakingBack(id).beside;
  for (int v : graph.nodes[size_t(id)].reads)
    ++left[size_t(v)];
  --steps;
}

void LiveBytes::run(int id) {
  tryRun(id);
  for (int later : graph.nodes[size_t(id)].after)
    --waiting[size_t(later)];
  executed[size_t(id)] = 1;
}

void LiveBytes::takeBack(int id) {
  untry(id);
  for (int later : graph.nodes[size_t(id)].after)
    ++waiting[size_t(later)];
  executed[size_t(id)] = 0;
}

} // namespace tcc::planning
