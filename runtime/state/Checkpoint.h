//===- Checkpoint.h - a run's state on the disk --------------------------===//
//
// A run folder holds `checkpoints/step-N/` with `state.safetensors` (every variable that training changes) and
// `manifest.json` (where training stood, and the files' checksums). A checkpoint is written beside its place and
// renamed: it is there whole, or not at all.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_CHECKPOINT_H
#define TCC_RUNTIME_STATE_CHECKPOINT_H

#include "runtime/Device.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Where training stands between two updates.
struct TrainingPosition {
  uint64_t step = 0;  ///< updates done
  uint64_t epoch = 0; ///< the epoch that the next batch belongs to, from 0
  uint64_t batch = 0; ///< micro-batches of that epoch that are done
  uint64_t seed = 0;
  bool shuffle = true;
  double scheduleTotal = 0;          ///< the schedule's total_steps, fixed when the run started (in its own unit)
  std::vector<std::string> settings; ///< --set KEY=VALUE of the run
  uint64_t bestStep = 0;             ///< 0: no evaluation yet
  double bestLoss = 0;
};

/// "RUN", "RUN@120", "RUN@last", "RUN@best".
struct RunReference {
  std::string run, selector = "last";
};
RunReference parseRunReference(const std::string &text);

/// The folder of the checkpoint, e.g. "RUN/checkpoints/step-120". Error: no such run or checkpoint; those that are
/// there are listed.
plan::Expected<std::string> findCheckpoint(const RunReference &reference);

/// Steps of the run's checkpoints, ascending.
std::vector<uint64_t> checkpointSteps(const std::string &run);

/// Writes RUN/checkpoints/step-N and makes it the run's last; a `best` one becomes what RUN@best means.
plan::Status writeCheckpoint(const std::string &run, const plan::Plan &plan, Device &device,
                             const TrainingPosition &position);
plan::Status markBest(const std::string &run, uint64_t step, double loss);

/// Reads the manifest. Error: missing or damaged.
plan::Expected<TrainingPosition> readPosition(const std::string &checkpoint);

/// Copies the state into the device's variables after checking names, types and checksum.
plan::Status loadCheckpoint(const std::string &checkpoint, const plan::Plan &plan, Device &device,
                            bool modelValuesOnly = false);

/// The state file of a checkpoint.
std::string stateFileOf(const std::string &checkpoint);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINT_H
