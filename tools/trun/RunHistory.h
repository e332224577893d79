//===- RunHistory.h - the history of a run, read from its folder ----------===//
//
// Reads the folder of a run that is finished, trains now, was stopped or broke off. A line that cannot be read (a crash
// may truncate the last one) is counted and left out; a missing or damaged file is named, and the rest is still
// reported.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TRUN_RUNHISTORY_H
#define TCC_TOOLS_TRUN_RUNHISTORY_H

#include "runtime/plan/Stages.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/RunOptions.h"

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tcc::tools {

/// Numbers of one of several alternating optimizers ([[phase]]) in an update; NaN: it did not run, or has no such
/// number.
struct PastPhase {
  double loss, learningRate, gradientNorm;
};
/// One of several losses with one sum ([[loss]]).
struct PastLoss {
  std::string name;
  double scale; ///< its factor in the sum; NaN: the plan cannot be read
};
/// NaN: the line does not have the number.
struct PastUpdate {
  uint64_t step = 0, epoch = 0;
  double loss, learningRate, gradientNorm, seconds, dataSeconds, samples, tokens, lossScale;
  double communicationSeconds, exposedSeconds; ///< of several ranks
  bool resumed = false;
  std::vector<PastPhase> phases; ///< in the order of RunHistory::phases; later ones may be missing
  std::vector<double> losses;    ///< in the order of RunHistory::losses; later ones may be missing
};
struct PastEvaluation {
  uint64_t step = 0;
  double seconds = 0;
  runtime::EvaluationRecord record;
};
struct PastCheckpoint {
  uint64_t step = 0, bytes = 0;
  double waitedSeconds = 0, seconds = 0;
  bool kept = false; ///< it still exists
};

struct RunHistory {
  std::string folder;
  std::vector<PastUpdate> updates;
  std::vector<PastEvaluation> evaluations;
  std::vector<PastCheckpoint> checkpoints;
  std::vector<std::string> phases;           ///< names, in the order of their first updates; none: one optimizer
  std::vector<PastLoss> losses;              ///< of several losses, in the order of their names; none: one loss
  uint64_t skipped = 0;                      ///< updates skipped because gradients overflowed at the loss scale
  std::map<std::string, uint64_t> skippedOf; ///< the same of each phase
  uint64_t damaged = 0;                      ///< samples that data.max_bad left out
  uint64_t unreadable = 0;                   ///< lines of metrics.jsonl
  uint64_t superseded = 0;                   ///< folders of updates that a resume repeated
  std::optional<std::string> end;            ///< the reason that the last process gave when it ended
  bool running = false;
  std::optional<runtime::RunOptions> options;
  std::optional<runtime::Manifest> manifest; ///< of the newest checkpoint
  std::optional<runtime::BestCheckpoint> best;
  uint64_t parameters = 0;           ///< elements that the plan trains; 0: unknown
  std::vector<plan::StageSummary> stages; ///< of the plan; none: one, which trains all
  std::vector<std::string> log;      ///< last lines of log.txt; progress, evaluations, checkpoints left out
  std::vector<std::string> problems; ///< files that could not be read

  /// "finished", "running", "stopped", "failed" or "broken off".
  const char *state() const;
  /// The same for a person, with the reason.
  std::string stateText() const;
  /// Seconds in updates without their waits; waiting for data, for other ranks, for checkpoints; in evaluations.
  struct Times {
    double compute = 0, data = 0, ranks = 0, checkpoints = 0, evaluations = 0;
    double total() const { return compute + data + ranks + checkpoints + evaluations; }
  };
  Times times() const;
};

/// Error: no folder of a run.
Expected<RunHistory> readRunHistory(const std::string &run);

/// Merges the updates of a long run into at most `most` points, each with the mean, least and greatest loss, sums of
/// seconds, samples and tokens, and the last learning rate.
nlohmann::ordered_json runReportJson(const RunHistory &history, size_t most = 1500);
std::string runReportText(const RunHistory &history);
/// One HTML file that needs no network; it includes RUN/samples.png if that exists.
std::string runReportHtml(const RunHistory &history);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_RUNHISTORY_H
