//===- ContentStore.cpp ---------------------------------------------------===//
#include "compiler/cache/ContentStore.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tcc::cache {

namespace {

namespace fs = std::filesystem;

constexpr const char *kLayout = "v1";
constexpr std::array<char, 8> kMagic = {'T', 'C', 'C', 'E', 'N', 'T', 'R', 'Y'};
/// A temporary file of this age was left behind by a compiler that was killed.
constexpr auto kAbandoned = std::chrono::hours(1);

struct Header {
  std::array<char, 8> magic = kMagic;
  Key key;
  uint64_t bytes = 0;
  Key content;
};

/// An open file, closed at the end of the scope.
struct Descriptor {
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int number;
};

bool readAll(int file, void *to, size_t bytes) {
  char *at = static_cast<char *>(to);
  while (bytes) {
    ssize_t count = read(file, at, bytes);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    at += count;
    bytes -= size_t(count);
  }
  return true;
}

bool writeAll(int file, const void *from, size_t bytes) {
  const char *at = static_cast<const char *>(from);
  while (bytes) {
    ssize_t count = write(file, at, bytes);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    at += count;
    bytes -= size_t(count);
  }
  return true;
}

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

} // namespace

std::string defaultFolder() {
  if (const char *own = std::getenv("TCC_CACHE_DIR"))
    return own;
  if (std::string base = variable("XDG_CACHE_HOME"); fs::path(base).is_absolute())
    return base + "/tcc";
  std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/tcc";
}

std::string ContentStore::pathOf(const Key &key) const {
  std::string name = key.text();
  return folder + "/" + kLayout + "/" + name.substr(0, 2) + "/" + name.substr(2) + ".entry";
}

void ContentStore::notePath(const std::string &path, int error) {
  std::lock_guard lock(mutex);
  if (problem.empty())
    problem = fmt::format("{}: {}", path, std::strerror(error));
}

std::string ContentStore::takeProblem() {
  std::lock_guard lock(mutex);
  return std::exchange(told, told || !problem.empty()) ? "" : problem;
}

std::optional<std::string> ContentStore::get(const Key &key) {
  Descriptor file(open(pathOf(key).c_str(), O_RDONLY | O_CLOEXEC));
  Header header;
  struct stat info = {};
  if (file.number < 0 || fstat(file.number, &info) != 0 || !readAll(file.number, &header, sizeof header))
    return std::nullopt;
  if (header.magic != kMagic || header.key != key || uint64_t(info.st_size) != sizeof header + header.bytes)
    return std::nullopt;
  std::string bytes(size_t(header.bytes), '\0');
  if (!readAll(file.number, bytes.data(), bytes.size()) || hashOf(bytes.data(), bytes.size()) != header.content)
    return std::nullopt;
  futimens(file.number, nullptr); // asked for now; a store that may only be read keeps its times
  return bytes;
}

void ContentStore::put(const Key &key, std::string_view bytes) {
  if (bytes.size() + sizeof(Header) > capacityBytes / 2)
    return;
  const std::string path = pathOf(key);
  std::error_code code;
  const fs::path parent = fs::path(path).parent_path();
  const bool fresh = !fs::exists(folder, code);
  fs::create_directories(parent, code);
  if (code)
    return notePath(parent.string(), code.value());
  // Kernels are machine code: what others may not write, they cannot slip in.
  if (fresh)
    fs::permissions(folder, fs::perms::owner_all, code);
  std::string temporary = path + ".XXXXXX";
  Descriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.number < 0)
    return notePath(parent.string(), errno);
  Header header;
  header.key = key;
  header.bytes = bytes.size();
  header.content = hashOf(bytes.data(), bytes.size());
  if (!writeAll(file.number, &header, sizeof header) || !writeAll(file.number, bytes.data(), bytes.size()) ||
      rename(temporary.c_str(), path.c_str()) != 0) {
    notePath(temporary, errno);
    unlink(temporary.c_str());
    return;
  }
  written = true;
}

void ContentStore::trim() {
  if (!written.exchange(false))
    return;
  struct Entry {
    fs::file_time_type time;
    std::string path;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder + "/" + kLayout, code), end; !code && at != end; at.increment(code)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || gone)
      continue;
    Entry entry{at->last_write_time(gone), at->path().string(), 0};
    entry.bytes = gone ? 0 : at->file_size(gone);
    if (gone)
      continue;
    if (at->path().extension() != ".entry") {
      if (fs::file_time_type::clock::now() - entry.time > kAbandoned)
        fs::remove(entry.path, gone);
      continue;
    }
    total += entry.bytes;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.time != b.time ? a.time < b.time : a.path < b.path; });
  for (const Entry &entry : entries) {
    if (total <= capacityBytes)
      break;
    std::error_code kept;
    fs::remove(entry.path, kept);
    if (!kept)
      total -= entry.bytes;
  }
}

} // namespace tcc::cache
