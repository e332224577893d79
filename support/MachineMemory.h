//===- MachineMemory.h - memory this process uses and may use ---*- C++ -*-===//
#ifndef TCC_SUPPORT_MACHINEMEMORY_H
#define TCC_SUPPORT_MACHINEMEMORY_H

#include "support/Status.h"

#include <cstdint>
#include <string>

namespace tcc {

/// A limit in bytes, and its name for messages.
struct MemoryLimit {
  uint64_t bytes = 0;
  bool ofAddresses = false; ///< limits addresses, with or without memory behind them
  std::string what; ///< "the machine's memory", "the control group /sys/fs/cgroup/job", "RLIMIT_AS (ulimit -v)"
};

/// The smallest of: the machine's memory, the limits of this process's control groups (version 1 or 2, its own and all
/// that enclose it), RLIMIT_AS and RLIMIT_DATA. Tests set `root`, a prefix of /proc and /sys.
MemoryLimit memoryLimit(const std::string &root = "");

/// The least free memory under any of these limits. Pages of cached files count as free: the kernel reclaims them.
/// With `swap`, memory that can be swapped out counts, too, on the machine and in groups of version 2.
MemoryLimit freeMemory(bool swap, const std::string &root = "");

inline uint64_t machineMemoryBytes() { return memoryLimit().bytes; }

/// Bytes that could be allocated now without swapping.
inline uint64_t freeMemoryBytes() { return freeMemory(/*swap=*/false).bytes; }

/// Error if `bytes` (of a plan's arenas), with the memory that a run of so many threads needs besides, exceed `free`.
Status checkMemory(uint64_t bytes, const MemoryLimit &free, unsigned threads);

/// Resident bytes of this process; 0 if the system does not tell.
uint64_t processMemoryBytes();

} // namespace tcc

#endif // TCC_SUPPORT_MACHINEMEMORY_H
