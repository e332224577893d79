//===- Recorder.h - the numbers of one run, on the disk and on the screen ===//
//
// metrics.jsonl, TensorBoard events and messages. A disk that is full or fails holds up none of them: lines wait, and the
// end of the run says what is missing.
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
  /// Of a rank that does not lead: messages go to the file `log` alone, numbers nowhere.
  static Expected<Recorder> openLog(const std::string &log, Progress progress);

  Progress &progress() { return screen; }
  /// Evaluations that the run's file held when it was opened, each with its step.
  std::vector<std::pair<uint64_t, EvaluationRecord>> evaluations() const {
    return files ? files->metrics.evaluations() : std::vector<std::pair<uint64_t, EvaluationRecord>>();
  }

  /// Allocates nothing. Steps of less than a tenth of a second share a system call.
  void update(const UpdateMetrics &update, double now);
  /// Bytes, seconds that training waited, seconds until it was durable.
  void checkpoint(const CheckpointWriter::Result &result);
  void evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds);

  /// The end of training after update `step`, in words; the last lines are handed to the system.
  void end(uint64_t step, const std::string &reason);

  /// Hands to the system what was recorded: nothing of it is lost when the process ends, however it does. The first time
  /// that this fails is told at once.
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
