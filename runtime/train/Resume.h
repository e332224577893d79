//===- Resume.h - compare a resumed run with its checkpoint ---------------===//
//
// Every checkpoint records the settings, the data and the plan of its run. A resume compares them with its own: state
// that would mean something else is refused, everything else that differs is named.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RESUME_H
#define TCC_RUNTIME_TRAIN_RESUME_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/Session.h"

namespace tcc::runtime {

/// The record of a session: settings as they hold after --set, beside the recipe's compiled ones.
RunRecord makeRunRecord(const Session &session);

/// The record of training data for so many ranks; reads a few samples, evenly spread.
DataRecord makeDataRecord(const EntryData &data, uint64_t epochSamples, uint64_t epochBatches, uint64_t ranks = 1);

/// Differences that a resume goes on with, one message each; `position.batch` is converted where the batch size or the
/// number of samples differs. Errors, with a way out: another optimizer or loss, other frozen values, another seed, an
/// epoch that cannot go on with the new batch size. `run` is for messages.
Expected<std::vector<std::string>> compareWithRun(const RunReference &run, const Manifest &stored,
                                                        const RunRecord &now, TrainingPosition &position);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RESUME_H
