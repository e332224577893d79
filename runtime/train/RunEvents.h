//===- RunEvents.h - the events of a training run --------------------------===//
//
// A run prints nothing. It reports its progress to one listener of the program (TrainOptions::events) as data, not as
// texts, except for messages. RunText.h formats the events for `trun` and RUN/log.txt.
//
// Calls come one at a time, on the thread of the run, in this order:
//
//   scanning…  scanned  message…  opening  message…  begins
//   { update  evaluating…  evaluated  checkpoint  message }…  ends
//
// except that message() may come from any thread at any time after opening(). A listener must not call the run's
// session.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNEVENTS_H
#define TCC_RUNTIME_TRAIN_RUNEVENTS_H

#include "runtime/train/Metrics.h"
#include "support/Message.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tcc::runtime {

/// What is trained, on what, and what memory it takes.
struct RunFacts {
  std::string model;
  std::string folder; ///< empty: the run keeps no files
  uint64_t samples = 0;
  std::vector<uint64_t> batches;        ///< samples of a batch, by the plan's shapes
  uint64_t window = 1;                  ///< micro-batches of an update
  uint64_t ranks = 1, virtualRanks = 0; ///< processes; virtual ranks, if the plan has some
  uint64_t totalSteps = 0, doneSteps = 0;
  bool resumed = false, shuffle = true;
  uint64_t seed = 0;
  uint64_t vocabulary = 0, classes = 0; ///< of the data; 0: it has none
  std::vector<std::pair<std::string, uint64_t>> categories; ///< by column
  std::vector<std::string> selected; ///< what was chosen of the plan and the machine: target, variant, workers
  // Bytes.
  uint64_t resident = 0, transient = 0; ///< of the device
  std::optional<uint64_t> libraries;    ///< of libraries on the device, where the plan does not have them
  uint64_t data = 0, plan = 0, averages = 0, staging = 0; ///< of the host; the plan is mapped
  uint64_t kept = 0;                                      ///< of the host: what the plan keeps there for the device
  unsigned workers = 1;
};

/// An evaluation after update `step`.
struct EvaluatedStep {
  uint64_t step = 0, totalSteps = 0, epoch = 0;
  const EvaluationRecord &record;
  double seconds = 0;
};

/// A checkpoint that is durable.
struct WrittenCheckpoint {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;        ///< of its files
  double waitedSeconds = 0;  ///< for which training waited
  double writingSeconds = 0; ///< from the start until it was durable
};

/// How a run ended.
struct RunEnd {
  enum class Kind {
    Done,    ///< all updates were made
    Early,   ///< evaluate.stop
    Stopped, ///< RunControl::stop, or the time is up
    Failed,  ///< the run returns the error
  } kind = Kind::Done;
  uint64_t step = 0;
  std::string reason; ///< of Early and Stopped: "SIGTERM"; of Failed: the error's text
  std::string kept;   ///< of Stopped: where the state is, and how to go on
  double seconds = 0, waitedForData = 0;
};

class RunEvents {
public:
  virtual ~RunEvents() = default;
  virtual void message(const Message &) {}
  /// Files of a data set are read for the first time: files done, all files, samples so far.
  virtual void scanning(uint64_t /*done*/, uint64_t /*files*/, uint64_t /*samples*/) {}
  virtual void scanned() {}
  /// The run's folder is about to be made. From now on the process should end the run by RunControl::stop, because
  /// files are written.
  virtual void opening() {}
  virtual void begins(const RunFacts &) {}
  virtual void update(const UpdateMetrics &) {}
  virtual void evaluating(uint64_t /*done*/, uint64_t /*samples*/) {}
  virtual void evaluated(const EvaluatedStep &) {}
  virtual void checkpoint(const WrittenCheckpoint &) {}
  virtual void ends(const RunEnd &) {}
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNEVENTS_H
