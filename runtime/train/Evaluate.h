//===- Evaluate.h - loss and accuracy over a whole data set --------------===//
//
// Every sample counts once. A last, shorter batch is padded. If the loss can ignore targets, the padding is ignored.
// Otherwise the last sample is repeated, and its known share is subtracted again: with r samples and B slots, the sums
// of [r samples, B - r copies] minus (B - r)/B of the sums of [B copies]. That is exact up to rounding for every loss
// that is a sum over samples, or their mean; evaluation runs in inference mode, so samples do not affect each other.
//
// With several ranks, each evaluates every size()-th batch. The sums of each batch are sent to all ranks, which add
// them in the order of the batches: every rank has the bits of a single one.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_EVALUATE_H
#define TCC_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/data/BatchReader.h"
#include "runtime/parallel/Communicator.h"
#include "runtime/train/EntryRunner.h"
#include "runtime/train/JoinedOutputs.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Session.h"

#include <functional>

namespace tcc::runtime {

struct EvaluateOptions {
  std::vector<std::string> metrics; ///< evaluate.metrics
  std::string lossKind;
  std::optional<int64_t> ignoreIndex; ///< the target that does not count
  std::vector<std::pair<std::string, double>> losses = {}; ///< name and scale of each, if there are several
  /// Called before each batch with the number of samples done; false ends the evaluation.
  std::function<bool(uint64_t done)> goesOn = nullptr;
  bool confusion = false; ///< count the pairs of classes as well
  Communicator *ranks = nullptr; ///< the ranks that evaluate together; if one ends the evaluation, all do
};
/// The options of the session; goesOn is not set.
EvaluateOptions evaluateOptionsOf(const Session &session);

/// True if the loss treats the prediction as scores of classes.
bool predictsClasses(const Session &session);

/// The keys that an evaluation of the session has in metrics.jsonl, including those of averages, if it keeps any.
std::vector<std::string> evaluationKeys(const Session &session);

/// Runs the entry over all samples.
Expected<Evaluation> evaluate(EntryRunner &runner, BatchReader &reader, const EvaluateOptions &options);
/// The same in several shapes: each sample in the smallest that holds it. `runners`: as data.readers.
Expected<Evaluation> evaluate(std::span<EntryRunner> runners, const EntryData &data, const EvaluateOptions &options);

/// Arrays for predict() of these samples: every graph output, with one entry per sample on its sample axis. Error: an
/// output has no sample axis, and there is more than one batch.
Expected<JoinedOutputs> predictedOutputs(const EntryRunner &runner, const BatchReader &reader);

/// Runs the entry over all samples, and gives the values of `outputs`.
Status predict(EntryRunner &runner, BatchReader &reader, JoinedOutputs &outputs);

/// Writes the outputs of all samples to a file, each from the smallest of the entry's shapes that holds it; where an
/// output has no axis of samples, all from the smallest that holds all of them. `runners`: as data.readers; `classes`:
/// as writeArrays.
Status writePredictions(std::span<EntryRunner> runners, const EntryData &data, const std::string &outputPath,
                        ArrayFormat format = ArrayFormat::Safetensors, const std::vector<std::string> &classes = {});

/// Runs `gradients` on exactly one batch and writes loss and gradients ("gradient:X" as X).
Status writeGradients(EntryRunner &runner, BatchReader &reader, const std::string &outputPath,
               ArrayFormat format = ArrayFormat::Safetensors);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_EVALUATE_H
