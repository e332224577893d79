//===- MachineMemory.cpp --------------------------------------------------===//
//
// /proc/meminfo (proc(5)) and control groups, version 2 (memory.max) and 1 (memory.limit_in_bytes). A container sees
// its own group at the root of the mounted hierarchy.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/MachineMemory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <unistd.h>

namespace tcc::runtime {

namespace {

/// A line "KEY:   N kB" in bytes.
uint64_t fromMeminfo(const std::string &key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":"))
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

/// The number that a file holds; none where it is not there or says "max".
std::optional<uint64_t> readNumber(const char *path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value))
    return std::nullopt;
  return value;
}

std::optional<uint64_t> firstNumber(const char *version2, const char *version1) {
  std::optional<uint64_t> value = readNumber(version2);
  return value ? value : readNumber(version1);
}

uint64_t groupLimit() {
  return firstNumber("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
      .value_or(std::numeric_limits<uint64_t>::max());
}

} // namespace

uint64_t machineMemoryBytes() { return std::min(fromMeminfo("MemTotal"), groupLimit()); }

uint64_t freeMemoryBytes() {
  uint64_t limit = groupLimit(), available = fromMeminfo("MemAvailable");
  if (limit == std::numeric_limits<uint64_t>::max())
    return available;
  uint64_t used =
      firstNumber("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes").value_or(0);
  return std::min(available, limit - std::min(limit, used));
}

uint64_t processMemoryBytes() {
  // Read without a stream: the measurement takes no memory itself.
  int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  char text[128] = "";
  ssize_t count = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  const char *second = count > 0 ? std::strchr(text, ' ') : nullptr;
  return second ? std::strtoull(second, nullptr, 10) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

} // namespace tcc::runtime
