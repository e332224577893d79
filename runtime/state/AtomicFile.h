//===- AtomicFile.h - files that are there whole, or not at all ----------===//
//
// What a run leaves behind must survive a crash and a full disk: bytes go to a temporary file in the same folder, are
// flushed to the disk, and take their name in one step. A hash is made on the way, so that nothing is read twice.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_ATOMICFILE_H
#define TCC_RUNTIME_STATE_ATOMICFILE_H

#include "runtime/plan/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace tcc::runtime {

class AtomicFile {
public:
  /// Creates the temporary file beside `path`. Error: the folder is missing or unwritable.
  static plan::Expected<AtomicFile> create(const std::string &path);

  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  /// Removes the temporary file unless committed.
  ~AtomicFile();

  /// Error: the disk is full, or fails.
  plan::Status write(const void *data, uint64_t bytes);
  plan::Status write(std::string_view text) { return write(text.data(), text.size()); }

  /// Flushes to the disk and renames.
  plan::Status commit();

  uint64_t bytesWritten() const { return written; }
  /// XXH3-64 of what was written so far.
  uint64_t hash() const;

private:
  AtomicFile() = default;
  std::string path, temporary;
  int descriptor = -1;
  uint64_t written = 0;
  XXH3_state_s *state = nullptr;
};

/// Writes a small file in one go.
plan::Status writeFileAtomically(const std::string &path, std::string_view content);

/// Flushes a folder's entries (the effect of renames) to the disk; best effort on file systems that cannot.
void syncFolder(const std::string &folder);

/// Creates a folder and its parents. Error: located.
plan::Status makeFolders(const std::string &folder);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_ATOMICFILE_H
