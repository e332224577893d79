//===- Queue.cpp - work that waits, and the order it may run in ----------===//
#include "test/emulation/driver/Queue.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace tcc::emulation {

namespace {
constexpr uint64_t kMostStamps = (1u << Stamp::kWorkBits) - 2;

uint64_t digestOf(const void *from, uint64_t bytes) {
  auto *at = static_cast<const unsigned char *>(from);
  uint64_t digest = bytes;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    digest = (digest ^ word) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 32;
  }
  for (; bytes; --bytes)
    digest = (digest ^ *at++) * 0x100000001b3;
  return digest;
}

bool overlap(const void *a, uint64_t aBytes, const void *b, uint64_t bBytes) {
  auto x = reinterpret_cast<uint64_t>(a), y = reinterpret_cast<uint64_t>(b);
  return x < y + bBytes && y < x + aBytes;
}
} // namespace

bool Queue::has(const Entry &entry, WorkId id) const {
  if (id < entry.knownBefore)
    return true;
  uint64_t bit = id - entry.bitsFirst;
  return bit / 64 < entry.bits.size() && entry.bits[bit / 64] >> (bit % 64) & 1;
}

/// Sets the bits of `id` and of all before it.
void Queue::include(Entry &entry, WorkId id) const {
  if (id < first)
    return;
  const Entry &other = entries[id - first];
  auto setBit = [&](WorkId bit) {
    if (bit < entry.bitsFirst)
      return;
    uint64_t at = bit - entry.bitsFirst;
    if (at / 64 >= entry.bits.size())
      entry.bits.resize(at / 64 + 1);
    entry.bits[at / 64] |= uint64_t{1} << (at % 64);
  };
  setBit(id);
  uint64_t shift = (entry.bitsFirst - other.bitsFirst) / 64; // the bits of an older entry begin at older work
  if (other.bits.size() > shift && entry.bits.size() < other.bits.size() - shift)
    entry.bits.resize(other.bits.size() - shift);
  for (uint64_t i = shift; i < other.bits.size(); ++i)
    entry.bits[i - shift] |= other.bits[i];
}

bool Queue::isBefore(uint32_t earlier, uint32_t later) const {
  WorkId a = earlier + stampBase, b = later + stampBase;
  return a == b || (b >= first && has(entries[b - first], a));
}

WorkId Queue::add(const Task &task, std::vector<WorkId> after) {
  WorkId id = first + entries.size();
  if (id - stampBase > kMostStamps) {
    // Shadow memory has run out of numbers: all queued work runs, and past accesses are forgotten. A fault is reported
    // at the caller's next wait, since its work is then not done.
    (void)finishAll();
    memory.forgetAccesses();
    id = first + entries.size();
    stampBase = id - 1;
  }
  Entry entry;
  entry.task = task;
  entry.knownBefore = first;
  entry.bitsFirst = first / 64 * 64;
  for (WorkId other : after)
    include(entry, other);
  for (WorkId other : knownLater)
    include(entry, other);
  std::erase_if(after, [&](WorkId other) { return isDone(other); });
  entry.after = std::move(after);

  auto writesPinned = [&](const Task &other) {
    return other.pinnedTo && overlap(other.pinnedTo, other.pinnedBytes, task.pinnedFrom, task.pinnedBytes);
  };
  if (task.pinnedFrom && !isPending(writesPinned)) {
    entry.digest = digestOf(task.pinnedFrom, task.pinnedBytes);
    entry.hasDigest = true;
  }
  auto readsPinned = [&](const Task &other) {
    return other.readsHost ||
           (other.pinnedFrom && overlap(other.pinnedFrom, other.pinnedBytes, task.pinnedTo, task.pinnedBytes));
  };
  if (task.pinnedTo && !isPending(readsPinned))
    std::memset(task.pinnedTo, 0xff, task.pinnedBytes);
  entries.push_back(std::move(entry));
  return id;
}

bool Queue::isPending(const std::function<bool(const Task &)> &which) const {
  return std::any_of(entries.begin() + static_cast<ptrdiff_t>(unfinished > first ? unfinished - first : 0),
                     entries.end(), [&](const Entry &e) { return !e.done && which(e.task); });
}

bool Queue::isReady(const Entry &entry) const {
  return std::all_of(entry.after.begin(), entry.after.end(), [&](WorkId id) { return isDone(id); });
}

std::optional<Fault> Queue::run(Entry &entry, WorkId id) {
  if (entry.hasDigest && digestOf(entry.task.pinnedFrom, entry.task.pinnedBytes) != entry.digest)
    return Fault{FaultKind::PinnedOverwritten,
                 fmt::format("{}: the host changed its {} bytes at {} after it was queued, and before it ran",
                             entry.task.what, entry.task.pinnedBytes, fmt::ptr(entry.task.pinnedFrom))};
  memory.open(true);
  auto fault = entry.task.run(static_cast<uint32_t>(id - stampBase));
  if (fault)
    return fault;
  entry.done = true;
  executed += entry.task.ticks + (entry.task.ticks > 1 ? (id * 2654435761 >> 7) % 4 : 0); // no two runs take the same time
  entry.ranAt = executed;
  entry.task.run = nullptr;
  while (unfinished < first + entries.size() && isDone(unfinished))
    ++unfinished;
  return std::nullopt;
}

std::optional<Fault> Queue::progress() {
  // Half of the time nothing runs, since work may also run as late as possible.
  if (random() & 1)
    return std::nullopt;
  for (uint64_t steps = random() % 4; steps; --steps) {
    std::vector<WorkId> ready;
    for (WorkId id = std::max(first, unfinished); id < first + entries.size() && ready.size() < 8; ++id)
      if (!isDone(id) && !entries[id - first].task.isAwaited && isReady(entries[id - first]))
        ready.push_back(id);
    if (ready.empty())
      break;
    WorkId id = ready[random() % ready.size()];
    if (auto fault = run(entries[id - first], id)) {
      memory.open(false);
      return fault;
    }
  }
  memory.open(false);
  return std::nullopt;
}

/// Keeps a list of ready work: each piece enters it once its last predecessor is done.
std::optional<Fault> Queue::runUntilDone(const std::vector<WorkId> &wanted) {
  auto finished = [&] { return std::all_of(wanted.begin(), wanted.end(), [&](WorkId id) { return isDone(id); }); };
  if (!finished()) {
    WorkId begin = std::max(first, unfinished), end = first + entries.size();
    std::vector<WorkId> ready;
    std::vector<std::vector<WorkId>> readers(end - begin);
    std::vector<uint32_t> missing(end - begin);
    // Collective work runs only if `wanted` needs it: the host of another rank may submit its part much later.
    auto offer = [&](WorkId id) {
      auto needs = [&](WorkId one) { return one == id || (one >= first && has(entries[one - first], id)); };
      if (!entries[id - first].task.isAwaited || std::any_of(wanted.begin(), wanted.end(), needs))
        ready.push_back(id);
    };
    for (WorkId id = begin; id < end; ++id) {
      if (isDone(id))
        continue;
      for (WorkId other : entries[id - first].after)
        if (!isDone(other)) {
          readers[other - begin].push_back(id);
          ++missing[id - begin];
        }
      if (!missing[id - begin])
        offer(id);
    }
    while (!finished()) {
      size_t chosen = random() % ready.size();
      WorkId id = ready[chosen];
      ready[chosen] = ready.back();
      ready.pop_back();
      if (auto fault = run(entries[id - first], id)) {
        memory.open(false);
        return fault;
      }
      for (WorkId reader : readers[id - begin])
        if (--missing[reader - begin] == 0)
          offer(reader);
    }
    memory.open(false);
  }
  return std::nullopt;
}

std::optional<Fault> Queue::meetOthers() {
  std::vector<WorkId> awaited;
  for (WorkId id = std::max(first, unfinished); id < first + entries.size(); ++id)
    if (!isDone(id) && entries[id - first].task.isAwaited && entries[id - first].task.isAwaited()) {
      awaited.push_back(id); // later work may be a collective as well, but other ranks wait in one at a time
      break;
    }
  return awaited.empty() ? std::nullopt : runUntilDone(awaited);
}

std::optional<Fault> Queue::finish(const std::vector<WorkId> &wanted) {
  if (auto fault = runUntilDone(wanted))
    return fault;
  std::vector<WorkId> latestFirst = wanted;
  std::sort(latestFirst.rbegin(), latestFirst.rend()); // knowing later work includes its predecessors at no cost
  for (WorkId id : latestFirst)
    know(id);
  retire();
  return std::nullopt;
}

std::optional<Fault> Queue::finishAll() {
  std::vector<WorkId> all;
  for (WorkId id = first; id < first + entries.size(); ++id)
    all.push_back(id);
  return finish(all);
}

uint64_t Queue::ranAt(WorkId id) const {
  if (id >= first)
    return entries[id - first].ranAt;
  return first - id <= retiredAt.size() ? retiredAt[retiredAt.size() - (first - id)] : 0;
}

void Queue::know(WorkId id) {
  if (id < first || entries[id - first].known)
    return;
  entries[id - first].known = true;
  knownLater.push_back(id);
  for (WorkId other = first; other < id; ++other)
    if (has(entries[id - first], other))
      entries[other - first].known = true;
}

void Queue::retire() {
  while (!entries.empty() && entries.front().known && entries.front().done) {
    retiredAt.push_back(entries.front().ranAt);
    entries.pop_front();
    ++first;
  }
  unfinished = std::max(unfinished, first);
  constexpr size_t kRemembered = 4096;
  if (retiredAt.size() > kRemembered)
    retiredAt.erase(retiredAt.begin(), retiredAt.end() - kRemembered);
  std::erase_if(knownLater, [&](WorkId id) { return id < first; });
}

} // namespace tcc::emulation
