//===- Evaluate.h - loss and accuracy over a whole data set --------------===//
//
// Every sample counts once. A last, shorter batch is padded: where the loss can leave targets out, padding is left out.
// Else the last sample stands in for it, and its known share is subtracted again: with r samples and B slots, the sums
// of [r samples, B - r copies] minus (B - r)/B of the sums of [B copies]. That is exact up to rounding for every loss
// that is a sum over samples, or their mean; evaluation runs in inference mode, so samples do not see each other.
//
// Of several ranks each takes every size()-th batch. The sums of each batch come to all ranks, which add them in the
// order of the batches: every rank has the bits of one rank.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_EVALUATE_H
#define TCC_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/data/BatchReader.h"
#include "runtime/parallel/Communicator.h"
#include "runtime/state/ArrayFiles.h"
#include "runtime/train/EntryRunner.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Session.h"

#include <functional>

namespace tcc::runtime {

struct EvaluateOptions {
  std::vector<std::string> metrics; ///< evaluate.metrics
  std::string lossKind;
  std::optional<int64_t> ignoreIndex; ///< the target that does not count
  std::vector<std::pair<std::string, double>> losses = {}; ///< of several: name and scale
  /// Asked before each batch, with the samples that are done; false ends the evaluation.
  std::function<bool(uint64_t done)> goesOn = nullptr;
  bool confusion = false; ///< count the pairs of classes as well
  Communicator *ranks = nullptr; ///< that evaluate together; an end on one rank is one on all
};
/// The settings of the session; nobody ends the evaluation.
EvaluateOptions evaluateOptionsOf(const Session &session);

/// True if the loss takes the prediction for scores of classes.
bool predictsClasses(const Session &session);

/// The keys of metrics.jsonl that an evaluation of the session has; with those of averages, if it keeps any.
std::vector<std::string> evaluationKeys(const Session &session);

/// Runs the entry over all samples.
Expected<Evaluation> evaluate(EntryRunner &runner, BatchReader &reader, const EvaluateOptions &options);

/// Runs `predict` over all samples and writes every graph output; the sample axis of outputs holds all samples.
/// `classes`: as writeArrays.
Status predict(EntryRunner &runner, BatchReader &reader, const std::string &outputPath,
               ArrayFormat format = ArrayFormat::Safetensors, const std::vector<std::string> &classes = {});

/// Runs `gradients` on exactly one batch and writes loss and gradients ("gradient:X" as X).
Status writeGradients(EntryRunner &runner, BatchReader &reader, const std::string &outputPath,
               ArrayFormat format = ArrayFormat::Safetensors);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_EVALUATE_H
