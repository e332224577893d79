//===- Recorder.h - the files of one run -----------------------------------===//
//
// Writes the run's events (RunEvents.h) to metrics.jsonl, TensorBoard files and log.txt, and forwards them to the
// program's listener. A full or failing disk does not stop the run: lines are kept in memory, and the end of the run
// reports those that are missing.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RECORDER_H
#define TCC_RUNTIME_TRAIN_RECORDER_H

#include "runtime/train/RunText.h"
#include "runtime/train/TensorBoard.h"
#include "support/Advice.h"

#include <memory>
#include <mutex>

namespace tcc::runtime {

struct RecorderOptions {
  RunEvents *next = nullptr; ///< gets every event too; null: nobody
  const Wording *wording;    ///< words for advice in the files
  uint64_t logEvery = 0;     ///< updates between progress lines in the log; 0: about twenty in all
};

class Recorder final : public RunEvents {
public:
  /// Opens the files of `run`.
  static Expected<Recorder> open(const std::string &run, RecorderOptions options);
  /// For a rank that does not lead: only the file `log`; numbers are not recorded.
  static Expected<Recorder> openLog(const std::string &log, RecorderOptions options);
  /// For a run that keeps no files.
  static Recorder withoutFiles(RecorderOptions options) { return Recorder(options); }

  /// Evaluations that the run's file held when it was opened, each with its step.
  std::vector<std::pair<uint64_t, EvaluationRecord>> evaluations() const {
    return numbers ? numbers->metrics.evaluations() : std::vector<std::pair<uint64_t, EvaluationRecord>>();
  }

  void message(const Message &message) override;
  void begins(const RunFacts &facts) override;
  /// Allocates nothing. Steps of less than a tenth of a second share a system call.
  void update(const UpdateMetrics &update) override;
  void evaluating(uint64_t done, uint64_t samples) override;
  void evaluated(const EvaluatedStep &evaluated) override;
  void checkpoint(const WrittenCheckpoint &checkpoint) override;
  void ends(const RunEnd &end) override;

  /// Writes all records to the files, so that they survive the process, however it ends. The first failure is reported
  /// at once.
  void flush();
  /// Flushes a last time. Error: some records could not be written.
  Status finish();

private:
  struct Numbers {
    MetricsFile metrics;
    TensorBoardFile events;
  };
  explicit Recorder(RecorderOptions options) : options(options) {}
  Status openLog(const std::string &path);
  Status tryFlush();
  /// A line of the log, written at once.
  void log(std::string_view line);

  RecorderOptions options;
  std::optional<Numbers> numbers;  ///< none: this rank does not lead, or there are no files
  std::optional<RecordFile> lines; ///< the log
  /// Messages come from any thread.
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
  ProgressPace pace;
  std::string folder;
  double flushed = 0;
  bool failing = false;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RECORDER_H
