//===- Metrics.h - metrics and progress of a run --------------------------===//
//
// One line of JSON an update, a progress line for people, a log. Lines are made in a fixed buffer: an update allocates
// nothing.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_METRICS_H
#define TCC_RUNTIME_TRAIN_METRICS_H

#include "support/BytesText.h"
#include "support/Status.h"
#include "runtime/train/RecordFile.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// What one pass over a data set found.
struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy; ///< of counted targets, where the loss is a classification
  std::vector<std::pair<std::string, double>> others = {}; ///< evaluate.metrics, by name
  std::vector<uint64_t> confusion = {}; ///< EvalMetrics::pairs()
  uint64_t samples = 0;
  bool complete = true; ///< false: it was ended early, and the numbers mean nothing
};

/// The numbers of an evaluation under their keys in metrics.jsonl, in the order of the file.
struct EvaluationRecord {
  std::vector<std::pair<std::string, double>> values;
  /// The value under that key, if there is one.
  std::optional<double> find(std::string_view key) const;
};
/// `averaged`: of the averaged weights, or null; its keys begin with "ema_".
EvaluationRecord recordOf(const Evaluation &evaluation, const Evaluation *averaged);

/// One of several alternating optimizers in a step.
struct PhaseMetrics {
  std::string_view name; ///< of the plan
  bool ran = false;      ///< false: it is not due at this step, and has no numbers
  double loss = 0, learningRate = 0, gradientNorm = 0;
  bool skipped = false;        ///< a gradient was not finite: it changed no weight
  uint64_t skippedUpdates = 0; ///< of this phase so far, this one included
};

/// One of several losses in an update.
struct LossPart {
  std::string_view name; ///< of the plan
  double sum = 0, weight = 0;
  double loss() const { return sum / weight; }
};

struct UpdateMetrics {
  uint64_t step = 0, epoch = 0; ///< both from 1
  double loss = 0, learningRate = 0, gradientNorm = 0;
  double lossWeight = 1; ///< the loss's denominator
  double seconds = 0; ///< since the update before: batch and logging are in it, evaluation and checkpoints not
  double dataSeconds = 0; ///< of them until the inputs were there: waiting for the loader, or reading
  /// Of a job: what collectives took, and for how much of that this rank did nothing else.
  std::optional<double> communicationSeconds, exposedSeconds;
  uint64_t samples = 0, tokens = 0;
  double lossScale = 0;         ///< the factor of the loss in this update; 0: the plan has none
  uint64_t skippedUpdates = 0;  ///< so far, this one included; of several phases the sum
  bool skipped = false;         ///< this update changed no weight
  bool overflowed = false;      ///< a gradient was not finite: this update was skipped, or one of a phase
  uint64_t normOfRun = 0;       ///< the run of its entry that gradientNorm is still to come from; 0: it is there
  uint64_t damaged = 0; ///< samples left out so far, by data.max_bad
  std::vector<PhaseMetrics> phases; ///< empty: one optimizer
  std::vector<LossPart> losses;     ///< whose scaled sum is `loss`; empty: one
  bool resumed = false; ///< the first update of a process that goes on with a run
};

/// RUN/metrics.jsonl.
class MetricsFile {
public:
  /// Opens for appending.
  static Expected<MetricsFile> open(const std::string &path);

  /// Numbers are written so that they read back the same; a number that is not finite is null.
  void update(const UpdateMetrics &metrics);
  void evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds);
  /// A checkpoint that is durable: bytes of its files, seconds that training waited, seconds until it was durable.
  void checkpoint(uint64_t step, uint64_t bytes, double waitedSeconds, double seconds);
  /// The end of a process that trained, after update `step`, in words.
  void end(uint64_t step, const std::string &reason);

  /// The evaluations in the lines that open() kept, each with its step.
  const std::vector<std::pair<uint64_t, EvaluationRecord>> &evaluations() const { return past; }
  RecordFile &file() { return records; }

private:
  explicit MetricsFile(RecordFile records) : records(std::move(records)) {}
  RecordFile records;
  std::vector<std::pair<uint64_t, EvaluationRecord>> past;
};

/// Progress for people: a line that is rewritten on a terminal, else plain lines; a copy of each goes to RUN/log.txt. A
/// broken pipe or a terminal that is gone ends the output, not the run; neither does a full disk.
class Progress {
public:
  /// `every`: updates between lines; 0: ten lines a second at most on a terminal, else about twenty lines a run.
  /// `quiet`: warnings alone are shown; the log has everything.
  Progress(uint64_t totalSteps, uint64_t firstStep, uint64_t every, bool terminal, std::FILE *out, bool quiet = false);
  Status openLog(const std::string &path);

  void update(const UpdateMetrics &metrics);
  /// On a terminal: the rewritten line says how far an evaluation is. Ten times a second at most.
  void evaluating(uint64_t done, uint64_t samples);
  /// Wipes the rewritten line.
  void clear();
  /// A message on a line of its own.
  void note(const std::string &text);
  /// The same for the log alone.
  void noteInLog(const std::string &text);
  /// Ends the rewritten line.
  void finish();

private:
  void show(std::string_view text);
  uint64_t total, first, every;
  bool terminal, quiet, lineOpen = false;
  std::FILE *out;
  std::optional<RecordFile> log;
  std::unique_ptr<std::recursive_mutex> mutex = std::make_unique<std::recursive_mutex>(); ///< notes come from any thread
  double startTime, lastShown = -1;
};

/// Seconds of a clock that never goes back.
double monotonicSeconds();

inline std::string formatBytes(uint64_t bytes) { return bytesText(bytes); }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_METRICS_H
