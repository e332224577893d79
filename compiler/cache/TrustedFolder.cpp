//===- TrustedFolder.cpp - who may write to a folder ----------------------===//
#include "compiler/cache/TrustedFolder.h"

#include <fmt/core.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <pwd.h>
#include <unistd.h>
#include <vector>

namespace tcc::cache {

namespace {

namespace fs = std::filesystem;

/// The kernel's own limit of symbolic links.
constexpr int kMostLinks = 40;

bool isOwn(uid_t owner) { return owner == ::geteuid() || owner == 0; }

/// In an unprivileged container the system's folders belong to the overflow uid, which stands for unmapped users.
bool isOutsideContainer(uid_t owner) {
  uid_t overflow = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  return owner == overflow;
}

std::string nameOf(uid_t owner) {
  std::vector<char> buffer(16384);
  passwd entry = {}, *found = nullptr;
  if (::getpwuid_r(owner, &entry, buffer.data(), buffer.size(), &found) == 0 && found)
    return fmt::format("{} (uid {})", found->pw_name, owner);
  return fmt::format("uid {}", owner);
}

/// Checks a parent folder. A user who may write to it could replace the next part of the path, unless it is sticky.
std::string whyUntrustedParent(const std::string &path, const struct stat &status) {
  if (!isOwn(status.st_uid) && !isOutsideContainer(status.st_uid))
    return fmt::format("{} belongs to {}", path, nameOf(status.st_uid));
  if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX))
    return fmt::format("everybody may write to {} (mode {:04o})", path, unsigned(status.st_mode & 07777));
  return "";
}

std::string reasonAt(const std::string &path, int error) { return fmt::format("{}: {}", path, std::strerror(error)); }

/// Opens a folder inside an open one, creating it if `make`; refuses links. With O_PATH, no read permission is needed.
Descriptor openChild(int parent, const std::string &name, bool make) {
  if (make && ::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST)
    return Descriptor();
  return Descriptor(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

} // namespace

Descriptor::~Descriptor() {
  if (number >= 0)
    ::close(number);
}

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  std::swap(number, other.number);
  return *this;
}

std::string whyUntrusted(const std::string &path, const struct stat &status) {
  if (!isOwn(status.st_uid))
    return fmt::format("{} belongs to {}, not to you", path, nameOf(status.st_uid));
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("others may write to {} (mode {:04o}); `chmod go-w` it", path, unsigned(status.st_mode & 07777));
  return "";
}

Descriptor openTrustedFolder(const std::string &path, bool make, std::string &problem) {
  std::error_code code;
  fs::path whole = fs::absolute(path, code);
  std::deque<std::string> parts;
  for (const fs::path &part : whole.relative_path())
    parts.push_back(part.string());
  std::vector<Descriptor> above; // open folders on the way to `at`, for ".."
  Descriptor at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  fs::path name = "/";
  int links = 0;
  while (at) {
    struct stat status = {};
    if (::fstat(at.get(), &status) != 0) {
      problem = reasonAt(name.string(), errno);
      return Descriptor();
    }
    while (!parts.empty() && (parts.front().empty() || parts.front() == "."))
      parts.pop_front();
    problem = parts.empty() ? whyUntrusted(name.string(), status) : whyUntrustedParent(name.string(), status);
    if (!problem.empty())
      return Descriptor();
    if (parts.empty())
      return at;
    std::string next = parts.front();
    parts.pop_front();
    if (next == "..") {
      if (!above.empty()) {
        at = std::move(above.back());
        above.pop_back();
        name = name.parent_path();
      }
      continue;
    }
    struct stat inside = {};
    if (::fstatat(at.get(), next.c_str(), &inside, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(inside.st_mode)) {
      if (!isOwn(inside.st_uid) && !isOutsideContainer(inside.st_uid)) {
        problem = fmt::format("the link {} belongs to {}", (name / next).string(), nameOf(inside.st_uid));
        return Descriptor();
      }
      std::vector<char> text(PATH_MAX);
      ssize_t length = ++links > kMostLinks ? (errno = ELOOP, -1)
                                            : ::readlinkat(at.get(), next.c_str(), text.data(), text.size());
      if (length < 0) {
        problem = reasonAt((name / next).string(), errno);
        return Descriptor();
      }
      fs::path to(std::string(text.data(), size_t(length)));
      std::vector<std::string> inserted;
      for (const fs::path &part : to.relative_path())
        inserted.push_back(part.string());
      parts.insert(parts.begin(), inserted.begin(), inserted.end());
      if (to.is_absolute()) {
        above.clear();
        at = Descriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
        name = "/";
      }
      continue;
    }
    Descriptor child = openChild(at.get(), next, make);
    name /= next;
    if (!child) {
      if (make || errno != ENOENT)
        problem = reasonAt(name.string(), errno);
      return Descriptor();
    }
    above.push_back(std::move(at));
    at = std::move(child);
  }
  problem = reasonAt("/", errno);
  return Descriptor();
}

Descriptor openTrustedChild(const Descriptor &parent, const std::string &name, const std::string &path, bool make,
                            std::string &problem) {
  Descriptor child = openChild(parent.get(), name, make);
  struct stat status = {};
  if (!child) {
    if (make || errno != ENOENT)
      problem = reasonAt(path, errno);
    return child;
  }
  if (::fstat(child.get(), &status) != 0)
    problem = reasonAt(path, errno);
  else
    problem = whyUntrusted(path, status);
  return problem.empty() ? std::move(child) : Descriptor();
}

Descriptor openTrustedFile(const Descriptor &folder, const std::string &name, struct stat &status) {
  // Open without blocking, since opening a FIFO would wait for a writer.
  Descriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1 ||
      !whyUntrusted(name, status).empty())
    return Descriptor();
  return file;
}

} // namespace tcc::cache
