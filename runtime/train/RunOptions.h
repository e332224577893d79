//===- RunOptions.h - the options that a run was started with ------------===//
//
// RUN/run.json: the options that `trun --resume RUN` needs besides the checkpoint and the run's plan. It is written
// when a run starts and when it is resumed, so it holds the current options. Settings (--set), seed and order are in
// the checkpoints.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNOPTIONS_H
#define TCC_RUNTIME_TRAIN_RUNOPTIONS_H

#include "support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// When a run evaluates, in addition to its end.
struct EvaluationInterval {
  uint64_t updates = 0; ///< between two; 0: never
  bool epoch = false;   ///< at each epoch's end instead

  EvaluationInterval() = default;
  EvaluationInterval(uint64_t updates) : updates(updates) {} // NOLINT: a number is an interval
  static EvaluationInterval epochs();
  bool operator==(const EvaluationInterval &) const = default;
  bool any() const { return epoch || updates != 0; }
  /// "epoch", "100".
  std::string text() const;
};

/// Options as given; one that is empty was not given.
struct RunOptions {
  std::string data, evalData;            ///< absolute paths once they are written to run.json
  std::optional<uint64_t> steps, epochs; ///< one of them, or neither
  std::optional<EvaluationInterval> evalEvery;
  std::optional<uint64_t> checkpointEvery, logEvery;            ///< updates
  std::optional<bool> release;                                  ///< write model.onnx at the end
  double maxSeconds = 0;                                        ///< after which the run ends; 0: never
  std::string target, device;
  unsigned threads = 0;
  uint64_t budgetBytes = 0;
  unsigned processes = 0; ///< ranks on this machine; 0: not given, one

  bool evaluatesOften() const { return evalEvery && evalEvery->any(); }
};

/// Fills options that `given` lacks from those of the run.
void fillFrom(RunOptions &given, const RunOptions &run);

/// The options that are given, by their key in run.json, with their values as text: {"data", "/data/cifar"}.
std::vector<std::pair<std::string, std::string>> givenOptions(const RunOptions &options);

Status writeRunOptions(const std::string &run, const RunOptions &options);

/// Nothing if the run has no such file because an earlier version wrote it. Error: damaged or edited.
Expected<std::optional<RunOptions>> readRunOptions(const std::string &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNOPTIONS_H
