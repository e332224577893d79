//===- Arena.cpp - one allocation for all buffers of a kind --------------===//
#include "runtime/cpu/Arena.h"
#include "support/Advice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace tcc::runtime {

namespace {
constexpr uint64_t kHugePageBytes = uint64_t(2) << 20;

uint64_t roundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
uint64_t pageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }
} // namespace

Expected<Arena> Arena::allocate(uint64_t bytes, const char *what) {
  Arena arena;
  if (bytes == 0)
    return arena;
  // Map one huge page too much, then unmap both ends, so that the rest starts at a huge page.
  uint64_t mapped = roundUp(bytes, pageBytes());
  uint64_t extra = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  void *start = ::mmap(nullptr, mapped + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return error(
        "cannot allocate the {} arena of {} bytes: {}; recompile with a smaller {} or batch", what, bytes,
        std::strerror(errno), advice::compile("memory-budget"));
  char *aligned = static_cast<char *>(start);
  if (extra) {
    aligned = reinterpret_cast<char *>(roundUp(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
    uint64_t before = static_cast<uint64_t>(aligned - static_cast<char *>(start));
    if (before)
      ::munmap(start, before);
    if (extra - before)
      ::munmap(aligned + mapped, extra - before);
    ::madvise(aligned, mapped, MADV_HUGEPAGE);
  }
  // A program that embeds us may fork, for helpers that have no use for gigabytes: no page tables are copied, later
  // writes find no page shared, and the system need not be able to hold the memory twice.
  ::madvise(aligned, mapped, MADV_DONTFORK);
  arena.address = aligned;
  arena.size = bytes;
  arena.process = ::getpid();
  return arena;
}

void Arena::populate(uint64_t begin, uint64_t end) const {
  uint64_t page = pageBytes(), last = std::min(roundUp(end, page), roundUp(size, page));
  begin = begin / page * page;
  if (begin >= last)
    return;
#ifdef MADV_POPULATE_WRITE
  if (::madvise(address + begin, last - begin, MADV_POPULATE_WRITE) == 0)
    return;
#endif
  // For Linux before 5.14.
  for (uint64_t at = begin; at < last; at += page) {
    volatile char *byte = address + at;
    *byte = *byte;
  }
}

Arena::Arena(Arena &&other) noexcept
    : address(std::exchange(other.address, nullptr)), size(std::exchange(other.size, 0)), process(other.process) {}

Arena &Arena::operator=(Arena &&other) noexcept {
  std::swap(address, other.address);
  std::swap(size, other.size);
  std::swap(process, other.process);
  return *this;
}

Arena::~Arena() {
  if (address && process == ::getpid()) // in a forked process, other memory may have the address
    ::munmap(address, roundUp(size, pageBytes()));
}

} // namespace tcc::runtime
