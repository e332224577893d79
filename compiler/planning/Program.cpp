//===- Program.cpp - live ranges of a sequence of instructions ------------===//
#include "compiler/planning/Program.h"

#include <algorithm>

namespace tcc::planning {

const Execution &PartialExecutions::of(const std::vector<bool> &wanted) const {
  std::lock_guard lock(mutex);
  auto found = made.find(wanted);
  return found != made.end() ? found->second : made.emplace(wanted, make(wanted)).first->second;
}

Execution executionOf(const ProgramInstruction &instruction, const std::vector<bool> &needed, bool isFirst) {
  Execution whole{instruction.cost, instruction.reads, instruction.writes, instruction.workspace, instruction.inPlace,
                  instruction.scratch};
  if (!instruction.omits)
    return whole;
  std::vector<bool> wanted;
  for (int v : instruction.writes)
    wanted.push_back(needed[size_t(v)]);
  bool isWhole =
      std::find(wanted.begin(), wanted.end(), false) == wanted.end() && (isFirst || !instruction.writesState);
  if (!isWhole && instruction.partial) {
    wanted.push_back(isFirst && instruction.writesState);
    return instruction.partial->of(wanted);
  }
  std::erase_if(whole.writes, [&](int v) { return !needed[size_t(v)]; });
  return whole;
}

std::vector<Execution> executionsOf(const Program &program, const Sequence &sequence) {
  std::vector<size_t> first(program.instructions.size(), 0);
  for (size_t at = sequence.size(); at-- > 0;)
    first[size_t(sequence[at])] = at;
  std::vector<bool> needed(program.values.size());
  for (size_t v = 0; v < program.values.size(); ++v)
    needed[v] = program.values[v].atExit;
  std::vector<Execution> executions(sequence.size());
  for (size_t at = sequence.size(); at-- > 0;) {
    const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
    executions[at] = executionOf(instruction, needed, first[size_t(sequence[at])] == at);
    for (int v : instruction.writes)
      needed[size_t(v)] = false;
    for (int v : executions[at].reads)
      needed[size_t(v)] = true;
  }
  return executions;
}

std::vector<Block> blocksOf(const Program &program, const Sequence &sequence) {
  const Time end = Time(sequence.size());
  std::vector<Block> blocks;
  std::vector<int> newest(program.values.size(), -1); // block of each value
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0) {
      newest[v] = int(blocks.size());
      blocks.push_back({int(v), -1, program.values[v].bytes, -1, 0, -1, false, program.values[v].onHost});
    }
  const std::vector<Execution> executions = executionsOf(program, sequence);
  std::vector<std::pair<size_t, size_t>> fetched; // a block of the host, and the one that it is fetched to
  std::vector<Time> firstRead(blocks.size(), end);
  for (size_t at = 0; at < sequence.size(); ++at) {
    const Transfer transfer = program.instructions[size_t(sequence[at])].transfer;
    Time since = Time(at); // from then on a store writes to the host
    for (int v : executions[at].reads) {
      const size_t read = size_t(newest[size_t(v)]);
      blocks[read].last = Time(at);
      if (transfer != Transfer::Store)
        firstRead[read] = std::min(firstRead[read], Time(at));
      else
        since = std::max(blocks[read].first, Time(0));
      if (transfer == Transfer::Fetch)
        fetched.emplace_back(read, blocks.size());
    }
    for (int v : executions[at].writes) {
      newest[size_t(v)] = int(blocks.size());
      const ProgramValue &value = program.values[size_t(v)];
      blocks.push_back({v, int(at), value.bytes, value.onHost ? since : Time(at), Time(at), -1, false, value.onHost});
      firstRead.push_back(end);
    }
    if (const Bytes bytes = executions[at].workspace - executions[at].scratch)
      blocks.push_back({-1, int(at), bytes, Time(at), Time(at), -1});
    if (executions[at].scratch)
      blocks.push_back({-1, int(at), executions[at].scratch, Time(at), Time(at), -1, true});
    firstRead.resize(blocks.size(), end);
  }
  for (auto [host, device] : fetched) // a fetch may run until something reads what it brings
    blocks[host].last = std::max(blocks[host].last, firstRead[device]);
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].atExit && newest[v] >= 0)
      blocks[size_t(newest[v])].last = end;
  // In place: a result over an operand that dies there.
  std::fill(newest.begin(), newest.end(), -1);
  std::vector<bool> taken(blocks.size(), false);
  size_t next = 0;
  for (; next < blocks.size() && blocks[next].execution < 0; ++next)
    newest[size_t(blocks[next].value)] = int(next);
  for (size_t at = 0; at < sequence.size(); ++at) {
    size_t begin = next;
    for (; next < blocks.size() && blocks[next].execution == int(at); ++next) {
    }
    for (auto [read, written] : executions[at].inPlace) {
      int from = newest[size_t(read)];
      auto to = std::find_if(blocks.begin() + long(begin), blocks.begin() + long(next),
                             [&, written = written](const Block &block) { return block.value == written; });
      if (from < 0 || to == blocks.begin() + long(next) || to->inPlaceOf >= 0 || taken[size_t(from)] ||
          blocks[size_t(from)].last != Time(at))
        continue;
      to->inPlaceOf = from;
      taken[size_t(from)] = true;
    }
    for (size_t b = begin; b < next; ++b)
      if (blocks[b].value >= 0)
        newest[size_t(blocks[b].value)] = int(b);
  }
  return blocks;
}

namespace {

PackingProblem packingIn(bool onHost, const std::vector<Block> &blocks, std::vector<int> &bufferOf) {
  PackingProblem problem;
  bufferOf.assign(blocks.size(), -1);
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Block &block = blocks[b];
    if (block.onHost != onHost)
      continue;
    if (block.isScratch) {
      problem.scratch.push_back({block.first, block.bytes});
      continue;
    }
    if (block.inPlaceOf >= 0) {
      bufferOf[b] = bufferOf[size_t(block.inPlaceOf)];
      PackingBuffer &shared = problem.buffers[size_t(bufferOf[b])];
      shared.last = std::max(shared.last, block.last);
      continue;
    }
    bufferOf[b] = int(problem.buffers.size());
    problem.buffers.push_back({"block " + std::to_string(b), std::max<Bytes>(block.bytes, 1), block.first, block.last});
  }
  return problem;
}

} // namespace

PackingProblem packingOf(const std::vector<Block> &blocks, std::vector<int> &bufferOf) {
  return packingIn(false, blocks, bufferOf);
}

PackingProblem hostPackingOf(const std::vector<Block> &blocks, std::vector<int> &bufferOf) {
  return packingIn(true, blocks, bufferOf);
}

std::vector<Bytes> liveBytes(const Program &program, const Sequence &sequence) {
  std::vector<int> bufferOf;
  PackingProblem problem = packingOf(blocksOf(program, sequence), bufferOf);
  std::vector<int64_t> change(sequence.size() + 3, 0); // position −1 is index 0
  for (const PackingBuffer &buffer : problem.buffers) {
    int64_t bytes = int64_t((buffer.bytes + problem.alignment - 1) / problem.alignment * problem.alignment);
    change[size_t(buffer.first + 1)] += bytes;
    change[size_t(buffer.last + 2)] -= bytes;
  }
  for (const PackingScratch &scratch : problem.scratch) {
    int64_t bytes = int64_t((scratch.bytes + problem.alignment - 1) / problem.alignment * problem.alignment);
    change[size_t(scratch.at + 1)] += bytes;
    change[size_t(scratch.at + 2)] -= bytes;
  }
  std::vector<Bytes> live;
  int64_t now = 0;
  for (int64_t delta : change)
    live.push_back(Bytes(now += delta));
  live.pop_back();
  return live;
}

Bytes peakOf(const Program &program, const Sequence &sequence) {
  std::vector<Bytes> live = liveBytes(program, sequence);
  return *std::max_element(live.begin(), live.end());
}

Cost costOf(const Program &program, const Sequence &sequence) {
  const std::vector<Execution> executions = executionsOf(program, sequence);
  auto transferAt = [&](size_t at) { return program.instructions[size_t(sequence[at])].transfer; };
  // A store starts when its source is made, the sources' order is that of its channel.
  std::vector<std::vector<size_t>> storesOf(sequence.size()); // by the position that makes the source
  std::vector<size_t> maker(program.values.size(), 0);
  for (size_t at = 0; at < sequence.size(); ++at) {
    if (transferAt(at) == Transfer::Store)
      storesOf[executions[at].reads.empty() ? at : maker[size_t(executions[at].reads.front())]].push_back(at);
    for (int v : executions[at].writes)
      maker[size_t(v)] = at;
  }
  Cost now = 0, stores = 0, fetches = 0;             // the device's time, and when the channels are free
  std::vector<Cost> ready(program.values.size(), 0); // when each value is there
  std::vector<Cost> stored(sequence.size(), 0);
  auto begin = [&](size_t store, Cost from) {
    stores = std::max(stores, from) + executions[store].cost;
    stored[store] = stores;
  };
  for (size_t at = 0; at < sequence.size(); ++at) {
    const Execution &execution = executions[at];
    Cost from = now;
    for (int v : execution.reads)
      from = std::max(from, ready[size_t(v)]);
    switch (transferAt(at)) {
    case Transfer::None:
      now = from + execution.cost;
      break;
    case Transfer::Store:
      if (execution.reads.empty())
        begin(at, now);
      now = std::max(now, stored[at]);
      break;
    case Transfer::Fetch:
      fetches = std::max(fetches, from) + execution.cost;
      break;
    }
    const Cost end = transferAt(at) == Transfer::Fetch ? fetches : now;
    for (int v : execution.writes)
      ready[size_t(v)] = end;
    for (size_t store : storesOf[at])
      if (store != at)
        begin(store, end);
  }
  return std::max({now, stores, fetches});
}

std::string validate(const Program &program, const Sequence &sequence) {
  const std::vector<ProgramInstruction> &all = program.instructions;
  std::vector<bool> done(all.size(), false);
  std::vector<size_t> last(all.size(), 0); // execution of each
  for (size_t at = 0; at < sequence.size(); ++at) {
    if (sequence[at] < 0 || size_t(sequence[at]) >= all.size())
      return "position " + std::to_string(at) + " holds no instruction";
    last[size_t(sequence[at])] = at;
  }
  const std::vector<Execution> executions = executionsOf(program, sequence);
  for (size_t at = 0; at < sequence.size(); ++at) {
    int id = sequence[at];
    const ProgramInstruction &instruction = all[size_t(id)];
    if (done[size_t(id)] && !instruction.repeatable)
      return instruction.name + " is executed twice";
    for (int v : executions[at].reads)
      if (int producer = program.values[size_t(v)].producer; producer >= 0 && !done[size_t(producer)])
        return instruction.name + " reads " + program.values[size_t(v)].name + " before it is made";
    for (int earlier : instruction.after)
      if (last[size_t(earlier)] > at)
        return all[size_t(earlier)].name + " is executed after " + instruction.name + " has overwritten what it reads";
    done[size_t(id)] = true;
  }
  for (size_t id = 0; id < all.size(); ++id)
    if (!done[id] && !all[id].optional)
      return all[id].name + " is never executed";
  return "";
}

} // namespace tcc::planning
