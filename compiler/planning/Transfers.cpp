//===- Transfers.cpp - values and state in the memory of the host ---------===//
#include "compiler/planning/Transfers.h"

#include <algorithm>
#include <limits>

namespace tcc::planning {

Offer offerTransfers(const Program &program, Bytes bytesPerCost) {
  Offer offer;
  offer.program = program;
  offer.first = program.instructions.size();
  std::vector<bool> isMoved(program.values.size(), false); // state on its way from the host, or to it
  for (const ProgramInstruction &instruction : program.instructions)
    if (instruction.transfer != Transfer::None)
      for (const std::vector<int> *values : {&instruction.reads, &instruction.writes})
        for (int v : *values)
          isMoved[size_t(v)] = true;
  for (size_t v = 0; v < program.values.size(); ++v) {
    const ProgramValue &value = program.values[v];
    if (value.producer >= 0 && !value.atExit && !isMoved[v] && value.bytes >= kLeastMovedBytes)
      offer.values.push_back(int(v));
  }
  for (size_t k = 0; k < offer.values.size(); ++k) {
    const int v = offer.values[k], stored = int(offer.program.values.size());
    ProgramValue host = program.values[size_t(v)];
    host.producer = offer.storeOf(k);
    host.onHost = true;
    offer.program.values.push_back(host);
    ProgramInstruction store;
    store.name = host.name;
    store.cost = transferCost(host.bytes, bytesPerCost);
    store.reads = {v};
    store.writes = {stored};
    store.optional = true;
    store.transfer = Transfer::Store;
    ProgramInstruction fetch = store;
    fetch.reads = {stored};
    fetch.writes = {v};
    fetch.repeatable = true;
    fetch.transfer = Transfer::Fetch;
    offer.program.instructions.push_back(std::move(store));
    offer.program.instructions.push_back(std::move(fetch));
  }
  return offer;
}

bool hasTransfers(const Program &program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const ProgramInstruction &one) { return one.transfer != Transfer::None; });
}

namespace {

/// A sequence's executions with the links between them.
struct Links {
  std::vector<Execution> executions;
  std::vector<std::vector<size_t>> storesOf; ///< by the execution that makes the source
  std::vector<size_t> readerOf;              ///< of each fetch: the first execution that reads what it makes
  std::vector<size_t> lastReaderOf; ///< of each execution: the last one that reads a result of it; itself if none
  std::vector<std::vector<size_t>> before; ///< of each: executions that precede it; of a fetch also the makers

  Links(const Program &program, const Sequence &sequence)
      : executions(executionsOf(program, sequence)), storesOf(sequence.size()), readerOf(sequence.size(), SIZE_MAX),
        lastReaderOf(sequence.size()), before(sequence.size()) {
    std::vector<size_t> maker(program.values.size(), SIZE_MAX);
    std::vector<std::vector<size_t>> positions(program.instructions.size());
    for (size_t at = 0; at < sequence.size(); ++at) {
      const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
      lastReaderOf[at] = at;
      for (int v : executions[at].reads) {
        const size_t made = maker[size_t(v)];
        if (made == SIZE_MAX)
          continue;
        if (readerOf[made] == SIZE_MAX)
          readerOf[made] = at;
        lastReaderOf[made] = at;
        if (instruction.transfer == Transfer::Store)
          storesOf[made].push_back(at);
        else if (instruction.transfer == Transfer::Fetch)
          before[at].push_back(made);
      }
      for (int earlier : instruction.after)
        for (size_t position : positions[size_t(earlier)])
          before[at].push_back(position);
      // What makes its result anew must not come after what still reads the older one.
      for (int v : executions[at].writes) {
        if (const size_t older = maker[size_t(v)]; older != SIZE_MAX && instruction.transfer == Transfer::Fetch)
          before[at].push_back(lastReaderOf[older]);
        maker[size_t(v)] = at;
      }
      positions[size_t(sequence[at])].push_back(at);
    }
  }
};

/// Walks through a sequence as the device does, and places each transfer.
class Walk {
public:
  Walk(const Program &program, const Sequence &sequence, std::optional<Bytes> stagingBytes)
      : program(program), sequence(sequence), room(stagingBytes.value_or(std::numeric_limits<Bytes>::max())),
        links(program, sequence), placed(sequence.size(), false), ends(sequence.size(), 0) {
    Cost time = 0;
    std::vector<Cost> startOf(sequence.size());
    for (size_t at = 0; at < sequence.size(); ++at) {
      startOf[at] = time;
      if (transferAt(at) == Transfer::None)
        time += links.executions[at].cost;
      if (transferAt(at) == Transfer::Fetch)
        waiting.push_back(at);
    }
    // By their readers: the channel serves them in this order. Each should begin in time for its reader and the next.
    std::stable_sort(waiting.begin(), waiting.end(),
                     [&](size_t a, size_t b) { return links.readerOf[a] < links.readerOf[b]; });
    due.resize(sequence.size());
    Cost next = std::numeric_limits<Cost>::max();
    for (size_t i = waiting.size(); i-- > 0;) {
      const size_t at = waiting[i];
      const Cost end = std::min(next, links.readerOf[at] == SIZE_MAX ? time : startOf[links.readerOf[at]]);
      next = due[at] = end - std::min(end, links.executions[at].cost);
    }
  }

  Sequence run() {
    for (size_t at = 0; at < sequence.size(); ++at)
      if (transferAt(at) == Transfer::None)
        step(at);
      else if (transferAt(at) == Transfer::Fetch && !placed[at] &&
               (links.readerOf[at] == SIZE_MAX || transferAt(links.readerOf[at]) != Transfer::None))
        require(at); // no instruction reads it
    while (!storing.empty())
      finishStore();
    return std::move(result);
  }

private:
  Transfer transferAt(size_t at) const { return program.instructions[size_t(sequence[at])].transfer; }
  Bytes bytesOf(size_t at) const { // of a transfer
    const Execution &execution = links.executions[at];
    Bytes bytes = 0;
    for (int v : transferAt(at) == Transfer::Store ? execution.reads : execution.writes)
      bytes += program.values[size_t(v)].bytes;
    return bytes;
  }
  void place(size_t at) {
    result.push_back(sequence[at]);
    placed[at] = true;
    beginStores();
  }

  /// The device waits for the oldest store.
  void finishStore() {
    const size_t store = storing.front();
    storing.erase(storing.begin());
    now = std::max(now, ends[store]);
    staged -= bytesOf(store);
    place(store);
  }

  bool isReady(size_t transfer) const {
    return std::all_of(links.before[transfer].begin(), links.before[transfer].end(),
                       [&](size_t earlier) { return placed[earlier]; });
  }

  /// Places a transfer, and before it all transfers that precede it: what it reads may still be on its way to the host,
  /// and a store waits for those who read what it overwrites.
  void require(size_t at) {
    if (placed[at] || transferAt(at) == Transfer::None)
      return;
    for (const size_t earlier : links.before[at])
      require(earlier);
    if (transferAt(at) == Transfer::Fetch)
      return fetch(at);
    while (!placed[at] && !storing.empty())
      finishStore();
  }

  void fetch(size_t at) {
    std::erase(waiting, at);
    fetches = std::max(fetches, now) + links.executions[at].cost;
    ends[at] = fetches;
    staged += bytesOf(at);
    held.push_back(at);
    makeStores(at, fetches);
    place(at);
  }

  void makeStores(size_t at, Cost made) {
    for (size_t store : links.storesOf[at]) {
      staged += bytesOf(store);
      unbegun.push_back({store, made});
    }
  }

  /// Begins the stores that nothing has to precede any more.
  void beginStores() {
    std::erase_if(unbegun, [&](const auto &one) {
      const auto [store, made] = one;
      if (!isReady(store))
        return false;
      stores = std::max({stores, made, now}) + links.executions[store].cost;
      ends[store] = stores;
      storing.push_back(store);
      return true;
    });
  }

  void step(size_t at) {
    while (!storing.empty() && ends[storing.front()] <= now)
      finishStore();
    // What this instruction reads, or a store that has to be done before it.
    for (size_t i = 0; i < waiting.size();) {
      const size_t next = waiting[i];
      if (links.readerOf[next] != at) {
        ++i;
        continue;
      }
      while (staged + bytesOf(next) > room && !storing.empty())
        finishStore();
      require(next);
      i = 0;
    }
    for (const size_t earlier : links.before[at])
      require(earlier);
    // The next chance is after this instruction.
    while (!waiting.empty() && due[waiting.front()] < now + links.executions[at].cost && isReady(waiting.front()) &&
           staged + bytesOf(waiting.front()) <= room)
      fetch(waiting.front());
    for (size_t fetched : held)
      if (reads(at, fetched))
        now = std::max(now, ends[fetched]);
    now += links.executions[at].cost;
    makeStores(at, now);
    place(at);
    std::erase_if(held, [&](size_t fetched) {
      const bool done = links.lastReaderOf[fetched] <= at;
      staged -= done ? bytesOf(fetched) : 0;
      return done;
    });
  }

  bool reads(size_t at, size_t fetched) const {
    const std::vector<int> &all = links.executions[at].reads;
    return std::any_of(links.executions[fetched].writes.begin(), links.executions[fetched].writes.end(),
                       [&](int v) { return std::find(all.begin(), all.end(), v) != all.end(); });
  }

  const Program &program;
  const Sequence &sequence;
  const Bytes room;
  Links links;
  std::vector<bool> placed;
  std::vector<Cost> ends, due;                ///< of transfers: when they are done; of fetches: when they should begin
  std::vector<size_t> waiting, held, storing; ///< fetches not begun; fetched and still read; stores not done
  std::vector<std::pair<size_t, Cost>> unbegun; ///< stores that wait for others, and when their values were made
  Cost now = 0, stores = 0, fetches = 0;
  Bytes staged = 0;
  Sequence result;
};

} // namespace

Bytes largestTransfers(const Program &program, const Sequence &sequence) {
  const Links links(program, sequence);
  std::vector<Bytes> bytes(sequence.size() + 1, 0);
  for (size_t at = 0; at < sequence.size(); ++at)
    if (program.instructions[size_t(sequence[at])].transfer == Transfer::Fetch) {
      Bytes &sum = bytes[std::min(links.readerOf[at], sequence.size())];
      for (int v : links.executions[at].writes)
        sum += program.values[size_t(v)].bytes;
    }
  return *std::max_element(bytes.begin(), bytes.end());
}

Sequence spread(const Program &program, const Sequence &sequence, std::optional<Bytes> stagingBytes) {
  return Walk(program, sequence, stagingBytes).run();
}

} // namespace tcc::planning
