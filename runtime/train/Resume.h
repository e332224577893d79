//===- Resume.h - compare a resumed run with its checkpoint ---------------===//
//
// Every checkpoint records the settings, the data and the plan of its run. A resume compares them with its own. A
// difference that would change the meaning of the state is an error; every other difference is reported.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RESUME_H
#define TCC_RUNTIME_TRAIN_RESUME_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/Session.h"

namespace tcc::runtime {

/// The record of a session: settings after --set, and the compiled ones of the recipe.
RunRecord makeRunRecord(const Session &session);

/// The record of training data for `ranks` ranks; reads a few samples, evenly spread.
DataRecord makeDataRecord(const EntryData &data, uint64_t epochSamples, uint64_t epochBatches, uint64_t ranks = 1);

/// Differences that a resume accepts, one message each; `position.batch` is converted if the batch size or the number
/// of samples differs. Errors, with advice: another optimizer or loss, other frozen values, another seed, an epoch that
/// cannot be continued with the new batch size. `run` is for messages.
Expected<std::vector<Message>> compareWithRun(const RunReference &run, const Manifest &stored,
                                                        const RunRecord &now, TrainingPosition &position);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RESUME_H
