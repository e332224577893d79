//===- RecordFile.h - records that wait for space on the disk ------------===//
//
// An append-only file for metrics and logs. Bytes that the system does not take (a full disk) stay in memory and are
// offered again at the next flush, from exactly where the file ends, so records are never torn. When the memory is used
// up too, whole records are left out and counted.
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
  /// `capacity`: bytes that may wait. Error: the file cannot be opened.
  static Expected<RecordFile> open(const std::string &path, bool append, size_t capacity = 256 << 10);

  RecordFile(RecordFile &&other) noexcept;
  RecordFile &operator=(RecordFile &&other) = delete;
  /// Writes the pending records; a failure is ignored.
  ~RecordFile();

  /// Adds a record; allocates nothing.
  void add(std::string_view record);
  /// Hands the pending records to the system. Error: it does not take all; calling again is safe.
  Status flush();

  /// Records that found no room.
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
