//===- LrFind.h - search for a learning rate ------------------------------===//
//
// The range test of Smith (arXiv:1506.01186), as in fastai: the learning rate grows by a constant factor at each
// update, and the loss is recorded. Nothing is written to disk; the weights change only in memory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_LRFIND_H
#define TCC_RUNTIME_TRAIN_LRFIND_H

#include "runtime/train/Session.h"

namespace tcc::runtime {

struct LrFindOptions {
  std::string data, init;
  uint64_t steps = 100; ///< at least 2
  double start = 1e-7, end = 10;
  MessageSink note = {}; ///< called with notes for the user
};

struct LrPoint {
  double rate, loss;
  double smoothed; ///< moving average of the losses, 0.98 of the one before, as Adam's first moment starts
};

struct LrFindResult {
  std::vector<LrPoint> points;
  bool diverged = false; ///< it ended early: the smoothed loss was four times its least, or not finite
  double steepest = 0;   ///< the rate of the steepest fall of the smoothed loss over the rate's logarithm; 0: no fall
  double tenthOfLeast = 0; ///< a tenth of the rate with the least smoothed loss
};

/// The settings that make a session's rate grow from `start` to `end`; they must follow the user's settings.
std::vector<std::string> lrFindSettings(const LrFindOptions &options);

/// Runs the updates of a session that was opened with these settings.
Expected<LrFindResult> findLearningRate(Session &session, const LrFindOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_LRFIND_H
