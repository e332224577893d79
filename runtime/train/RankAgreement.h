//===- RankAgreement.h - decisions on which all ranks agree ----------------===//
//
// All ranks make the same updates, evaluations and checkpoints in the same order, but only one rank knows of a signal,
// a clock or an evaluation. These functions make each such fact known to all ranks, at the same place of the loop. A
// single rank returns its own answer without communication.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RANKAGREEMENT_H
#define TCC_RUNTIME_TRAIN_RANKAGREEMENT_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/UpdateRunner.h"

namespace tcc::runtime {

/// Why training ends before its last update.
struct EndReasons {
  bool requested = false; ///< somebody asked for it, or the time is up
  bool early = false;     ///< evaluate.stop
  bool any() const { return requested || early; }
  bool operator==(const EndReasons &) const = default;
};

class RankAgreement {
public:
  explicit RankAgreement(const Session &session) : session(session) {}

  /// The reasons of all ranks, before an update. `own`: this rank's.
  Expected<EndReasons> ends(EndReasons own);
  /// True on all ranks if `own` is on rank 0.
  Expected<bool> asFirst(bool own);
  /// The number that rank 0 has.
  Expected<uint64_t> numberOfFirst(uint64_t own);

  /// A checkpoint that is due, and whether somebody asked for it.
  struct Checkpoint {
    bool due = false, asked = false;
  };
  /// Rank 0's answer after an update, on all ranks; the reasons to end are agreed on at the same time.
  Expected<Checkpoint> checkpoint(Checkpoint own, EndReasons ownEnds);

  /// Called when the state changes: the result of the last comparison no longer applies.
  void stateChanges() { sums.clear(); }
  /// Compares the state of all ranks after update `step`, at most once per update. Error: a rank's state differs from
  /// rank 0's.
  Status compareState(uint64_t step, Trace::Track *track);
  /// True if compareState found a difference: then no checkpoint is written.
  bool diverged() const { return differs; }
  /// The last update after which all ranks held the same state, and that state's checksums by variable, empty once it
  /// may have changed.
  std::optional<uint64_t> comparedStep() const { return compared; }
  const VariableSums &comparedSums() const { return sums; }

  /// The cause of an update that is not finite, from the rank where it came first; `own`: this rank's. `where` names
  /// the rank if there are several.
  UpdateRunner::Cause firstCause(const UpdateRunner::Cause &own, std::string &where);

private:
  const Session &session;
  std::optional<EndReasons> agreed; ///< for the next update, if all ranks have them already
  bool differs = false;
  std::optional<uint64_t> compared;
  VariableSums sums;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RANKAGREEMENT_H
