//===- AlgorithmRecord.h - the algorithms that a run's library chose -----===//
//
// RUN/algorithms.json, sealed: the algorithm that the device's library chose for each distinct call of the plan. A
// resume uses the same ones, so that its bits are those of an uninterrupted run. A run on a device that does not choose
// has no such file.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H
#define TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H

#include "runtime/Algorithms.h"
#include "support/Status.h"

namespace tcc::runtime {

/// Writes the record, if there are algorithms.
Status writeAlgorithms(const std::string &run, const Algorithms &algorithms);

/// Empty if the run has no record. Error: damaged or edited.
Expected<Algorithms> readAlgorithms(const std::string &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_ALGORITHMRECORD_H
