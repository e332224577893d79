//===- Plugin.cpp - Parquet and Arrow files as C streams of batches --------===//
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include "runtime/data/arrow/Plugin.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

namespace {
using Batches = std::shared_ptr<arrow::RecordBatchReader>;

/// Checks each batch: offsets must be within the buffers, texts must be UTF-8. Parquet's exceptions become errors.
class Checked final : public arrow::RecordBatchReader {
public:
  Checked(std::unique_ptr<arrow::CappedMemoryPool> pool, std::shared_ptr<void> keeps, Batches inner)
      : pool(std::move(pool)), keeps(std::move(keeps)), inner(std::move(inner)) {}
  ~Checked() override {
    inner.reset(); // before the memory pool that it uses is destroyed
    keeps.reset();
  }

  std::shared_ptr<arrow::Schema> schema() const override { return inner->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch> *batch) override {
    try {
      ARROW_RETURN_NOT_OK(inner->ReadNext(batch));
      return *batch ? (*batch)->ValidateFull() : arrow::Status::OK();
    } catch (const std::exception &problem) {
      return arrow::Status::Invalid(problem.what());
    }
  }

private:
  std::unique_ptr<arrow::CappedMemoryPool> pool;
  std::shared_ptr<void> keeps;
  Batches inner;
};

arrow::Result<Batches> openParquet(std::shared_ptr<arrow::io::RandomAccessFile> file, arrow::MemoryPool *pool,
                                   std::shared_ptr<void> &keeps) {
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(std::move(file), parquet::ReaderProperties(pool)));
  builder.memory_pool(pool);
  ARROW_ASSIGN_OR_RAISE(std::unique_ptr<parquet::arrow::FileReader> reader, builder.Build());
  std::shared_ptr<parquet::arrow::FileReader> shared = std::move(reader);
  ARROW_ASSIGN_OR_RAISE(std::unique_ptr<arrow::RecordBatchReader> batches, shared->GetRecordBatchReader());
  keeps = shared;
  return Batches(std::move(batches));
}

/// The batches of an Arrow file, in order.
class FileBatches final : public arrow::RecordBatchReader {
public:
  explicit FileBatches(std::shared_ptr<arrow::ipc::RecordBatchFileReader> file) : file(std::move(file)) {}
  std::shared_ptr<arrow::Schema> schema() const override { return file->schema(); }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch> *batch) override {
    batch->reset();
    if (next < file->num_record_batches()) {
      ARROW_ASSIGN_OR_RAISE(*batch, file->ReadRecordBatch(next++));
    }
    return arrow::Status::OK();
  }

private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file;
  int next = 0;
};

arrow::Result<Batches> openAny(std::string_view bytes, arrow::MemoryPool *pool, std::shared_ptr<void> &keeps) {
  auto buffer = std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t *>(bytes.data()),
                                                static_cast<int64_t>(bytes.size()));
  auto file = std::make_shared<arrow::io::BufferReader>(std::move(buffer));
  if (bytes.starts_with("PAR1"))
    return openParquet(file, pool, keeps);
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  if (bytes.starts_with("ARROW1")) {
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchFileReader::Open(file.get(), options));
    keeps = file;
    return Batches(std::make_shared<FileBatches>(std::move(reader)));
  }
  ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file, options));
  return Batches(std::move(reader));
}

const char *open(const void *bytes, uint64_t size, uint64_t memoryBytes, ArrowArrayStream *stream) {
  thread_local std::string problem;
  try {
    constexpr auto kMost = uint64_t(std::numeric_limits<int64_t>::max());
    auto pool = std::make_unique<arrow::CappedMemoryPool>(arrow::system_memory_pool(),
                                                          static_cast<int64_t>(std::min(memoryBytes, kMost)));
    std::shared_ptr<void> keeps;
    auto batches = openAny({static_cast<const char *>(bytes), size}, pool.get(), keeps);
    arrow::Status status = batches.status();
    if (status.ok())
      status = arrow::ExportRecordBatchReader(
          std::make_shared<Checked>(std::move(pool), std::move(keeps), batches.MoveValueUnsafe()), stream);
    if (status.ok())
      return nullptr;
    problem = status.message();
  } catch (const std::exception &exception) {
    problem = exception.what();
  }
  return problem.c_str();
}
} // namespace

const TrunArrow *trunArrow(void) {
  static const TrunArrow table = {TRUN_ARROW_VERSION, open};
  return &table;
}
