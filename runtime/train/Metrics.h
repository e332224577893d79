//===- Metrics.h - metrics of a run ----------------------------------------===//
//
// One line of JSON for each update. Lines are formatted in a fixed buffer, so an update allocates nothing.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_METRICS_H
#define TCC_RUNTIME_TRAIN_METRICS_H

#include "support/BytesText.h"
#include "support/Status.h"
#include "runtime/train/RecordFile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// The result of one pass over a data set.
struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy; ///< over counted targets, if the loss is a classification
  std::vector<std::pair<std::string, double>> others = {}; ///< evaluate.metrics, by name
  std::vector<uint64_t> confusion = {}; ///< EvalMetrics::pairs()
  uint64_t samples = 0;
  bool complete = true; ///< false: it was ended early, and the numbers are meaningless
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
  double seconds = 0; ///< since the previous update, including batch and logging, not evaluation and checkpoints
  double dataSeconds = 0; ///< the part of `seconds` spent on inputs: waiting for the loader, or reading
  /// In a job of several ranks: time of collectives, and the part of it during which this rank did nothing else.
  std::optional<double> communicationSeconds, exposedSeconds;
  uint64_t samples = 0, tokens = 0;
  double lossScale = 0;         ///< the factor of the loss in this update; 0: the plan has none
  uint64_t skippedUpdates = 0;  ///< so far, this one included; of several phases the sum
  bool skipped = false;         ///< this update changed no weight
  bool overflowed = false;      ///< a gradient was not finite: this update, or that of a phase, was skipped
  uint64_t normOfRun = 0;       ///< the entry's run from which gradientNorm is still to be read; 0: it has been read
  size_t shape = 0;             ///< of that entry
  uint64_t damaged = 0; ///< samples left out so far, by data.max_bad
  std::vector<PhaseMetrics> phases; ///< empty: one optimizer
  std::vector<LossPart> losses;     ///< the losses whose scaled sum is `loss`; empty: one
  bool resumed = false; ///< the first update of a process that resumes a run
};

/// RUN/metrics.jsonl.
class MetricsFile {
public:
  /// Opens for appending.
  static Expected<MetricsFile> open(const std::string &path);

  /// Numbers are written so that they read back exactly; one that is not finite is written as null.
  void update(const UpdateMetrics &metrics);
  void evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds);
  /// Records a durable checkpoint: bytes of its files, seconds for which training waited, seconds until it was durable.
  void checkpoint(uint64_t step, uint64_t bytes, double waitedSeconds, double seconds);
  /// Records that this process stopped training after update `step`, and why.
  void end(uint64_t step, const std::string &reason);

  /// The evaluations in the lines that open() kept, each with its step.
  const std::vector<std::pair<uint64_t, EvaluationRecord>> &evaluations() const { return past; }
  RecordFile &file() { return records; }

private:
  explicit MetricsFile(RecordFile records) : records(std::move(records)) {}
  RecordFile records;
  std::vector<std::pair<uint64_t, EvaluationRecord>> past;
};

/// Seconds of a monotonic clock.
double monotonicSeconds();

inline std::string formatBytes(uint64_t bytes) { return bytesText(bytes); }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_METRICS_H
