//===- MachineMemory.h - memory this process uses and may use ---*- C++ -*-===//
#ifndef TCC_RUNTIME_CPU_MACHINEMEMORY_H
#define TCC_RUNTIME_CPU_MACHINEMEMORY_H

#include "runtime/plan/Status.h"

#include <cstdint>
#include <string>

namespace tcc::runtime {

/// How many bytes are within a limit, and which limit that is, for messages.
struct MemoryLimit {
  uint64_t bytes = 0;
  bool ofAddresses = false; ///< counts addresses, whether memory lies behind them or not
  std::string what; ///< "the machine's memory", "the control group /sys/fs/cgroup/job", "RLIMIT_AS (ulimit -v)"
};

/// The smallest of: the machine's memory, the limits of this process's control groups (version 1 or 2, its own and all that
/// enclose it), its RLIMIT_AS and RLIMIT_DATA. `root` is put before /proc and /sys, for tests.
MemoryLimit memoryLimit(const std::string &root = "");

/// The smallest of what each of these limits leaves free. Pages of cached files count as free: the kernel gives them up.
/// With `swap`, memory that can be swapped out counts, too, on the machine and in groups of version 2.
MemoryLimit freeMemory(bool swap, const std::string &root = "");

inline uint64_t machineMemoryBytes() { return memoryLimit().bytes; }

/// Bytes that could be allocated now without swapping.
inline uint64_t freeMemoryBytes() { return freeMemory(/*swap=*/false).bytes; }

/// Error where `bytes` (of a plan's arenas) and what a run with so many threads takes beside them are more than is free.
plan::Status checkMemory(uint64_t bytes, const MemoryLimit &free, unsigned threads);

/// Bytes of this process that lie in memory now; 0 where the system does not tell.
uint64_t processMemoryBytes();

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_MACHINEMEMORY_H
