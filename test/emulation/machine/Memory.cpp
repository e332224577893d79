//===- Memory.cpp - allocations and their shadow -------------------------===//
#include "test/emulation/machine/Memory.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <sys/mman.h>

namespace tcc::emulation {

namespace {
constexpr uint64_t kPage = 4096;
/// Opening and closing device memory takes time in proportion to its pages.
constexpr uint64_t kHugePage = 2 << 20;

std::byte *mapPages(uint64_t bytes, int protection) {
  void *at = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw std::bad_alloc();
  return static_cast<std::byte *>(at);
}
} // namespace

Cell *makeCells(uint64_t bytes) {
  return reinterpret_cast<Cell *>(mapPages(std::max<uint64_t>(bytes, 1) * sizeof(Cell), PROT_READ | PROT_WRITE));
}
void freeCells(Cell *cells, uint64_t bytes) { ::munmap(cells, std::max<uint64_t>(bytes, 1) * sizeof(Cell)); }

Memory::~Memory() {
  while (!allocations.empty())
    release(allocations.back()->base);
}

Allocation &Memory::allocate(uint64_t bytes, Home home, std::string name, bool written) {
  auto made = std::make_unique<Allocation>();
  const uint64_t pages = (bytes + kPage - 1) / kPage * kPage, alignment = pages < kHugePage ? kPage : kHugePage;
  std::byte *mapped = mapPages(pages + alignment + kPage, PROT_NONE);
  made->mappedBytes = pages + 2 * kPage;
  made->base = mapped + alignment - reinterpret_cast<uintptr_t>(mapped) % alignment;
  made->bytes = bytes;
  if (alignment == kHugePage)
    ::madvise(made->base, pages, MADV_HUGEPAGE);
  made->home = home;
  made->name = std::move(name);
  ::mprotect(made->base, pages, PROT_READ | PROT_WRITE);
  std::memset(made->base, 0xff, bytes);
  if (checked)
    made->cells = makeCells(bytes);
  Allocation &result = *made;
  allocations.insert(std::upper_bound(allocations.begin(), allocations.end(), made,
                                      [](auto &a, auto &b) { return a->base < b->base; }),
                     std::move(made));
  if (written)
    markWritten(result.base, bytes);
  if (home == Home::Device && !reachableNow)
    ::mprotect(result.base, pages, PROT_NONE);
  return result;
}

void Memory::release(const std::byte *base) {
  auto found = std::find_if(allocations.begin(), allocations.end(), [&](auto &a) { return a->base == base; });
  if (found == allocations.end())
    return;
  Allocation &gone = **found;
  released.push_back({gone.base, gone.bytes, gone.name});
  // The addresses stay reserved for a while, so that a use after the release hits inaccessible pages.
  ::madvise(gone.base, gone.mappedBytes - 2 * kPage, MADV_DONTNEED);
  ::mprotect(gone.base, gone.mappedBytes - 2 * kPage, PROT_NONE);
  if (gone.cells)
    freeCells(gone.cells, gone.bytes);
  last = nullptr;
  allocations.erase(found);
}

Allocation *Memory::find(const void *address, uint64_t bytes) {
  auto *at = static_cast<const std::byte *>(address);
  if (last && last->holds(at, bytes))
    return last;
  auto next = std::upper_bound(allocations.begin(), allocations.end(), at,
                               [](const std::byte *a, auto &b) { return a < b->base; });
  if (next == allocations.begin() || !(*std::prev(next))->holds(at, bytes))
    return nullptr;
  return last = std::prev(next)->get();
}

std::string Memory::describe(const void *address) const {
  auto *at = static_cast<const std::byte *>(address);
  std::string nearest = "no allocation is near";
  uint64_t distance = UINT64_MAX;
  auto consider = [&](const std::byte *base, uint64_t bytes, const std::string &name, const char *state) {
    uint64_t away = at < base            ? static_cast<uint64_t>(base - at)
                    : at >= base + bytes ? static_cast<uint64_t>(at - (base + bytes))
                                         : 0;
    if (away >= distance || away > (1u << 20))
      return;
    distance = away;
    nearest = at < base            ? fmt::format("{} bytes before {} ({} bytes{})", away, name, bytes, state)
              : at >= base + bytes ? fmt::format("{} bytes after the end of {} ({} bytes{})", away, name, bytes, state)
                                   : fmt::format("byte {} of {} ({} bytes{})", at - base, name, bytes, state);
  };
  for (auto &a : allocations)
    consider(a->base, a->bytes, a->name, "");
  for (auto &r : released)
    consider(r.base, r.bytes, r.name, ", released");
  return nearest;
}

/// Whether the earlier access `old` and the one of `stamp` are unordered.
bool Memory::conflicts(uint64_t old, uint64_t spread, uint64_t stamp, const BlockClock &clock) const {
  if (Stamp::work(old) != Stamp::work(stamp))
    return order && Stamp::work(old) != 0 && !order->isBefore(Stamp::work(old), Stamp::work(stamp));
  uint32_t a = Stamp::thread(old), b = Stamp::thread(stamp), tick = Stamp::tick(old);
  if (a == b && spread == Cell::kOneThread)
    return false;
  uint32_t blockOfA = a / clock.threadsOfBlock, blockOfB = b / clock.threadsOfBlock;
  if (blockOfA != blockOfB || spread == Cell::kManyBlocks)
    return true;
  uint32_t warpOfA = a % clock.threadsOfBlock / 32, warpOfB = b % clock.threadsOfBlock / 32;
  if (warpOfA == warpOfB && spread != Cell::kOneBlock && tick < clock.warp[warpOfB])
    return false;
  return tick >= clock.barrier;
}

namespace {
std::string who(uint64_t stamp, const BlockClock &clock) {
  return fmt::format("block {}, thread {}", Stamp::thread(stamp) / clock.threadsOfBlock,
                     Stamp::thread(stamp) % clock.threadsOfBlock);
}
/// The smallest unit that two threads of a launch share: thread, warp, block or grid.
uint64_t spreadOf(uint64_t a, uint64_t b, const BlockClock &clock) {
  uint32_t x = Stamp::thread(a), y = Stamp::thread(b), block = clock.threadsOfBlock;
  return x == y                             ? Cell::kOneThread
         : x / block != y / block           ? Cell::kManyBlocks
         : x % block / 32 == y % block / 32 ? Cell::kOneWarp
                                            : Cell::kOneBlock;
}
} // namespace

std::string Memory::raceText(const Allocation &in, std::byte *address, uint64_t old, uint64_t stamp, const char *what,
                             const char *before, const BlockClock &clock) const {
  std::string place = fmt::format("byte {} of {}", address - in.base, in.name);
  if (Stamp::work(old) != Stamp::work(stamp))
    return fmt::format("{} of {} by work {}: earlier work {} {} it, and no stream, event or edge orders the two", what,
                       place, Stamp::work(stamp), Stamp::work(old), before);
  return fmt::format("{} of {} by {}: {} {} it, and no barrier is between them", what, place, who(stamp, clock),
                     who(old, clock), before);
}

std::optional<Fault> Memory::touch(Allocation &in, std::byte *address, uint32_t bytes, AccessKind kind, uint64_t stamp,
                                   const BlockClock &clock, const char *what) {
  Cell *cell = in.cells + (address - in.base), *end = cell + bytes;
  auto race = [&](uint64_t old, const char *before) {
    bool launches = Stamp::work(old) != Stamp::work(stamp);
    std::byte *at = in.base + (cell - in.cells);
    return Fault{launches ? FaultKind::UnorderedWork : FaultKind::Race,
                 raceText(in, at, old, stamp, what, before, clock)};
  };
  uint64_t me = stamp | static_cast<uint64_t>(clock.tick) << Stamp::kTickAt;
  if (kind == kWrite) {
    uint64_t written = me | Cell::kWritten;
    for (; cell != end; ++cell) {
      uint64_t writer = cell->writer, reader = cell->reader;
      if (writer != written && (writer | Cell::kWritten) != Cell::kWritten &&
          conflicts(writer, Cell::kOneThread, stamp, clock))
        return race(writer, "wrote");
      if (cell->otherReader && cell->otherReader != Stamp::work(stamp))
        if (const uint64_t other = Stamp::make(cell->otherReader, 0);
            conflicts(other, Cell::kOneThread, stamp, clock))
          return race(other, "read");
      if (reader) {
        if (reader & Cell::kNonCoherent && Stamp::work(reader) == Stamp::work(stamp))
          return Fault{
              FaultKind::StaleRead,
              fmt::format("{} of byte {} of {} by {}: {} read it with ld.global.nc, which promises that no thread of "
                          "the launch writes it",
                          what, cell - in.cells, in.name, who(stamp, clock), who(reader, clock))};
        if (conflicts(reader, reader & 3, stamp, clock))
          return race(reader, "read");
      }
      cell->writer = written;
      cell->reader = 0;
      cell->otherReader = 0;
    }
    return std::nullopt;
  }
  uint64_t flags = kind == kReadNonCoherent ? Cell::kNonCoherent : 0;
  // Adjacent bytes mostly have the same readers, so that the last answer is kept.
  const uint32_t work = Stamp::work(stamp);
  uint32_t asked = 0;
  bool unordered = false;
  auto isUnordered = [&](uint32_t earlier) {
    if (earlier == asked)
      return unordered;
    asked = earlier;
    return unordered = order && earlier != 0 && earlier != work && !order->isBefore(earlier, work);
  };
  for (; cell != end; ++cell) {
    uint64_t writer = cell->writer, reader = cell->reader;
    if (!writer) {
      std::byte *at = in.base + (cell - in.cells);
      return Fault{FaultKind::UninitialisedRead, fmt::format("{} of byte {} of {} by {}, which nothing has written",
                                                             what, at - in.base, in.name, who(stamp, clock))};
    }
    if (writer != Cell::kWritten) {
      if (kind == kReadNonCoherent && Stamp::work(writer) == Stamp::work(stamp))
        return Fault{
            FaultKind::StaleRead,
            fmt::format("{} of byte {} of {} by {} with ld.global.nc, which promises that no thread of the launch "
                        "writes it: {} did",
                        what, cell - in.cells, in.name, who(stamp, clock), who(writer, clock))};
      if (conflicts(writer, Cell::kOneThread, stamp, clock))
        return race(writer, "wrote");
    }
    if (!reader || Stamp::work(reader) != Stamp::work(stamp)) {
      if (reader && isUnordered(Stamp::work(reader)))
        cell->otherReader = Stamp::work(reader);
      else if (cell->otherReader && !isUnordered(cell->otherReader))
        cell->otherReader = 0;
      cell->reader = me | flags;
      continue;
    }
    uint64_t spread = reader & 3;
    flags |= reader & Cell::kNonCoherent;
    if (conflicts(reader, spread, stamp, clock))
      spread = std::max(spread, spreadOf(reader, stamp, clock));
    else
      spread = Cell::kOneThread;
    cell->reader = me | flags | spread;
  }
  return std::nullopt;
}

std::optional<Fault> Memory::touchByWork(void *address, uint64_t bytes, AccessKind kind, uint32_t work,
                                         const char *what) {
  auto *at = static_cast<std::byte *>(address);
  Allocation *in = find(at, bytes);
  if (!in)
    return Fault{FaultKind::OutOfBounds,
                 fmt::format("{}: {} bytes at {}: {}", what, bytes, address, describe(address))};
  if (!checked || bytes == 0)
    return std::nullopt;
  BlockClock clock;
  constexpr uint64_t kPiece = 1u << 20;
  for (uint64_t done = 0; done < bytes; done += kPiece)
    if (auto fault = touch(*in, at + done, static_cast<uint32_t>(std::min(kPiece, bytes - done)), kind,
                           Stamp::make(work, 0), clock, what))
      return fault;
  return std::nullopt;
}

void Memory::markWritten(void *address, uint64_t bytes) {
  if (Allocation *in = find(address, bytes); in && in->cells) {
    Cell *cell = in->cells + (static_cast<std::byte *>(address) - in->base);
    for (uint64_t i = 0; i < bytes; ++i)
      cell[i].writer |= Cell::kWritten;
  }
}

void Memory::forgetAccesses() {
  for (auto &a : allocations) {
    if (!a->cells)
      continue;
    for (uint64_t i = 0; i < a->bytes; ++i)
      a->cells[i] = {a->cells[i].writer & Cell::kWritten, 0};
  }
}

void Memory::open(bool reachable) {
  if (reachable == reachableNow)
    return;
  reachableNow = reachable;
  for (auto &a : allocations)
    if (a->home == Home::Device)
      ::mprotect(a->base, a->mappedBytes - 2 * kPage, reachable ? PROT_READ | PROT_WRITE : PROT_NONE);
}

} // namespace tcc::emulation
