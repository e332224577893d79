//===- AlgorithmRecord.h - the algorithms that a run's library chose -----===//
//
// RUN/algorithms.json, sealed: for each distinct call of the plan the algorithm that the device's library takes. A
// resume takes the same ones, so that its bits are those of an uninterrupted run. Runs on devices that choose nothing
// have none.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H
#define TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H

#include "runtime/Algorithms.h"
#include "support/Status.h"

namespace tcc::runtime {

/// Writes the record; nothing where there are no algorithms.
Status writeAlgorithms(const std::string &run, const Algorithms &algorithms);

/// Empty where the run has no record. Error: damaged or edited.
Expected<Algorithms> readAlgorithms(const std::string &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H
