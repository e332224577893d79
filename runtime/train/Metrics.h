//===- Metrics.h - what a run says while it goes on ----------------------===//
//
// One line of JSON an update, a progress line for people, a log. Lines are made in a fixed buffer: an update allocates
// nothing.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_METRICS_H
#define TCC_RUNTIME_TRAIN_METRICS_H

#include "runtime/plan/BytesText.h"
#include "runtime/plan/Status.h"
#include "runtime/train/RecordFile.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace tcc::runtime {

struct UpdateMetrics {
  uint64_t step = 0, epoch = 0; ///< both from 1
  double loss = 0, learningRate = 0, gradientNorm = 0;
  double seconds = 0; ///< since the update before: batch and logging are in it, evaluation and checkpoints not
  uint64_t samples = 0, tokens = 0;
  uint64_t damaged = 0; ///< samples left out so far, by data.max_bad
};

/// RUN/metrics.jsonl.
class MetricsFile {
public:
  /// Opens for appending.
  static plan::Expected<MetricsFile> open(const std::string &path);

  /// Numbers are written so that they read back the same; what is not finite is null.
  void update(const UpdateMetrics &metrics);
  void evaluation(uint64_t step, uint64_t epoch, double loss, std::optional<double> accuracy, double seconds);

  /// The last step that the lines kept by open() have an evaluation of.
  std::optional<uint64_t> lastEvaluation() const { return evaluated; }
  RecordFile &file() { return records; }

private:
  explicit MetricsFile(RecordFile records) : records(std::move(records)) {}
  RecordFile records;
  std::optional<uint64_t> evaluated;
};

/// What people read: a line that is rewritten on a terminal, else plain lines; a copy of each goes to RUN/log.txt. A
/// broken pipe or a terminal that is gone ends the output, not the run; neither does a full disk.
class Progress {
public:
  /// `every`: updates between lines; 0: ten lines a second at most on a terminal, else about twenty lines a run.
  Progress(uint64_t totalSteps, uint64_t firstStep, uint64_t every, bool terminal, std::FILE *out);
  plan::Status openLog(const std::string &path);

  void update(const UpdateMetrics &metrics);
  /// A message on a line of its own.
  void note(const std::string &text);
  /// The same for the log alone.
  void noteInLog(const std::string &text);
  /// Ends the rewritten line.
  void finish();

private:
  void show(std::string_view text);
  uint64_t total, first, every;
  bool terminal, lineOpen = false;
  std::FILE *out;
  std::optional<RecordFile> log;
  double startTime, lastShown = -1;
};

/// Seconds of a clock that never goes back.
double monotonicSeconds();

inline std::string formatBytes(uint64_t bytes) { return plan::bytesText(bytes); }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_METRICS_H
