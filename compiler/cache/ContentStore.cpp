//===- ContentStore.cpp - entries as files, checked and bounded -----------===//
#include "compiler/cache/ContentStore.h"

#include "support/AtomicFile.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tcc::cache {

namespace {

namespace fs = std::filesystem;

constexpr const char *kLayout = "v1";
constexpr const char *kSuffix = ".entry";
constexpr size_t kFolderDigits = 2, kFileDigits = 30; ///< of the 32 digits of a key
constexpr std::array<char, 8> kMagic = {'T', 'C', 'C', 'E', 'N', 'T', 'R', 'Y'};

struct Header {
  std::array<char, 8> magic = kMagic;
  Key key;
  uint64_t bytes = 0;
  Key content;
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

std::string fileOf(const Key &key) { return key.text().substr(kFolderDigits) + kSuffix; }
std::string folderOf(const Key &key) { return key.text().substr(0, kFolderDigits); }

bool isHexadecimal(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool isEntryName(std::string_view name) {
  return name.ends_with(kSuffix) && isHexadecimal(name.substr(0, name.size() - strlen(kSuffix)), kFileDigits);
}

/// ".ENTRY.tcc-PID-N.tmp"
bool isTemporaryName(std::string_view name) {
  const size_t entry = kFileDigits + strlen(kSuffix);
  return tcc::ownerOfTemporary(name) && name.size() > entry && isEntryName(name.substr(1, entry)) &&
         name.substr(1 + entry).starts_with(".tcc-");
}

/// The entries of a folder, without "." and "..".
std::vector<std::string> namesIn(const Descriptor &folder) {
  std::vector<std::string> names;
  int listing = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = listing < 0 ? nullptr : ::fdopendir(listing);
  if (!entries) {
    Descriptor unread(listing);
    return names;
  }
  while (const dirent *entry = ::readdir(entries))
    if (std::string_view name = entry->d_name; name != "." && name != "..")
      names.emplace_back(name);
  ::closedir(entries);
  return names;
}

/// Whether a file has the header of the entry that its name denotes.
bool isEntry(const Descriptor &folder, const std::string &folderName, const std::string &name) {
  struct stat status = {};
  Descriptor file = openTrustedFile(folder, name, status);
  Header header;
  return file && readAll(file.get(), &header, sizeof header) && header.magic == kMagic &&
         folderOf(header.key) == folderName && fileOf(header.key) == name;
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

void ContentStore::note(const std::string &reason) {
  std::lock_guard lock(mutex);
  if (problem.empty())
    problem = reason;
}

std::string ContentStore::takeProblem() {
  std::lock_guard lock(mutex);
  return std::exchange(told, told || !problem.empty()) ? "" : problem;
}

const Descriptor &ContentStore::openRoot(bool make) {
  std::lock_guard lock(mutex);
  if (root || untrusted)
    return root;
  std::string reason;
  Descriptor opened = openTrustedFolder(folder, make, reason);
  if (opened)
    root = openTrustedChild(opened, kLayout, folder + "/" + kLayout, make, reason);
  if (!reason.empty()) {
    untrusted = true;
    if (problem.empty())
      problem = "is not used: " + reason;
  }
  return root;
}

Descriptor ContentStore::openFolder(const Key &key, bool make) {
  const Descriptor &base = openRoot(make);
  if (!base)
    return Descriptor();
  std::string reason;
  Descriptor opened = openTrustedChild(base, folderOf(key), folder + "/" + kLayout + "/" + folderOf(key), make, reason);
  if (!reason.empty())
    note("is not used: " + reason);
  return opened;
}

std::optional<std::string> ContentStore::get(const Key &key) {
  Descriptor parent = openFolder(key, /*make=*/false);
  if (!parent)
    return std::nullopt;
  struct stat status = {};
  Descriptor file = openTrustedFile(parent, fileOf(key), status);
  Header header;
  if (!file || !readAll(file.get(), &header, sizeof header))
    return std::nullopt;
  if (header.magic != kMagic || header.key != key || header.bytes > capacityBytes ||
      uint64_t(status.st_size) != sizeof header + header.bytes)
    return std::nullopt;
  std::string bytes(size_t(header.bytes), '\0');
  if (!readAll(file.get(), bytes.data(), bytes.size()) || hashOf(bytes.data(), bytes.size()) != header.content)
    return std::nullopt;
  futimens(file.get(), nullptr); // renews the entry's time; fails silently in a read-only store
  return bytes;
}

void ContentStore::put(const Key &key, std::string_view bytes) {
  if (bytes.size() + sizeof(Header) > capacityBytes / 2)
    return;
  Descriptor parent = openFolder(key, /*make=*/true);
  if (!parent)
    return;
  const std::string name = fileOf(key), path = folder + "/" + kLayout + "/" + folderOf(key);
  auto failed = [&](int error) { note(fmt::format("keeps nothing: {}: {}", path, std::strerror(error))); };
  std::string temporary;
  Descriptor file(tcc::openTemporary(parent.get(), name, 0600, temporary));
  if (!file)
    return failed(errno);
  Header header;
  header.key = key;
  header.bytes = bytes.size();
  header.content = hashOf(bytes.data(), bytes.size());
  struct stat there = {};
  if (!writeAll(file.get(), &header, sizeof header) || !writeAll(file.get(), bytes.data(), bytes.size()))
    failed(errno);
  else if (::fstatat(parent.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           (!S_ISREG(there.st_mode) || there.st_uid != ::geteuid()))
    note(fmt::format("keeps nothing: {}/{} is not a file of yours; remove it", path, name));
  else if (::renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) != 0)
    failed(errno);
  else
    written = true, temporary.clear();
  if (!temporary.empty())
    ::unlinkat(parent.get(), temporary.c_str(), 0);
}

void ContentStore::trim() {
  if (!written.exchange(false))
    return;
  struct Entry {
    std::pair<time_t, long> time;
    std::string folder, name;
    uint64_t bytes;
  };
  const Descriptor &base = openRoot(/*make=*/false);
  std::vector<Entry> entries;
  uint64_t total = 0;
  auto open = [&](const std::string &name) {
    std::string unused;
    return openTrustedChild(base, name, name, /*make=*/false, unused);
  };
  for (const std::string &folderName : namesIn(base)) {
    if (!isHexadecimal(folderName, kFolderDigits))
      continue;
    Descriptor parent = open(folderName);
    if (!parent)
      continue;
    for (const std::string &name : namesIn(parent)) {
      if (isTemporaryName(name))
        tcc::removeIfAbandoned(parent.get(), name);
      struct stat status = {};
      if (!isEntryName(name) || ::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
        continue;
      total += uint64_t(status.st_size);
      entries.push_back({{status.st_mtim.tv_sec, status.st_mtim.tv_nsec}, folderName, name, uint64_t(status.st_size)});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.time, a.folder, a.name) < std::tie(b.time, b.folder, b.name);
  });
  for (const Entry &entry : entries) {
    if (total <= capacityBytes)
      break;
    // A file that only has an entry's name, not its header, is kept and does not count.
    Descriptor parent = open(entry.folder);
    if (!parent || !isEntry(parent, entry.folder, entry.name) || ::unlinkat(parent.get(), entry.name.c_str(), 0) == 0)
      total -= entry.bytes;
  }
}

} // namespace tcc::cache
