//===- Ranks.h - a run of several ranks ----------------------------------===//
//
// Rank 0 writes the run's folder and prints messages; every other rank keeps its own log in the folder.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RANKS_H
#define TCC_RUNTIME_TRAIN_RANKS_H

#include "runtime/train/TrainSetup.h"

namespace tcc::runtime {

/// RUN/ranks/rank-3.log.
std::string rankLog(const std::string &run, uint32_t rank);

/// Compares lines "name=value" that must be equal on all ranks. Error, the same on every rank: the lines that differ
/// from rank 0's, with the ranks' names.
Status compareLines(Communicator &ranks, const std::string &text);

/// Compares data, seed, position and length of the run; openSession compares the rest. Error: as compareLines.
Status compareRanks(const Session &session, const TrainOptions &options, const PreparedRun &run);

/// A text about the first node (of `node` ranks) whose ranks are on several machines; empty: there is none.
std::string dividedNode(const std::vector<std::string> &hosts, uint32_t node);

/// A warning about the placement of the ranks, before the first step, the same on every rank; empty: none.
Expected<std::string> warningOfPlaces(const Session &session);

/// Updates between comparisons of the ranks' state. Reading the state takes as long as a few percent of one update's
/// own memory traffic.
constexpr uint64_t kReplicaCheckUpdates = 64;

/// Compares checksums of the state that must be equal on all ranks: weights, optimizer state, running statistics. The
/// result, the same on every rank: the variables that differ from rank 0's, with the ranks' names; empty if none does.
/// Error: the state could not be read, or a rank has ended. `begins`: this process has run no update yet. `sums` gets
/// this rank's checksums.
Expected<std::string> differencesOfReplicas(const Session &session, uint64_t step, bool begins, VariableSums &sums);

/// Describes the first lines of `texts` (one "name=value" per line) that differ from those of rank 0; empty if all
/// agree.
std::string differencesOf(const std::vector<std::string> &texts, const std::function<std::string(uint32_t)> &nameOf);

/// Copies the parameters of rank 0 to every rank.
Status shareParameters(const Session &session);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RANKS_H
