//===- Arena.h - one allocation for all buffers of a kind ----------------===//
#ifndef TCC_RUNTIME_CPU_ARENA_H
#define TCC_RUNTIME_CPU_ARENA_H

#include "support/Status.h"

#include <cstdint>

namespace tcc::runtime {

/// Zeroed memory of exactly the bytes asked for, 64-byte aligned (in fact to 2 MiB where it is that large, so that the
/// system can use huge pages). Freed at the end of its life.
class Arena {
public:
  Arena() = default;
  Arena(Arena &&other) noexcept;
  Arena &operator=(Arena &&other) noexcept;
  ~Arena();

  /// `what` names the arena in the error: the machine has not that much memory.
  static Expected<Arena> allocate(uint64_t bytes, const char *what);

  /// Makes the pages of bytes [begin, end) present, as a first write to each would: one call instead of a fault a page,
  /// and, since it may run on any thread, a share of a worker. What they hold stays as it is.
  void populate(uint64_t begin, uint64_t end) const;

  char *data() const { return address; }
  uint64_t bytes() const { return size; }

private:
  char *address = nullptr;
  uint64_t size = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ARENA_H
