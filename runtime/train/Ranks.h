//===- Ranks.h - a run of several ranks ----------------------------------===//
//
// Rank 0 writes the run's folder and speaks to people; every other rank keeps a log of its own in it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RANKS_H
#define TCC_RUNTIME_TRAIN_RANKS_H

#include "runtime/train/TrainSetup.h"

namespace tcc::runtime {

/// RUN/ranks/rank-3.log.
std::string rankLog(const std::string &run, uint32_t rank);

/// Compares lines "name=value" that all ranks must have alike. Error, the same on every rank: what differs from rank 0,
/// with the ranks' names.
Status compareLines(Communicator &ranks, const std::string &text);

/// Compares what openSession has not compared: data, seed, position and length. Error: as compareLines.
Status compareRanks(const Session &session, const TrainOptions &options, const PreparedRun &run);

/// In words, the first of the nodes of `node` ranks whose ranks are on several machines; empty: there is none.
std::string dividedNode(const std::vector<std::string> &hosts, uint32_t node);

/// What people should know of the ranks' places before the first step, the same on every rank; empty: nothing.
Expected<std::string> warningOfPlaces(const Session &session);

/// Updates between comparisons of the ranks' state. Reading it takes as long as a few percent of an update's own
/// traffic.
constexpr uint64_t kReplicaCheckUpdates = 64;

/// Compares checksums of the state that all ranks hold alike: weights, optimizer state, running statistics. The result,
/// the same on every rank: the variables that differ from rank 0's, with the ranks' names; empty where none does.
/// Error: the state could not be read, or a rank has ended. `begins`: no update of this process came before. `sums`
/// gets this rank's checksums.
Expected<std::string> differencesOfReplicas(const Session &session, uint64_t step, bool begins, VariableSums &sums);

/// The first lines of `texts` ("name=value", one a line) that differ from those of rank 0, in words; empty where all
/// agree.
std::string differencesOf(const std::vector<std::string> &texts, const std::function<std::string(uint32_t)> &nameOf);

/// The parameters of rank 0 become those of every rank.
Status shareParameters(const Session &session);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RANKS_H
