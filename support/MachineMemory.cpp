//===- MachineMemory.cpp - memory of the machine and of the control group -===//
//
// /proc/meminfo (proc(5)), resource limits (getrlimit(2)) and control groups: /proc/self/cgroup names the process's
// group in each hierarchy, /proc/self/mountinfo where the hierarchy is mounted and which group is the mount's root. A
// limit holds for a group and all groups inside it, so every directory from the process's own up to the mount is asked.
//
//===----------------------------------------------------------------------===//
#include "support/MachineMemory.h"
#include "support/Advice.h"
#include "support/BytesText.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <pthread.h>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace tcc {

namespace {
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

/// Bytes reserved for allocations after this check that are not arenas: library calls, stacks, the loader's buffers.
constexpr uint64_t kBesideArenasBytes = uint64_t(8) << 20;
/// Bytes of address space reserved for the library's code and malloc's pools.
constexpr uint64_t kUnusedAddressBytes = uint64_t(8) << 20;

/// The addresses that a thread's stack takes.
uint64_t stackBytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (::pthread_attr_init(&attributes) != 0)
    return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return bytes;
}

/// A line "KEY:   N kB" in bytes.
uint64_t fromMeminfo(const std::string &root, const std::string &key) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":"))
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

/// The number in a file; none if the file is missing or holds "max".
std::optional<uint64_t> readNumber(const std::string &path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value))
    return std::nullopt;
  return value;
}

/// Bytes of cached files in a group: the sum of the two lists of "memory.stat".
uint64_t cachedBytes(const std::string &path, const std::string &prefix) {
  std::ifstream file(path);
  std::string key;
  uint64_t value = 0, sum = 0;
  while (file >> key >> value)
    if (key == prefix + "inactive_file" || key == prefix + "active_file")
      sum += value;
  return sum;
}

/// A directory of the memory hierarchy that this process is in.
struct Group {
  std::string folder;
  bool version2 = false;

  std::optional<uint64_t> limit() const {
    return readNumber(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  }
  uint64_t used() const {
    uint64_t all = readNumber(folder + (version2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
    return all - std::min(all, cachedBytes(folder + "/memory.stat", version2 ? "" : "total_"));
  }
  /// Bytes that the group may still swap out; unknown in version 1.
  uint64_t freeSwap() const {
    if (!version2)
      return 0;
    uint64_t used = readNumber(folder + "/memory.swap.current").value_or(0);
    std::optional<uint64_t> most = readNumber(folder + "/memory.swap.max");
    return most ? *most - std::min(*most, used) : kUnlimited;
  }
};

/// Paths in mountinfo have spaces and backslashes as octal escapes.
std::string unescaped(const std::string &text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  return out;
}

std::vector<Group> groupsOf(const std::string &root) {
  // The process's group by version.
  std::optional<std::string> paths[2];
  std::ifstream own(root + "/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    size_t first = line.find(':'), second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos)
      continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (line.starts_with("0::"))
      paths[1] = line.substr(second + 1);
    else if (controllers.find(",memory,") != controllers.npos)
      paths[0] = line.substr(second + 1);
  }
  std::vector<Group> groups;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // "36 35 0:32 ROOT MOUNT-POINT OPTIONS [FIELDS…] - TYPE SOURCE SUPER-OPTIONS"
    std::istringstream words(line);
    std::string word, mountRoot, point, type, source, options;
    words >> word >> word >> word >> mountRoot >> point;
    while (words >> word && word != "-")
      ;
    words >> type >> source >> options;
    bool version2 = type == "cgroup2";
    if (!version2 && (type != "cgroup" || ("," + options + ",").find(",memory,") == std::string::npos))
      continue;
    const std::optional<std::string> &path = paths[version2];
    if (!path)
      continue;
    mountRoot = unescaped(mountRoot);
    point = root + unescaped(point);
    // A container may see its own group as the mount's root, or a path from outside of its namespace.
    std::string inside = *path;
    if (mountRoot != "/" && inside.starts_with(mountRoot))
      inside = inside.substr(mountRoot.size());
    if (inside == "/" || inside.find("..") != inside.npos)
      inside.clear();
    for (;; inside = inside.substr(0, inside.rfind('/'))) {
      groups.push_back({point + inside, version2});
      if (inside.rfind('/') == inside.npos)
        break;
    }
  }
  return groups;
}

/// Bytes of this process by field of /proc/self/statm: 0 address space, 5 data and stack.
uint64_t fromStatm(const std::string &root, int field) {
  std::ifstream file(root + "/proc/self/statm");
  uint64_t pages = 0;
  for (int i = 0; i <= field; ++i)
    file >> pages;
  return file ? pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

struct ResourceLimit {
  decltype(RLIMIT_AS) kind;
  int statm;
  const char *what;
};
constexpr ResourceLimit kResourceLimits[] = {{RLIMIT_AS, 0, "RLIMIT_AS (ulimit -v)"},
                                             {RLIMIT_DATA, 5, "RLIMIT_DATA (ulimit -d)"}};

uint64_t resourceLimit(const ResourceLimit &limit) {
  struct rlimit value {};
  return ::getrlimit(limit.kind, &value) == 0 && value.rlim_cur != RLIM_INFINITY ? value.rlim_cur : kUnlimited;
}

void lower(MemoryLimit &limit, uint64_t bytes, const std::string &what, bool ofAddresses = false) {
  if (bytes < limit.bytes)
    limit = {bytes, ofAddresses, what};
}

std::string nameOf(const Group &group) { return "the control group " + group.folder; }
} // namespace

MemoryLimit memoryLimit(const std::string &root) {
  MemoryLimit limit{fromMeminfo(root, "MemTotal"), false, "the machine's memory"};
  for (const Group &group : groupsOf(root))
    lower(limit, group.limit().value_or(kUnlimited), nameOf(group));
  for (const ResourceLimit &resource : kResourceLimits)
    lower(limit, resourceLimit(resource), resource.what, /*ofAddresses=*/true);
  return limit;
}

MemoryLimit freeMemory(bool swap, const std::string &root) {
  uint64_t swapFree = swap ? fromMeminfo(root, "SwapFree") : 0;
  MemoryLimit free{fromMeminfo(root, "MemAvailable") + swapFree, false, "the machine's memory"};
  for (const Group &group : groupsOf(root))
    if (std::optional<uint64_t> limit = group.limit()) {
      uint64_t room = *limit - std::min(*limit, group.used());
      uint64_t more = swap ? std::min(swapFree, group.freeSwap()) : 0;
      lower(free, room > kUnlimited - more ? kUnlimited : room + more, nameOf(group));
    }
  for (const ResourceLimit &resource : kResourceLimits)
    if (uint64_t limit = resourceLimit(resource); limit != kUnlimited)
      lower(free, limit - std::min(limit, fromStatm(root, resource.statm)), resource.what, /*ofAddresses=*/true);
  return free;
}

Status checkMemory(uint64_t bytes, const MemoryLimit &free, unsigned threads) {
  uint64_t beside = kBesideArenasBytes;
  if (free.ofAddresses)
    beside += kUnusedAddressBytes + (std::max(threads, 1u) - 1) * stackBytes();
  if (bytes <= free.bytes && beside <= free.bytes - bytes)
    return Status();
  const uint64_t needed = bytes + beside;
  return error(
      "not enough memory: the plan takes {} and the process another {}, together {} bytes; {} leaves {} ({} bytes). "
      "End other programs, raise that limit, or compile for less: a smaller batch, or a {} that {} lists",
      bytesText(bytes), bytesText(beside), needed, free.what, bytesText(free.bytes), free.bytes,
      advice::compile("memory-budget"), advice::compileCommand("frontier"));
}

uint64_t processMemoryBytes() {
  // Read without a stream, so that the measurement itself allocates no memory.
  int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  char text[128] = "";
  ssize_t count = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  const char *second = count > 0 ? std::strchr(text, ' ') : nullptr;
  return second ? std::strtoull(second, nullptr, 10) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

} // namespace tcc
