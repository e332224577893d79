//===- Recorder.h - the numbers of one run, on the disk and on the screen ===//
//
// metrics.jsonl, TensorBoard events and messages. A full or failing disk does not stop the run: lines are kept in
// memory, and the end of the run reports those that are missing.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RECORDER_H
#define TCC_RUNTIME_TRAIN_RECORDER_H

#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/TensorBoard.h"

namespace tcc::runtime {

class Recorder {
public:
  /// Opens the files of `run`.
  static Expected<Recorder> open(const std::string &run, Progress progress);
  /// For a rank that does not lead: messages are written only to the file `log`, numbers are not recorded.
  static Expected<Recorder> openLog(const std::string &log, Progress progress);

  Progress &progress() { return screen; }
  /// Evaluations that the run's file held when it was opened, each with its step.
  std::vector<std::pair<uint64_t, EvaluationRecord>> evaluations() const {
    return files ? files->metrics.evaluations() : std::vector<std::pair<uint64_t, EvaluationRecord>>();
  }

  /// Allocates nothing. Steps of less than a tenth of a second share a system call.
  void update(const UpdateMetrics &update, double now);
  /// As MetricsFile::checkpoint.
  void checkpoint(const CheckpointWriter::Result &result);
  void evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds);

  /// Records that training ended after update `step`, and why; flushes.
  void end(uint64_t step, const std::string &reason);

  /// Writes all records to the files, so that they survive the process, however it ends. The first failure is reported
  /// at once.
  void flush();
  /// A last flush. Error: something is missing.
  Status finish();

private:
  struct Files {
    MetricsFile metrics;
    TensorBoardFile events;
  };
  Recorder(Progress progress, std::optional<Files> files) : screen(std::move(progress)), files(std::move(files)) {}
  Status tryFlush();

  Progress screen;
  std::optional<Files> files; ///< none: this rank does not lead
  double flushed = 0;
  bool failing = false;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RECORDER_H
