//===- Arena.h - one allocation for all buffers of a kind ----------------===//
#ifndef TCC_RUNTIME_CPU_ARENA_H
#define TCC_RUNTIME_CPU_ARENA_H

#include "support/Status.h"

#include <cstdint>
#include <sys/types.h>

namespace tcc::runtime {

/// Zeroed memory of exactly the requested size, 64-byte aligned (to 2 MiB if it is that large, so that the system can
/// use huge pages). Freed by the destructor. A forked process does not have it.
class Arena {
public:
  Arena() = default;
  Arena(Arena &&other) noexcept;
  Arena &operator=(Arena &&other) noexcept;
  ~Arena();

  /// Error: not enough memory; `what` names the arena in the message.
  static Expected<Arena> allocate(uint64_t bytes, const char *what);

  /// Populates the pages of bytes [begin, end), as a first write to each would, with one call instead of one page fault
  /// per page. May run on any thread, so workers can share it. Changes no byte.
  void populate(uint64_t begin, uint64_t end) const;

  char *data() const { return address; }
  uint64_t bytes() const { return size; }

private:
  char *address = nullptr;
  uint64_t size = 0;
  pid_t process = 0; ///< that allocated it
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ARENA_H
