//===- FrontierProgram.cpp - programs, problems and sequences --*- C++ -*-===//
//
// Translates a program to a problem of recomputation and back, and evaluates sequences of executions.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Frontier.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tcc::planning {

namespace {

Bytes aligned(Bytes bytes) {
  const Bytes alignment = PackingProblem().alignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

} // namespace

namespace {

/// With `relaxed` every result may be written in place of an operand that dies, not only the first result over its
/// preferred operand.
RematProblem problemOf(const Program &program, std::vector<int> &nodeInstruction, std::vector<int> &nodeValue,
                       bool relaxed) {
  RematProblem problem;
  nodeInstruction.clear();
  nodeValue.clear();
  std::vector<int> nodeOf(program.values.size(), -1), firstNode(program.instructions.size(), -1);
  Sequence once(program.instructions.size());
  std::iota(once.begin(), once.end(), 0);
  const std::vector<Execution> firsts = executionsOf(program, once);
  auto add = [&](RematNode node, std::vector<int> inputs, int instruction) {
    std::sort(inputs.begin(), inputs.end());
    problem.nodes.push_back(std::move(node));
    problem.inputs.push_back(std::move(inputs));
    nodeInstruction.push_back(instruction);
    nodeValue.push_back(-1);
    return int(problem.nodes.size()) - 1;
  };
  auto addValue = [&](int v, RematNode node, std::vector<int> inputs, int instruction) {
    nodeOf[size_t(v)] = add(std::move(node), std::move(inputs), instruction);
    nodeValue.back() = v;
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
      addValue(int(v), node, {}, -1);
    }
  auto nodesOf = [&](const std::vector<int> &values) {
    std::vector<int> nodes;
    for (int v : values)
      nodes.push_back(nodeOf[size_t(v)]);
    return nodes;
  };
  auto contains = [](const std::vector<int> &list, int element) {
    return std::find(list.begin(), list.end(), element) != list.end();
  };
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const ProgramInstruction &instruction = program.instructions[i];
    // The first execution makes every result that has a reader.
    const Execution &first = firsts[i];
    std::vector<int> written = first.writes;
    // The result that is written in place comes last, since it ends the operand's life.
    auto [over, overWritten] = first.inPlace.empty() ? std::pair(-1, -1) : first.inPlace.front();
    std::stable_partition(written.begin(), written.end(), [&, last = overWritten](int v) { return v != last; });
    firstNode[i] = int(problem.nodes.size());
    // With partial executions: one execution for each result. The remaining reads (`rest`) serve only the instruction's
    // effect on state, which happens once.
    const bool isPartial = instruction.partial && instruction.omits && instruction.repeatable &&
                           (written.size() > 1 || (written.size() == 1 && instruction.writesState));
    std::vector<Execution> alone;
    std::vector<Cost> shares(written.size(), first.cost / std::max<size_t>(written.size(), 1));
    std::vector<int> rest = first.reads;
    for (int v : written) {
      std::vector<bool> needed(program.values.size(), false);
      needed[size_t(v)] = true;
      alone.push_back(isPartial ? executionOf(instruction, needed, false) : first);
      std::erase_if(rest, [&](int v) { return contains(alone.back().reads, v); });
    }
    if (isPartial) {
      const std::vector<Cost> all = instruction.partial->shares();
      for (size_t w = 0; w < written.size(); ++w)
        shares[w] = all[size_t(std::find(instruction.writes.begin(), instruction.writes.end(), written[w]) -
                               instruction.writes.begin())];
    }
    // Operands that an execution for several results may overwrite with a result that does not read them.
    auto isCandidate = [&](int operand) {
      for (size_t w = 0; w < written.size(); ++w)
        if (program.values[size_t(operand)].producer >= 0 && !contains(alone[w].reads, operand) &&
            program.values[size_t(operand)].bytes == program.values[size_t(written[w])].bytes)
          return true;
      return false;
    };
    std::vector<int> spent; // operands that an earlier result may have overwritten
    if (written.empty() || (isPartial && !rest.empty())) {
      RematNode node;
      node.name = instruction.name;
      node.repeatable = false;
      if (written.empty()) {
        node.cost = first.cost;
        node.workspace = aligned(first.workspace);
      } else if (relaxed) {
        std::erase_if(rest, isCandidate);
      }
      add(node, nodesOf(rest), int(i));
    }
    for (size_t w = 0; w < written.size(); ++w) {
      const int v = written[w];
      RematNode node = nodeOfValue(v);
      node.cost = relaxed ? shares[w] : alone[w].cost;
      node.workspace = aligned(alone[w].workspace);
      node.repeatable = instruction.repeatable;
      std::vector<int> needed = alone[w].reads;
      if (!relaxed) {
        if (v == overWritten && contains(needed, over))
          node.overwrites = nodeOf[size_t(over)];
      } else {
        // The result overwrites at most one of its candidates, so the relaxed node needs only that one.
        int taken = -1;
        for (auto [operand, result] : alone[w].inPlace)
          if (result == v && taken < 0 && contains(needed, operand) && !contains(spent, operand))
            taken = operand;
        std::vector<int> candidates;
        for (auto [operand, result] : alone[w].inPlace)
          if (result == v)
            candidates.push_back(operand);
        std::erase_if(needed, [&](int operand) {
          return operand != taken &&
                 (contains(candidates, operand) || contains(spent, operand) || (isPartial && isCandidate(operand)));
        });
        node.overwrites = taken < 0 ? -1 : nodeOf[size_t(taken)];
        spent.insert(spent.end(), candidates.begin(), candidates.end());
      }
      addValue(v, node, nodesOf(needed), int(i));
    }
  }
  // A reader of state is not executed again once the state is overwritten.
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (int reader : program.instructions[i].after)
      for (size_t n = size_t(firstNode[size_t(reader)]); n < problem.nodes.size() && nodeInstruction[n] == reader;
           ++n) {
        int &limit = problem.nodes[n].repeatBefore;
        limit = limit < 0 ? firstNode[i] : std::min(limit, firstNode[i]);
      }
  return problem;
}

} // namespace

RematProblem rematProblemOf(const Program &program, std::vector<int> &nodeInstruction, std::vector<int> *nodeValue) {
  std::vector<int> unused;
  return problemOf(program, nodeInstruction, nodeValue ? *nodeValue : unused, false);
}

RematProblem boundProblemOf(const Program &program) {
  std::vector<int> nodeInstruction, nodeValue;
  return problemOf(program, nodeInstruction, nodeValue, true);
}

std::array<Cost, 3> costsByChannel(const Program &program) {
  Sequence once(program.instructions.size());
  std::iota(once.begin(), once.end(), 0);
  std::erase_if(once, [&](int id) { return program.instructions[size_t(id)].optional; });
  const std::vector<Execution> executions = executionsOf(program, once);
  std::array<Cost, 3> sums{};
  for (size_t at = 0; at < once.size(); ++at)
    sums[size_t(program.instructions[size_t(once[at])].transfer)] += executions[at].cost;
  return sums;
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
    if (!useful && !effect && (left[id] > 1 || instruction.optional)) {
      --left[id];
      continue;
    }
    kept.push_back(int(id));
    const Execution execution = executionOf(instruction, needed, at == earliest[id]);
    for (int v : instruction.writes)
      needed[size_t(v)] = false;
    for (int v : execution.reads)
      needed[size_t(v)] = true;
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

Program inOrder(const Program &program, const Sequence &order) {
  Program result;
  result.values = program.values;
  std::vector<int> place(order.size());
  for (size_t at = 0; at < order.size(); ++at)
    place[size_t(order[at])] = int(at);
  for (ProgramValue &value : result.values)
    if (value.producer >= 0)
      value.producer = place[size_t(value.producer)];
  for (int id : order) {
    result.instructions.push_back(program.instructions[size_t(id)]);
    std::vector<int> &after = result.instructions.back().after;
    for (int &earlier : after)
      earlier = place[size_t(earlier)];
    std::sort(after.begin(), after.end());
  }
  return result;
}

Program expand(const Program &program, const Sequence &sequence) {
  Program expanded;
  std::vector<int> newest(program.values.size(), -1), executionOf(program.instructions.size(), -1);
  auto add = [&](int v, int producer) {
    ProgramValue value = program.values[size_t(v)];
    value.producer = producer;
    value.atExit = false;
    if (value.onHost)
      value.bytes = 0;
    newest[size_t(v)] = int(expanded.values.size());
    expanded.values.push_back(std::move(value));
  };
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0)
      add(int(v), -1);
  std::vector<std::vector<int>> positions(program.instructions.size());
  for (size_t at = 0; at < sequence.size(); ++at)
    positions[size_t(sequence[at])].push_back(int(at));
  const std::vector<Execution> executions = executionsOf(program, sequence);
  for (size_t at = 0; at < sequence.size(); ++at) {
    const ProgramInstruction &source = program.instructions[size_t(sequence[at])];
    const Execution &execution = executions[at];
    ProgramInstruction instruction;
    instruction.name = source.name;
    instruction.cost = execution.cost;
    instruction.workspace = execution.workspace;
    instruction.scratch = execution.scratch;
    instruction.transfer = source.transfer;
    instruction.writesState = source.writesState && positions[size_t(sequence[at])].front() == int(at);
    for (int v : execution.reads)
      instruction.reads.push_back(newest[size_t(v)]);
    std::vector<int> before = newest;
    for (int v : execution.writes) {
      add(v, int(at));
      instruction.writes.push_back(newest[size_t(v)]);
    }
    for (auto [read, written] : execution.inPlace)
      if (std::find(execution.writes.begin(), execution.writes.end(), written) != execution.writes.end())
        instruction.inPlace.push_back({before[size_t(read)], newest[size_t(written)]});
    for (int earlier : source.after)
      for (int position : positions[size_t(earlier)])
        instruction.after.push_back(position);
    std::sort(instruction.reads.begin(), instruction.reads.end());
    std::sort(instruction.after.begin(), instruction.after.end());
    expanded.instructions.push_back(std::move(instruction));
  }
  for (size_t v = 0; v < program.values.size(); ++v)
    if (newest[v] >= 0)
      expanded.values[size_t(newest[v])].atExit = program.values[v].atExit;
  return expanded;
}

namespace {

/// Bytes live at each position of a sequence; the first is at entry, the last at exit.
std::vector<int64_t> liveBytes(const std::vector<Block> &blocks, size_t length) {
  std::vector<int> bufferOf;
  PackingProblem problem = packingOf(blocks, bufferOf);
  std::vector<int64_t> live(length + 3, 0);
  for (const PackingBuffer &buffer : problem.buffers) {
    live[size_t(buffer.first + 1)] += int64_t(aligned(buffer.bytes));
    live[size_t(buffer.last + 2)] -= int64_t(aligned(buffer.bytes));
  }
  for (const PackingScratch &scratch : problem.scratch) {
    live[size_t(scratch.at + 1)] += int64_t(aligned(scratch.bytes));
    live[size_t(scratch.at + 2)] -= int64_t(aligned(scratch.bytes));
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

} // namespace

std::vector<Block> liveAtPeak(const Program &program, const Sequence &sequence) {
  std::vector<Block> blocks = blocksOf(program, sequence);
  const std::vector<int64_t> live = liveBytes(blocks, sequence.size());
  const Time peak = Time(std::max_element(live.begin(), live.end()) - live.begin()) - 1;
  std::vector<Block> found;
  for (const Block &block : blocks)
    if (block.first <= peak && peak <= block.last && !(block.inPlaceOf >= 0 && block.first == peak))
      found.push_back(block);
  std::stable_sort(found.begin(), found.end(), [](const Block &a, const Block &b) { return a.bytes > b.bytes; });
  return found;
}

namespace {

/// Repeats, in order, whose results could stay live since the previous execution without exceeding `peak`. Only counts
/// bytes: a value written in place of a result that now lives longer would need memory of its own.
std::vector<size_t> repeatsWithRoom(const Program &program, const Sequence &sequence, Bytes peak) {
  const std::vector<Execution> executions = executionsOf(program, sequence);
  std::vector<int64_t> live = liveBytes(blocksOf(program, sequence), sequence.size());
  std::vector<size_t> last(program.instructions.size(), sequence.size()), found;
  std::vector<size_t> made(program.values.size(), sequence.size());
  for (size_t at = 0; at < sequence.size(); ++at) {
    // What a fetch brings back may have been made by another instruction.
    const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
    const bool brings = instruction.optional && instruction.transfer == Transfer::Fetch;
    size_t &before = brings ? made[size_t(instruction.writes.front())] : last[size_t(sequence[at])];
    if (before < at) {
      int64_t kept = 0;
      for (int v : executions[at].writes)
        kept += int64_t(aligned(program.values[size_t(v)].bytes));
      // Position i is element i + 1; at both ends the results live already.
      const auto from = live.begin() + long(before) + 1, to = live.begin() + long(at) + 1;
      if (*std::max_element(from, to) + kept <= int64_t(peak)) {
        std::for_each(from, to, [&](int64_t &bytes) { bytes += kept; });
        found.push_back(at);
        continue;
      }
    }
    before = at;
    for (int v : executions[at].writes)
      made[size_t(v)] = at;
  }
  return found;
}

} // namespace

Sequence withoutNeedlessRepeats(const Program &program, Sequence sequence) {
  constexpr int kMostRounds = 4;
  const Bytes peak = peakOf(program, sequence);
  for (int round = 0; round < kMostRounds; ++round) {
    const std::vector<size_t> repeats = repeatsWithRoom(program, sequence, peak);
    std::vector<bool> gone(sequence.size(), false);
    Sequence best = sequence;
    Cost cost = costOf(program, best);
    // Removes all repeats at once; if that fails, tries each half.
    std::function<void(size_t, size_t)> leave = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i)
        gone[repeats[i]] = true;
      Sequence fewer;
      for (size_t at = 0; at < sequence.size(); ++at)
        if (!gone[at])
          fewer.push_back(sequence[at]);
      fewer = withoutDeadExecutions(program, fewer);
      if (validate(program, fewer).empty() && peakOf(program, fewer) <= peak && costOf(program, fewer) < cost) {
        cost = costOf(program, fewer);
        best = std::move(fewer);
        return;
      }
      for (size_t i = begin; i < end; ++i)
        gone[repeats[i]] = false;
      if (const size_t half = (begin + end) / 2; end - begin > 1) {
        leave(begin, half);
        leave(half, end);
      }
    };
    if (!repeats.empty())
      leave(0, repeats.size());
    if (best == sequence)
      break;
    sequence = std::move(best);
  }
  return sequence;
}

} // namespace tcc::planning
