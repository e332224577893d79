//===- AtomicFile.cpp - files that are replaced atomically ---------------===//
#include "support/AtomicFile.h"
#include "support/RegularFile.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include <xxhash.h>

namespace tcc {

namespace {
/// As the kernel's own limit.
constexpr int kMostLinks = 40;
/// Longest part of a file's name that its temporary name repeats: names have at most 255 bytes.
constexpr size_t kMostNameBytes = 200;
/// Page of memory; O_DIRECT asks for no larger alignment of addresses and offsets.
constexpr uint64_t kPageBytes = 4096;
/// Small writes are collected up to this size before they bypass the cache.
constexpr uint64_t kBufferBytes = 256 << 10;
/// Bytes that are hashed and then written at a time.
constexpr uint64_t kBlockBytes = 4 << 20;
/// The most bytes of one write: the system truncates writes above 2 GiB.
constexpr uint64_t kMostAtOnce = 1 << 30;

std::string folderOf(const std::string &path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status cannotWrite(const std::string &path, int reason) {
  return error("{}: cannot write: {}{}", path, std::strerror(reason),
               reason == ENOSPC || reason == EDQUOT ? "; free some space or write to another disk" : "");
}

template <typename Integer> bool parse(std::string_view text, Integer &value) {
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

/// The open descriptor that a path names (/dev/stdout, /dev/fd/N, /proc/self/fd/N), if it names one of this process.
std::optional<int> ownDescriptor(const std::string &path) {
  std::error_code code;
  std::string folder = std::filesystem::canonical(folderOf(path), code).string();
  int number = -1;
  if (code || folder != fmt::format("/proc/{}/fd", ::getpid()) ||
      !parse(std::filesystem::path(path).filename().string(), number) || number < 0)
    return std::nullopt;
  return number;
}

/// The file at the end of a path's links.
struct Target {
  std::string place;
  std::optional<struct stat> status; ///< empty: nothing is there yet
  std::optional<int> descriptor;     ///< of this process
  int problem = 0;
};

Target followLinks(const std::string &path) {
  Target target{path, std::nullopt, std::nullopt, 0};
  for (int links = 0; links <= kMostLinks; ++links) {
    if ((target.descriptor = ownDescriptor(target.place)))
      return target;
    struct stat status {};
    if (::lstat(target.place.c_str(), &status) != 0) {
      target.problem = errno == ENOENT ? 0 : errno;
      return target;
    }
    if (!S_ISLNK(status.st_mode)) {
      target.status = status;
      return target;
    }
    std::error_code code;
    std::filesystem::path next = std::filesystem::read_symlink(target.place, code);
    if (code) {
      target.problem = code.value();
      return target;
    }
    target.place = (std::filesystem::path(folderOf(target.place)) / next).string();
  }
  target.problem = ELOOP;
  return target;
}

/// The same without following links: a link counts as an existing file, which is refused.
Target entryAt(const std::string &path) {
  Target target{path, std::nullopt, std::nullopt, 0};
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0)
    target.status = status;
  else
    target.problem = errno == ENOENT ? 0 : errno;
  return target;
}
} // namespace

std::string temporaryPrefix(const std::string &name) { return "." + name.substr(0, kMostNameBytes) + ".tcc-"; }

std::optional<pid_t> ownerOfTemporary(std::string_view name) {
  constexpr std::string_view kMark = ".tcc-", kEnd = ".tmp";
  size_t mark = name.rfind(kMark);
  if (mark == name.npos || mark < 2 || name.front() != '.' || !name.ends_with(kEnd))
    return std::nullopt;
  std::string_view numbers = name.substr(mark + kMark.size(), name.size() - mark - kMark.size() - kEnd.size());
  size_t dash = numbers.find('-');
  pid_t process = 0;
  uint64_t count = 0;
  if (dash == numbers.npos || !parse(numbers.substr(0, dash), process) || !parse(numbers.substr(dash + 1), count) ||
      process <= 0)
    return std::nullopt;
  return process;
}

void removeIfAbandoned(int folder, const std::string &name) {
  std::optional<pid_t> owner = ownerOfTemporary(name);
  if (!owner || ::kill(*owner, 0) == 0 || errno != ESRCH)
    return;
  int file = ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0)
    return;
  // Process numbers are local to a container, the lock is not: a live writer in another container holds it.
  struct stat status {
  }, now{};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1 &&
      ::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstatat(folder, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
      now.st_ino == status.st_ino && now.st_dev == status.st_dev)
    ::unlinkat(folder, name.c_str(), 0);
  ::close(file);
}

int openTemporary(int folder, const std::string &name, mode_t mode, std::string &created) {
  const std::string prefix = temporaryPrefix(name);
  // A separate descriptor, since readdir moves its position.
  if (int listing = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); listing >= 0) {
    if (DIR *entries = ::fdopendir(listing)) {
      std::vector<std::string> left;
      while (const dirent *entry = ::readdir(entries))
        if (std::string_view(entry->d_name).starts_with(prefix))
          left.push_back(entry->d_name);
      ::closedir(entries);
      for (const std::string &old : left)
        removeIfAbandoned(folder, old);
    } else {
      ::close(listing);
    }
  }
  static std::atomic<uint64_t> count = 0;
  constexpr int kTries = 10'000;
  for (int i = 0; i < kTries; ++i) {
    created = fmt::format("{}{}-{}.tmp", prefix, ::getpid(), count++);
    int file = ::openat(folder, created.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file < 0 && errno == EEXIST)
      continue;
    if (file < 0)
      return -1;
    // Where locks are not supported, no file is taken for abandoned either. If the file was removed or locked between
    // its creation and our lock, a writer in another container was cleaning up: try again.
    struct stat status {};
    if ((::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && ::fstat(file, &status) == 0 &&
        status.st_nlink == 1)
      return file;
    ::close(file);
  }
  errno = EEXIST;
  return -1;
}

Expected<AtomicFile> AtomicFile::create(const std::string &path, OwnFile kind, Through through) {
  AtomicFile file;
  file.kind = kind;
  file.path = path;
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty() || name == "." || name == "..")
    return error("{}: cannot write: it names a folder; give a file name", path);
  Target target = followsLinks(kind) ? followLinks(path) : entryAt(path);
  if (target.problem)
    return cannotWrite(path, target.problem);
  file.place = target.place;
  if (target.descriptor) {
    file.descriptor = ::fcntl(*target.descriptor, F_DUPFD_CLOEXEC, 3);
  } else if (target.status && S_ISDIR(target.status->st_mode)) {
    return error("{}: cannot write: it is a folder; give a file name", path);
  } else if (target.status && !S_ISREG(target.status->st_mode) && !followsLinks(kind)) {
    return S_ISLNK(target.status->st_mode) ? checkReplaceable(file.place, kind, path)
                                           : error("{}: cannot write: it is not a regular file; remove it", path);
  } else if (target.status && !S_ISREG(target.status->st_mode)) {
    file.descriptor = ::open(file.place.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  } else {
    if (target.status)
      if (Status status = checkReplaceable(file.place, kind, path); !status.ok())
        return status;
    std::string folder = folderOf(file.place);
    int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0 || (target.status && ::faccessat(AT_FDCWD, file.place.c_str(), W_OK, AT_EACCESS) != 0)) {
      int reason = errno;
      ::close(opened);
      return cannotWrite(path, reason);
    }
    std::string created;
    file.descriptor = openTemporary(opened, std::filesystem::path(file.place).filename().string(), 0666, created);
    int reason = errno;
    ::close(opened);
    errno = reason;
    if (file.descriptor >= 0)
      file.temporary = (std::filesystem::path(folder) / created).string();
    if (file.descriptor >= 0 && target.status) {
      // Only root may change a file's owner; otherwise the file belongs to the writer.
      if (target.status->st_uid != ::geteuid() || target.status->st_gid != ::getegid())
        (void)!::fchown(file.descriptor, target.status->st_uid, target.status->st_gid);
      if (::fchmod(file.descriptor, target.status->st_mode & 0777) != 0)
        return cannotWrite(path, errno);
    }
  }
  if (file.descriptor < 0)
    return cannotWrite(path, errno);
  file.state = XXH3_createState();
  if (!file.state)
    return cannotWrite(path, ENOMEM);
  XXH3_64bits_reset(file.state);
  if (through == Through::Disk && !file.temporary.empty()) {
    file.buffer.reset(static_cast<char *>(std::aligned_alloc(kPageBytes, kBufferBytes)));
    const int flags = ::fcntl(file.descriptor, F_GETFL);
    file.direct = file.buffer && flags >= 0 && ::fcntl(file.descriptor, F_SETFL, flags | O_DIRECT) == 0;
  }
  return file;
}

Status AtomicFile::check(const std::string &path, OwnFile kind) {
  const Target target = followsLinks(kind) ? followLinks(path) : entryAt(path);
  if (target.problem || target.descriptor)
    return target.problem ? cannotWrite(path, target.problem) : Status();
  if (!target.status) {
    const std::string folder = folderOf(target.place);
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0 || ::faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0)
      return cannotWrite(path, errno);
    return S_ISDIR(status.st_mode) ? Status() : cannotWrite(path, ENOTDIR);
  }
  return S_ISREG(target.status->st_mode) ? checkReplaceable(target.place, kind, path) : Status();
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : kind(other.kind), path(std::move(other.path)), place(std::move(other.place)),
      temporary(std::move(other.temporary)), descriptor(other.descriptor), written(other.written), direct(other.direct),
      buffer(std::move(other.buffer)), buffered(other.buffered), state(other.state) {
  other.descriptor = -1;
  other.state = nullptr;
  other.temporary.clear();
}

AtomicFile::~AtomicFile() {
  // Unlink before closing: while the lock is held no other process takes the file for abandoned.
  if (!temporary.empty())
    ::unlink(temporary.c_str());
  if (descriptor >= 0)
    ::close(descriptor);
  if (state)
    XXH3_freeState(state);
}

bool AtomicFile::leaveDisk() {
  if (!direct)
    return false;
  direct = false;
  return ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_DIRECT) == 0;
}

Status AtomicFile::put(const char *next, uint64_t bytes) {
  while (bytes != 0) {
    ssize_t count = ::write(descriptor, next, static_cast<size_t>(std::min(bytes, kMostAtOnce)));
    // Some file systems accept O_DIRECT at open() but refuse the write, or the unaligned offset after a short write.
    if (count < 0 && (errno == EINTR || (errno == EINVAL && leaveDisk())))
      continue;
    if (count <= 0)
      return cannotWrite(path, count < 0 ? errno : ENOSPC);
    next += count;
    bytes -= static_cast<uint64_t>(count);
  }
  return Status();
}

Status AtomicFile::flush() {
  if (buffered % kPageBytes != 0)
    leaveDisk();
  return put(buffer.get(), std::exchange(buffered, 0));
}

Status AtomicFile::writeDirectly(const char *next, uint64_t bytes) {
  while (bytes != 0) {
    const uint64_t inPage = buffered % kPageBytes;
    const bool alike = bytes >= kBufferBytes && reinterpret_cast<uintptr_t>(next) % kPageBytes == inPage;
    if (alike && inPage == 0) {
      if (Status status = flush(); !status.ok())
        return status;
      const uint64_t pages = bytes / kPageBytes * kPageBytes;
      if (Status status = put(next, pages); !status.ok())
        return status;
      next += pages;
      bytes -= pages;
      continue;
    }
    const uint64_t count = std::min(bytes, alike ? kPageBytes - inPage : kBufferBytes - buffered);
    std::memcpy(buffer.get() + buffered, next, count);
    buffered += count;
    next += count;
    bytes -= count;
    if (buffered == kBufferBytes)
      if (Status status = flush(); !status.ok())
        return status;
  }
  return Status();
}

Status AtomicFile::write(const void *data, uint64_t bytes) {
  const char *next = static_cast<const char *>(data);
  while (bytes != 0) {
    // Hash block by block, so that a block is still cached when the system reads it.
    const uint64_t count = std::min(bytes, kBlockBytes - buffered % kPageBytes);
    XXH3_64bits_update(state, next, static_cast<size_t>(count));
    Status status = direct || buffered != 0 ? writeDirectly(next, count) : put(next, count);
    if (!status.ok())
      return status;
    next += count;
    bytes -= count;
    written += count;
  }
  return Status();
}

bool AtomicFile::cloneFrom(int source, uint64_t bytes) {
  if (temporary.empty() || written != 0)
    return false;
  if (::ioctl(descriptor, FICLONE, source) == 0) {
    written = bytes;
    return true;
  }
  loff_t from = 0, to = 0;
  while (static_cast<uint64_t>(from) < bytes) {
    ssize_t count = ::copy_file_range(source, &from, descriptor, &to, bytes - static_cast<uint64_t>(from), 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false; // the descriptor's own position is still 0: writing starts over
  }
  written = bytes;
  return true;
}

Status AtomicFile::commit() {
  if (Status status = flush(); !status.ok())
    return status;
  // Devices and pipes have nothing to flush, and say so.
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    return cannotWrite(path, errno);
  bool renamed = !temporary.empty();
  // Another process may have created a file there since.
  if (renamed)
    if (Status status = checkReplaceable(place, kind, path); !status.ok())
      return status;
  if (renamed && kind == OwnFile::Arrays)
    noteWritten(descriptor, place, written, hash());
  if (renamed && ::rename(temporary.c_str(), place.c_str()) != 0)
    return cannotWrite(path, errno);
  temporary.clear();
  int closed = ::close(descriptor);
  descriptor = -1;
  if (closed != 0)
    return cannotWrite(path, errno);
  if (renamed)
    syncFolder(folderOf(place));
  return Status();
}

uint64_t AtomicFile::hash() const { return XXH3_64bits_digest(state); }

Status writeFileAtomically(const std::string &path, std::string_view content, OwnFile kind) {
  auto file = AtomicFile::create(path, kind);
  if (!file)
    return file.status();
  if (Status status = file->write(content); !status.ok())
    return status;
  return file->commit();
}

void syncFolder(const std::string &folder) {
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  (void)::fsync(descriptor);
  ::close(descriptor);
}

namespace {
Status copyThroughMemory(int from, const std::string &path, AtomicFile &to) {
  std::string block(1 << 20, '\0');
  for (;;) {
    ssize_t count = ::read(from, block.data(), block.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return error("{}: cannot read: {}", path, std::strerror(errno));
    if (count == 0)
      return Status();
    if (Status status = to.write(block.data(), static_cast<uint64_t>(count)); !status.ok())
      return status;
  }
}

} // namespace

Status copyFile(const std::string &from, const std::string &to, OwnFile kind) {
  auto source = RegularFile::open(from);
  if (!source)
    return source.status();
  auto file = AtomicFile::create(to, kind);
  if (!file)
    return file.status();
  if (!file->cloneFrom(source->descriptor(), source->bytes()))
    if (Status status = copyThroughMemory(source->descriptor(), from, *file); !status.ok())
      return status;
  return file->commit();
}

} // namespace tcc
