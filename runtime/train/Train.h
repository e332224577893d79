//===- Train.h - the training loop ---------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAIN_H
#define TCC_RUNTIME_TRAIN_TRAIN_H

#include "runtime/train/Session.h"

#include <cstdio>
#include <functional>

namespace tcc::runtime {

struct TrainOptions {
  std::string data, evalData;
  std::optional<uint64_t> steps, epochs; ///< totals, a resumed part included; neither: one epoch
  std::string out, resume, init;
  bool initPartial = false;    ///< --init may lack weights, or have others
  std::optional<bool> shuffle; ///< default: yes, or as the resumed run
  std::optional<uint64_t> seed;
  std::vector<std::string> settings; ///< already applied to the session; kept in the checkpoints
  uint64_t evalEvery = 0, logEvery = 0;    ///< updates; 0: at the end, by itself
  std::optional<uint64_t> checkpointEvery; ///< updates, besides the clock; 0: neither by updates nor by the clock
  bool release = true;                     ///< write model.onnx at the end
  bool terminal = false;                   ///< messages go to a terminal
  std::FILE *messages = stderr;
  /// The command that goes on from RUN[@STEP], for messages.
  std::function<std::string(const std::string &)> resumeCommand = [](const std::string &run) {
    return "trun … --resume " + run;
  };
};

/// Trains until the steps or epochs are done, a signal (Signals.h), an error or a non-finite loss (exit status 4) ends it.
/// In every case the run folder then holds a checkpoint of the last whole update whose state is finite, and the message
/// says how to go on. After the first update a step allocates nothing.
plan::Status train(Session &session, const TrainOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAIN_H
