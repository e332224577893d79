//===- RunOptions.h - the options that a run was started with ------------===//
//
// RUN/run.json: what `trun --resume RUN` needs besides the checkpoint and the run's own plan. It is written when a run
// starts and when it goes on, so that it holds the options in force. Settings (--set), seed and order are in the
// checkpoints.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNOPTIONS_H
#define TCC_RUNTIME_TRAIN_RUNOPTIONS_H

#include "support/Status.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tcc::runtime {

/// Options as given; an empty one was not.
struct RunOptions {
  std::string data, evalData;            ///< absolute once they are kept
  std::optional<uint64_t> steps, epochs; ///< one of them, or neither
  std::optional<uint64_t> evalEvery, checkpointEvery, logEvery; ///< updates
  std::optional<bool> release;                                  ///< write model.onnx at the end
  double maxSeconds = 0;                                        ///< --max-time
  std::string target, device;
  unsigned threads = 0;
  uint64_t budgetBytes = 0;
  unsigned processes = 0; ///< --nproc; 0: not given, one
};

/// These options, where `given` has none in their place.
void fillFrom(RunOptions &given, const RunOptions &run);

/// As they would be typed: "--data /data/cifar --steps 100".
std::string optionsText(const RunOptions &options);

Status writeRunOptions(const std::string &run, const RunOptions &options);

/// Nothing where the run has no such file: an earlier version wrote it. Error: damaged or edited.
Expected<std::optional<RunOptions>> readRunOptions(const std::string &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNOPTIONS_H
