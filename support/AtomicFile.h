//===- AtomicFile.h - files that are replaced atomically -----------------===//
//
// Writes a file so that a crash or a full disk leaves the old content or the new one: bytes go to a temporary file in
// the same folder, are flushed to the disk, and the file is renamed. Everything that the commands write at a user's
// path goes through this class, which also decides what may be replaced at such a path:
//
// - A regular file is replaced if it is empty or has the mark of its kind (OwnFiles.h); the new one keeps its mode and,
//   where permitted, its owner. A file that the caller may not write is refused.
// - A symbolic link stays: the file that it names is replaced or created. Inside runs and caches it is refused.
// - Anything else (device, FIFO, descriptor such as /dev/stdout) is opened and written, never replaced.
//
// A temporary file is called .NAME.tcc-PID-N.tmp, is created anew and is locked (flock) while its process lives. So a
// later writer of NAME removes only temporary files that killed writers left behind.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_ATOMICFILE_H
#define TCC_SUPPORT_ATOMICFILE_H

#include "support/OwnFiles.h"
#include "support/Status.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

struct XXH3_state_s;

namespace tcc {

class AtomicFile {
public:
  /// Disk: for large files. Where the file system supports it (O_DIRECT), bytes bypass the system's cache: straight
  /// from the caller's memory if its address and the file's offset are equal modulo the page size, else through a small
  /// buffer.
  enum class Through { Cache, Disk };

  /// Opens the temporary file beside `path`, or `path` itself if it is not a regular file. Opening a FIFO waits for its
  /// reader. Error: the folder is missing or unwritable, or `path` is a folder, may not be written, or is not of ours.
  static Expected<AtomicFile> create(const std::string &path, OwnFile kind, Through through = Through::Cache);

  /// Error: what create() would refuse. Lets a command fail before it does any work.
  static Status check(const std::string &path, OwnFile kind);

  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  /// Removes the temporary file unless committed.
  ~AtomicFile();

  /// Error: the disk is full, or fails.
  Status write(const void *data, uint64_t bytes);
  Status write(std::string_view text) { return write(text.data(), text.size()); }

  /// Makes an empty new file a copy of an open regular file, by the file system: it shares the blocks until one of the
  /// files is written to (FICLONE), or copies them (copy_file_range). False if it can do neither: then the caller
  /// writes the bytes. The hash does not cover cloned bytes.
  bool cloneFrom(int source, uint64_t bytes);

  /// Flushes to the disk and renames. Error: also if a file that create() would refuse has appeared meanwhile.
  Status commit();

  uint64_t bytesWritten() const { return written; }
  /// XXH3-64 of the bytes written so far.
  uint64_t hash() const;

private:
  AtomicFile() = default;
  Status put(const char *data, uint64_t bytes);
  Status flush();
  Status writeDirectly(const char *data, uint64_t bytes);
  /// Writes all further bytes through the cache. False if that is already so.
  bool leaveDisk();

  OwnFile kind{};
  std::string path;      ///< as the caller named it, for messages
  std::string place;     ///< the file to be written: `path` with its links followed
  std::string temporary; ///< empty: `place` is written directly
  int descriptor = -1;
  uint64_t written = 0;
  bool direct = false;                                               ///< past the cache
  std::unique_ptr<char[], void (*)(void *)> buffer{nullptr, ::free}; ///< the next pages of the file
  uint64_t buffered = 0;                                             ///< bytes in it; earlier ones are whole pages
  XXH3_state_s *state = nullptr;
};

/// Writes a small file in one go.
Status writeFileAtomically(const std::string &path, std::string_view content, OwnFile kind);

/// Opens ".NAME.tcc-PID-N.tmp" in a folder for writing, new, locked, of `mode` less the umask, and removes those that
/// dead processes of this user left behind. Returns the descriptor and sets `created` to the file's name, or returns -1
/// with errno set. `folder` is an open directory.
int openTemporary(int folder, const std::string &name, mode_t mode, std::string &created);

/// The part of the name of a temporary file or folder before the process.
std::string temporaryPrefix(const std::string &name);

/// The process that owns a temporary file of that name; empty if it is no such name.
std::optional<pid_t> ownerOfTemporary(std::string_view name);

/// Removes a temporary file if this user owns it and its process is gone.
void removeIfAbandoned(int folder, const std::string &name);

/// Flushes a folder's entries (the effect of renames) to the disk; best effort on file systems that cannot.
void syncFolder(const std::string &folder);

/// Makes `to` a copy of the regular file `from`. A `to` that exists must be of that kind; it is replaced atomically.
/// The file system shares the blocks until one of the files is written to (FICLONE), or copies them (copy_file_range),
/// or this process copies the bytes: in every case later changes of `from` do not affect `to`. Error: names the file.
Status copyFile(const std::string &from, const std::string &to, OwnFile kind);

} // namespace tcc

#endif // TCC_SUPPORT_ATOMICFILE_H
