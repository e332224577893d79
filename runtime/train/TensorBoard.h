//===- TensorBoard.h - scalars for TensorBoard ---------------------------===//
//
// An events file is a sequence of records: u64 length, masked CRC-32C of it, the bytes of an Event message, masked
// CRC-32C of them (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). The few fields that
// scalars need are encoded here.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TENSORBOARD_H
#define TCC_RUNTIME_TRAIN_TENSORBOARD_H

#include "support/Status.h"
#include "runtime/train/RecordFile.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace tcc::runtime {

class TensorBoardFile {
public:
  /// Makes `folder`/events.out.tfevents.SECONDS.tcc; each start or resume of a run has a file of its own.
  static Expected<TensorBoardFile> create(const std::string &folder);

  /// Adds one value, finite or not. Allocates nothing.
  void scalar(std::string_view tag, uint64_t step, double value);
  RecordFile &file() { return records; }

private:
  explicit TensorBoardFile(RecordFile records) : records(std::move(records)) {}
  void record(std::string_view bytes);
  RecordFile records;
};

/// CRC-32C (Castagnoli).
uint32_t crc32c(const void *data, size_t length);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TENSORBOARD_H
