//===- RecordFile.h - records that wait for space on the disk ------------===//
//
// An append-only file for metrics and logs. Bytes that cannot be written (a full disk) stay in memory, and the next
// flush continues exactly at the file's end, so records are never torn. When the memory is full, too, whole records are
// dropped and counted.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RECORDFILE_H
#define TCC_RUNTIME_TRAIN_RECORDFILE_H

#include "support/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tcc::runtime {

class RecordFile {
public:
  /// `capacity`: bytes of pending records. Error: the file cannot be opened.
  static Expected<RecordFile> open(const std::string &path, bool append, size_t capacity = 256 << 10);

  RecordFile(RecordFile &&other) noexcept;
  RecordFile &operator=(RecordFile &&other) = delete;
  /// Writes the pending records; a failure is ignored.
  ~RecordFile();

  /// Adds a record; allocates nothing.
  void add(std::string_view record);
  /// Writes the pending records. Error: not all could be written; calling again is safe.
  Status flush();

  /// Number of records that were dropped.
  uint64_t lost() const { return lostRecords; }
  const std::string &path() const { return name; }

private:
  RecordFile() = default;
  std::string name;
  int descriptor = -1;
  std::unique_ptr<char[]> waiting;
  size_t used = 0, capacity = 0;
  uint64_t lostRecords = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RECORDFILE_H
