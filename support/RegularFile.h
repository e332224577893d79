//===- RegularFile.h - opening a file that can be read at any offset ------===//
#ifndef TCC_SUPPORT_REGULARFILE_H
#define TCC_SUPPORT_REGULARFILE_H

#include "support/Status.h"

#include <cstdint>
#include <string>

namespace tcc {

/// An open file descriptor, closed with the object.
class RegularFile {
public:
  enum class Accept {
    RegularFiles,
    PassedDownPipes ///< also /dev/stdin and /dev/fd/N where they are pipes: those have a writer
  };
  /// Opens for reading without waiting: a FIFO, socket, device or folder is an error that says which it is. Errors
  /// start with the path; `what` ("the plan") names the file's purpose in them.
  static Expected<RegularFile> open(const std::string &path, Accept accept = Accept::RegularFiles,
                                          const std::string &what = "");

  RegularFile(RegularFile &&other) noexcept;
  RegularFile &operator=(RegularFile &&other) noexcept;
  ~RegularFile();

  /// Reads `count` bytes at an offset. Error: the system's reason, or the file ends before.
  Status readAt(uint64_t offset, void *to, uint64_t count) const;

  int descriptor() const { return file; }
  uint64_t bytes() const { return size; } ///< when it was opened
  /// The descriptor, which the caller closes.
  int release();

private:
  RegularFile(int file, uint64_t size) : file(file), size(size) {}
  int file = -1;
  uint64_t size = 0;
};

/// The default limit of files that are read whole.
constexpr uint64_t kMostFileBytes = uint64_t(1) << 30;

/// Reads a whole file into memory, as readFile (MappedFile.h) does. Error: it holds more than `most` bytes.
Expected<std::string> readWhole(const std::string &path, uint64_t most,
                                RegularFile::Accept accept = RegularFile::Accept::RegularFiles);

} // namespace tcc

#endif // TCC_SUPPORT_REGULARFILE_H
