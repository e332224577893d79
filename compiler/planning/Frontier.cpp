//===- Frontier.cpp -------------------------------------------------------===//
#include "compiler/planning/Frontier.h"

#include "compiler/planning/Scheduling.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <numeric>
#include <thread>

namespace tcc::planning {

namespace {

Bytes aligned(Bytes bytes) {
  const Bytes alignment = PackingProblem().alignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

Bytes packedBytes(const Program &program, const Sequence &sequence, uint64_t work) {
  std::vector<int> bufferOf;
  return pack(packingOf(blocksOf(program, sequence), bufferOf), work).bytes;
}

/// Executions of instructions from executions of nodes: the results of one instruction are made together, the first
/// time and wherever they follow one another.
Sequence sequenceOf(const Program &program, const RematSchedule &schedule, const std::vector<int> &nodeInstruction) {
  Sequence sequence;
  std::vector<bool> nodeDone(nodeInstruction.size(), false), done(program.instructions.size(), false);
  for (int node : schedule) {
    int instruction = nodeInstruction[size_t(node)];
    bool first = !nodeDone[size_t(node)];
    nodeDone[size_t(node)] = true;
    if (instruction < 0 || (first && done[size_t(instruction)]) ||
        (!sequence.empty() && sequence.back() == instruction))
      continue;
    done[size_t(instruction)] = true;
    sequence.push_back(instruction);
  }
  return withoutDeadExecutions(program, sequence);
}

/// Calls `run` with 0 … count − 1, on as many threads as the machine has.
template <typename Run> void inParallel(size_t count, const Run &run) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < count;)
      run(i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(count, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
}

/// The same executions in an order of a smaller peak, or the sequence itself.
Sequence reordered(const Program &program, const Sequence &sequence, uint64_t work) {
  SchedulingOptions options;
  options.work = work;
  Sequence order = schedule(expand(program, sequence), options).order, result;
  for (int execution : order)
    result.push_back(sequence[size_t(execution)]);
  // In another order a copy may have no reader left.
  result = withoutDeadExecutions(program, result);
  return validate(program, result).empty() && peakOf(program, result) < peakOf(program, sequence) ? result : sequence;
}

} // namespace

RematProblem rematProblemOf(const Program &program, std::vector<int> &nodeInstruction) {
  RematProblem problem;
  nodeInstruction.clear();
  std::vector<int> nodeOf(program.values.size(), -1), firstNode(program.instructions.size(), -1);
  std::vector<bool> read(program.values.size(), false);
  for (const ProgramInstruction &instruction : program.instructions)
    for (int v : instruction.reads)
      read[size_t(v)] = true;
  auto add = [&](RematNode node, std::vector<int> inputs, int instruction) {
    std::sort(inputs.begin(), inputs.end());
    problem.nodes.push_back(std::move(node));
    problem.inputs.push_back(std::move(inputs));
    nodeInstruction.push_back(instruction);
    return int(problem.nodes.size()) - 1;
  };
  auto nodeOfValue = [&](int v) {
    RematNode node;
    node.name = program.values[size_t(v)].name;
    node.bytes = aligned(program.values[size_t(v)].bytes);
    node.liveAtExit = program.values[size_t(v)].atExit;
    return node;
  };
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0) {
      RematNode node = nodeOfValue(int(v));
      node.repeatable = false;
      nodeOf[v] = add(node, {}, -1);
    }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const ProgramInstruction &instruction = program.instructions[i];
    std::vector<int> inputs, written;
    for (int v : instruction.reads)
      inputs.push_back(nodeOf[size_t(v)]);
    for (int v : instruction.writes)
      if (!instruction.omits || read[size_t(v)] || program.values[size_t(v)].atExit)
        written.push_back(v);
    // What is written over an operand comes last: the operand lives until there.
    auto [over, overWritten] = instruction.inPlace.empty() ? std::pair(-1, -1) : instruction.inPlace.front();
    std::stable_partition(written.begin(), written.end(), [&, last = overWritten](int v) { return v != last; });
    firstNode[i] = int(problem.nodes.size());
    for (int v : written) {
      RematNode node = nodeOfValue(v);
      node.cost = instruction.cost;
      node.workspace = aligned(instruction.workspace);
      node.repeatable = instruction.repeatable;
      if (v == overWritten)
        node.overwrites = nodeOf[size_t(over)];
      nodeOf[size_t(v)] = add(node, inputs, int(i));
    }
    if (written.empty()) {
      RematNode node;
      node.name = instruction.name;
      node.cost = instruction.cost;
      node.workspace = aligned(instruction.workspace);
      node.repeatable = false;
      add(node, inputs, int(i));
    }
  }
  // What reads state is not executed again once that is overwritten.
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (int reader : program.instructions[i].after)
      for (size_t n = size_t(firstNode[size_t(reader)]); n < problem.nodes.size() && nodeInstruction[n] == reader;
           ++n) {
        int &limit = problem.nodes[n].repeatBefore;
        limit = limit < 0 ? firstNode[i] : std::min(limit, firstNode[i]);
      }
  return problem;
}

Sequence withoutDeadExecutions(const Program &program, const Sequence &sequence) {
  std::vector<bool> needed(program.values.size());
  for (size_t v = 0; v < program.values.size(); ++v)
    needed[v] = program.values[v].atExit;
  std::vector<int> left(program.instructions.size(), 0);
  std::vector<size_t> earliest(program.instructions.size(), 0);
  for (size_t at = sequence.size(); at-- > 0;) {
    ++left[size_t(sequence[at])];
    earliest[size_t(sequence[at])] = at;
  }
  Sequence kept;
  for (size_t at = sequence.size(); at-- > 0;) {
    const size_t id = size_t(sequence[at]);
    const ProgramInstruction &instruction = program.instructions[id];
    bool useful =
        std::any_of(instruction.writes.begin(), instruction.writes.end(), [&](int v) { return needed[size_t(v)]; });
    bool effect = instruction.writesState && at == earliest[id];
    if (!useful && !effect && left[id] > 1) {
      --left[id];
      continue;
    }
    kept.push_back(int(id));
    for (int v : instruction.writes)
      needed[size_t(v)] = false;
    for (int v : instruction.reads)
      needed[size_t(v)] = true;
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

Program expand(const Program &program, const Sequence &sequence) {
  Program expanded;
  std::vector<int> newest(program.values.size(), -1), executionOf(program.instructions.size(), -1);
  auto add = [&](int v, int producer) {
    ProgramValue value = program.values[size_t(v)];
    value.producer = producer;
    value.atExit = false;
    newest[size_t(v)] = int(expanded.values.size());
    expanded.values.push_back(std::move(value));
  };
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0)
      add(int(v), -1);
  std::vector<std::vector<int>> executions(program.instructions.size());
  for (size_t at = 0; at < sequence.size(); ++at)
    executions[size_t(sequence[at])].push_back(int(at));
  for (size_t at = 0; at < sequence.size(); ++at) {
    const ProgramInstruction &source = program.instructions[size_t(sequence[at])];
    ProgramInstruction instruction = source;
    instruction.reads.clear();
    instruction.writes.clear();
    instruction.inPlace.clear();
    instruction.after.clear();
    instruction.repeatable = false;
    for (int v : source.reads)
      instruction.reads.push_back(newest[size_t(v)]);
    std::vector<int> before = newest;
    for (int v : source.writes) {
      add(v, int(at));
      instruction.writes.push_back(newest[size_t(v)]);
    }
    for (auto [read, written] : source.inPlace)
      instruction.inPlace.push_back({before[size_t(read)], newest[size_t(written)]});
    for (int earlier : source.after)
      for (int execution : executions[size_t(earlier)])
        instruction.after.push_back(execution);
    std::sort(instruction.reads.begin(), instruction.reads.end());
    std::sort(instruction.after.begin(), instruction.after.end());
    expanded.instructions.push_back(std::move(instruction));
  }
  for (size_t v = 0; v < program.values.size(); ++v)
    if (newest[v] >= 0)
      expanded.values[size_t(newest[v])].atExit = program.values[v].atExit;
  return expanded;
}

std::vector<Block> liveAtPeak(const Program &program, const Sequence &sequence) {
  std::vector<Block> blocks = blocksOf(program, sequence);
  std::vector<int> bufferOf;
  PackingProblem problem = packingOf(blocks, bufferOf);
  std::vector<int64_t> change(sequence.size() + 3, 0);
  for (const PackingBuffer &buffer : problem.buffers) {
    change[size_t(buffer.first + 1)] += int64_t(aligned(buffer.bytes));
    change[size_t(buffer.last + 2)] -= int64_t(aligned(buffer.bytes));
  }
  int64_t live = 0, most = -1;
  Time peak = -1;
  for (size_t at = 0; at < change.size(); ++at)
    if ((live += change[at]) > most) {
      most = live;
      peak = Time(at) - 1;
    }
  std::vector<Block> found;
  for (const Block &block : blocks)
    if (block.first <= peak && peak <= block.last && !(block.inPlaceOf >= 0 && block.first == peak))
      found.push_back(block);
  std::stable_sort(found.begin(), found.end(), [](const Block &a, const Block &b) { return a.bytes > b.bytes; });
  return found;
}

std::vector<FrontierPoint> frontier(const Program &program, const FrontierOptions &options) {
  auto point = [&](Sequence sequence, uint64_t packingWork) {
    FrontierPoint made;
    made.peak = peakOf(program, sequence);
    made.packingWork = packingWork;
    made.bytes = packedBytes(program, sequence, packingWork);
    made.cost = costOf(program, sequence);
    made.sequence = std::move(sequence);
    return made;
  };
  Sequence once(program.instructions.size());
  std::iota(once.begin(), once.end(), 0);
  std::vector<FrontierPoint> points{point(once, kPackingWork)};

  std::vector<int> nodeInstruction;
  RematProblem problem = rematProblemOf(program, nodeInstruction);
  RematSchedule given(problem.nodes.size());
  std::iota(given.begin(), given.end(), 0);
  const Bytes most = measure(problem, given).peak;
  RematOptions solver;
  solver.work = options.work / (options.rungs + 1);
  // Each rung is solved for itself: several at a time, the same whatever the number of threads.
  std::vector<std::vector<FrontierPoint>> solved;
  auto follow = [&](const RematSolution &solution, std::vector<FrontierPoint> &found) {
    if (!solution.feasible)
      return;
    Sequence sequence = sequenceOf(program, solution.schedule, nodeInstruction);
    if (!validate(program, sequence).empty())
      return;
    found.push_back(point(sequence, options.packingWork));
    if (options.schedulingWork)
      if (Sequence other = reordered(program, sequence, options.schedulingWork); other != sequence)
        found.push_back(point(other, options.packingWork));
  };
  RematSolution least = leastMemory(problem, solver);
  if (least.feasible && least.peak < most && options.rungs) {
    // Costs rise steeply towards the least: more budgets there.
    constexpr double kNearLeast[] = {1.0 / 32, 1.0 / 64, 1.0 / 128};
    std::vector<double> shares{0};
    for (unsigned rung = 1; rung < options.rungs; ++rung)
      shares.push_back(1 - double(rung) / options.rungs);
    shares.insert(shares.end(), std::begin(kNearLeast), std::end(kNearLeast));
    solved.resize(shares.size());
    inParallel(shares.size(), [&](size_t i) {
      Bytes budget = least.peak + Bytes(double(most - least.peak) * shares[i]);
      follow(i ? rematerialize(problem, budget, solver) : improve(problem, least.peak, least.schedule, solver),
             solved[i]);
    });
    for (std::vector<FrontierPoint> &found : solved)
      std::move(found.begin(), found.end(), std::back_inserter(points));
  }
  // The cheapest first; of what follows, what needs less memory than all before it.
  std::stable_sort(points.begin(), points.end(), [](const FrontierPoint &a, const FrontierPoint &b) {
    return a.cost != b.cost ? a.cost < b.cost : a.bytes < b.bytes;
  });
  std::vector<FrontierPoint> kept;
  for (FrontierPoint &candidate : points)
    if (kept.empty() || candidate.bytes < kept.back().bytes)
      kept.push_back(std::move(candidate));

  // A lower bound counts each result of an instruction with its share of the cost: several are made together.
  std::vector<Cost> results(program.instructions.size(), 0);
  for (int instruction : nodeInstruction)
    if (instruction >= 0)
      ++results[size_t(instruction)];
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    if (nodeInstruction[n] >= 0)
      problem.nodes[n].cost /= results[size_t(nodeInstruction[n])];
  Cost onceCost = costOf(program, once), nodes = measure(problem, given).cost;
  solver.work = options.boundWork / kept.size();
  inParallel(kept.size(), [&](size_t i) {
    FrontierPoint &candidate = kept[i];
    candidate.lowerBound = onceCost;
    if (options.boundWork && i) {
      Cost bound = boundCost(problem, candidate.bytes, solver).givenOrder;
      candidate.lowerBound = std::min(candidate.cost, onceCost + (bound > nodes ? bound - nodes : 0));
    }
  });
  // What holds for more bytes holds for fewer.
  for (size_t i = 1; i < kept.size(); ++i)
    kept[i].lowerBound = std::max(kept[i].lowerBound, kept[i - 1].lowerBound);
  return kept;
}

} // namespace tcc::planning
