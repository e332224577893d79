//===- Evaluate.h - loss and accuracy over a whole data set --------------===//
//
// Every sample counts once. A last, shorter batch is padded: where the loss can leave targets out, padding is left out.
// Else the last sample stands in for it, and its known share is subtracted again: with r samples and B slots, the sums
// of [r samples, B - r copies] minus (B - r)/B of the sums of [B copies]. That is exact up to rounding for every loss
// that is a sum over samples, or their mean; evaluation runs in inference mode, so samples do not see each other.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_EVALUATE_H
#define TCC_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/data/BatchReader.h"
#include "runtime/train/EntryRunner.h"

#include <functional>

namespace tcc::runtime {

struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy; ///< of counted targets, where the loss is a classification
  uint64_t samples = 0;
  bool complete = true; ///< false: `stop` ended it, and the numbers mean nothing
};

/// Runs the entry over all samples in order; asks `stop`, if there is one, before each batch.
plan::Expected<Evaluation> evaluate(EntryRunner &runner, BatchReader &reader,
                                    const std::function<bool()> &stop = nullptr);

/// Runs `predict` over all samples and writes every graph output; the sample axis of outputs holds all samples.
plan::Status predict(EntryRunner &runner, BatchReader &reader, const std::string &outputPath);

/// Runs `gradients` on exactly one batch and writes loss and gradients ("gradient:X" as X).
plan::Status writeGradients(EntryRunner &runner, BatchReader &reader, const std::string &outputPath);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_EVALUATE_H
