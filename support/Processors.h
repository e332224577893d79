//===- Processors.h - processors that this process may use ------*- C++ -*-===//
#ifndef TCC_SUPPORT_PROCESSORS_H
#define TCC_SUPPORT_PROCESSORS_H

#include <algorithm>
#include <sched.h>
#include <thread>

namespace tcc {

/// The processors that the scheduler may give to this process, at least 1.
inline unsigned usableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

} // namespace tcc

#endif // TCC_SUPPORT_PROCESSORS_H
