//===- MappedFile.h - a file's bytes, read through a mapping -------------===//
//
// Data sets and weights are larger than a process should copy: the kernel pages them in as they are read.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_MAPPEDFILE_H
#define TCC_SUPPORT_MAPPEDFILE_H

#include "support/Status.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tcc {

/// A read-only mapping of a whole file. Errors name the file and the system's reason.
class MappedFile {
public:
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string &path);
  /// Bytes in memory that replace a file; `name` stands for its path.
  static std::shared_ptr<const MappedFile> fromBytes(std::string name, std::string content);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte *>(address), length}; }
  std::string_view text() const { return {static_cast<const char *>(address), length}; }
  const std::string &path() const { return name; }
  /// Releases the pages that were read; the system reads them again on the next access.
  void releasePages() const;

private:
  MappedFile() = default;
  std::string name, memory;
  void *address = nullptr;
  size_t length = 0;
};

/// Reads a whole file into memory; for small files. Accepts regular files, and pipes passed down as /dev/stdin or
/// /dev/fd/N; never waits for the writer of a FIFO.
Expected<std::string> readFile(const std::string &path);

} // namespace tcc

#endif // TCC_SUPPORT_MAPPEDFILE_H
