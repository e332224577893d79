//===- Queue.h - work that waits, and the order it may run in ------------===//
//
// Work is queued, never done at the call. It runs when the host waits for it, or by chance at any later call, in a
// random order among those that streams, events and graph edges allow. Each piece knows all work that is ordered before
// it: streams and events give it predecessors, and so do earlier waits of the host.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_QUEUE_H
#define TCC_TEST_EMULATION_DRIVER_QUEUE_H

#include "test/emulation/machine/Memory.h"

#include <deque>
#include <functional>
#include <random>
#include <vector>

namespace tcc::emulation {

/// A kernel, copy or fill, in a stream or a graph.
struct Task {
  std::string what;
  std::function<std::optional<Fault>(uint32_t work)> run;
  const void *pinnedFrom = nullptr; ///< pinned host memory that it reads when it runs
  void *pinnedTo = nullptr;         ///< pinned host memory that it writes when it runs
  uint64_t pinnedBytes = 0;
  bool readsHost = false;      ///< a function of the host, which may read any pinned memory
  const void *owner = nullptr; ///< the module whose kernel it runs
  /// Set for collectives: whether another rank waits in this one. A collective never runs by chance.
  std::function<bool()> isAwaited;
  uint64_t ticks = 1;          ///< time between events around it; up to three more are added
};

using WorkId = uint64_t; ///< counts from 1, never reused

class Queue final : public WorkOrder {
public:
  Queue(Memory &memory, uint64_t seed) : memory(memory), random(seed) {}

  /// Queues work after other work. Takes a digest of the pinned memory that it will read, to notice changes before it
  /// runs, and overwrites the pinned memory that it will write with 0xff, so that an early read sees no result.
  WorkId add(const Task &task, std::vector<WorkId> after);
  /// Runs this work and its predecessors, and by chance more; the host has then waited for it. Ends at the first fault.
  std::optional<Fault> finish(const std::vector<WorkId> &wanted);
  std::optional<Fault> finishAll();
  /// Runs the collective that other ranks wait in, and its predecessors, as a device does while its host is busy. Does
  /// not count as a wait of this host.
  std::optional<Fault> meetOthers();
  /// Runs some of the ready work, by chance.
  std::optional<Fault> progress();
  bool isDone(WorkId id) const { return id < first || entries[id - first].done; }
  bool isPending(const std::function<bool(const Task &)> &which) const;
  /// The time at which it was done, in ticks.
  uint64_t ranAt(WorkId id) const;

  bool isBefore(uint32_t earlier, uint32_t later) const override;

private:
  struct Entry {
    Task task;
    std::vector<WorkId> after;
    WorkId knownBefore = 0;     ///< when the entry was queued, the host had waited for all work before this id
    uint64_t bitsFirst = 0;     ///< the work that bit 0 stands for, a multiple of 64
    std::vector<uint64_t> bits; ///< the work that is ordered before the entry
    uint64_t digest = 0;
    bool hasDigest = false, done = false, known = false; ///< known: the host waited for it
    uint64_t ranAt = 0;
  };
  bool has(const Entry &entry, WorkId id) const;
  void include(Entry &entry, WorkId id) const;
  bool isReady(const Entry &entry) const;
  std::optional<Fault> runUntilDone(const std::vector<WorkId> &wanted);
  std::optional<Fault> run(Entry &entry, WorkId id);
  void know(WorkId id);
  void retire();

  Memory &memory;
  std::mt19937_64 random;
  std::deque<Entry> entries;
  std::deque<uint64_t> retiredAt; ///< of the last work before `first`
  WorkId first = 1, unfinished = 1; ///< all before `first` is known to the host; all before `unfinished` is done
  WorkId stampBase = 0;             ///< shadow memory's numbers are ids minus this
  uint64_t executed = 0;
  std::vector<WorkId> knownLater; ///< known, but not before `first`
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_QUEUE_H
