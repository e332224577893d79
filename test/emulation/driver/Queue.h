//===- Queue.h - work that waits, and the order it may run in ------------===//
//
// Work is queued, never done at the call. It runs when somebody waits for it, or by chance at any later call, in a
// random order among what streams, events and graph edges allow. Each piece knows all that is before it: streams and
// events give it predecessors, and so does the host by having waited.
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
  const void *pinnedFrom = nullptr; ///< memory of the host that it reads when it runs
  void *pinnedTo = nullptr;         ///< or writes
  uint64_t pinnedBytes = 0;
  const void *owner = nullptr; ///< the module whose kernel it runs
  /// Of work that meets other ranks: whether one of them waits in it. Nobody else runs such work before it is wanted.
  std::function<bool()> isAwaited;
  uint64_t ticks = 1;          ///< between events around it, and up to three more
};

using WorkId = uint64_t; ///< counts from 1 and never again from there

class Queue final : public WorkOrder {
public:
  Queue(Memory &memory, uint64_t seed) : memory(memory), random(seed) {}

  /// Queues work after others. Reads what is in pinned memory now, to notice who changes it; overwrites with 0xff what
  /// the work will write there, so that who reads too early reads no result.
  WorkId add(const Task &task, std::vector<WorkId> after);
  /// Runs all that this work waits for, and by chance more; the host has then waited for it. The first fault ends it.
  std::optional<Fault> finish(const std::vector<WorkId> &wanted);
  std::optional<Fault> finishAll();
  /// Runs what other ranks wait for, and all before it, as a device does while its host is elsewhere: the host knows no
  /// more than before.
  std::optional<Fault> meetOthers();
  /// Runs some of what can run.
  std::optional<Fault> progress();
  bool isDone(WorkId id) const { return id < first || entries[id - first].done; }
  bool isPending(const std::function<bool(const Task &)> &which) const;
  /// When it was done, in ticks, for the time between events.
  uint64_t ranAt(WorkId id) const;

  bool isBefore(uint32_t earlier, uint32_t later) const override;

private:
  struct Entry {
    Task task;
    std::vector<WorkId> after;
    WorkId knownBefore = 0;     ///< the host had waited for all before this one when it queued it
    uint64_t bitsFirst = 0;     ///< the work that bit 0 stands for, a multiple of 64
    std::vector<uint64_t> bits; ///< all that is before it
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
  WorkId stampBase = 0;             ///< shadow memory's numbers are ids less this
  uint64_t executed = 0;
  std::vector<WorkId> knownLater; ///< known, but not before `first`
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_QUEUE_H
