//===- Trainer.h - the loop of a training run ----------------------------===//
//
// Train.cpp has the loop, TrainEnds.cpp the ways in which a run ends and the files that it leaves. The preparation is
// in TrainSetup.h, one update in UpdateRunner.h.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAINER_H
#define TCC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/train/Checkpointer.h"
#include "runtime/train/Recorder.h"
#include "runtime/train/TrainSetup.h"

namespace tcc::runtime {

class Trainer {
public:
  /// `signals` has been active since before the run's folder was made.
  Trainer(Session &session, const TrainOptions &options, PreparedRun run, SignalWatch &signals, Recorder recorder);
  Status train();
  /// True if the run reached its planned end, not ended by a signal, --max-time or an error.
  bool isComplete() const { return complete; }

private:
  Progress &progress() { return recorder.progress(); }
  /// Prints the data, lengths and memory of the run, for people.
  void report();
  Status steps();
  Status updateOnce(UpdateMetrics &metrics, bool &finite);
  /// The position at which an update began.
  struct Start {
    uint64_t step, epoch, batch;
  };
  /// Records the update once all of its numbers are known: now, or after the next update was submitted.
  void recordUpdate(const UpdateMetrics &metrics, double now, const Start &start);
  /// Waits for the numbers of the update that is not recorded yet, and records it. `isLast`: no update was submitted
  /// after it, so its time lasts until now. Error: the numbers are not finite; training ends with the state before that
  /// update.
  Status completeUpdate(bool isLast);
  /// Warns once that a smaller loss scale cannot prevent skipped updates.
  void warnOfScale(const UpdateMetrics &metrics);
  /// All ranks together; rank 0 keeps the result.
  Status evaluateNow();
  /// Swaps averages and weights, on every rank. If only rank 0 has the averages (on the host), the others copy its
  /// weights.
  Status exchangeAverages();
  /// Evaluates with the weights, or with their averages; afterwards the weights are restored.
  Expected<Evaluation> evaluateWith(bool averages);
  /// True if the last update was the last of its epoch.
  bool endsEpoch() const;
  /// True if --eval-every asks for an evaluation after update `step`.
  bool isEvaluated(uint64_t step) const;
  /// Passes the evaluation after the last update to the plateau schedule, if there is one.
  void hearForRate(uint64_t step, const EvaluationRecord &record);
  /// Copies rank 0's number of reductions to every rank: only rank 0 knows all evaluations of a resumed run.
  Status shareReductions();
  /// Makes the current checkpoint RUN@best if its evaluation is the best.
  Status keepBest(const EvaluationRecord &record);
  /// True if a signal or --max-time asks for an end after the update.
  bool endRequested() const;
  /// Compares the state of all ranks, at most once per update. Error: a rank's state differs from rank 0's.
  Status checkReplicas();
  /// True if a checkpoint is due after this update, as rank 0 decides: the ranks compare its state, and with shards all
  /// write it. `asked` (by SIGUSR1) is set on every rank to rank 0's value.
  Expected<bool> checkpointIsDue(bool evaluating, bool &asked);
  /// The reasons for which this rank would end training now: bits kEndRequested, kStopped.
  uint64_t ownEnds() const { return (endRequested() ? kEndRequested : 0) | (isStopped() ? kStopped : 0); }
  /// True if this rank writes checkpoints, or its part of them.
  bool writesCheckpoints() const { return session.computes() && (session.leads() || session.isSharded()); }
  /// True if all ranks agree that another update follows; otherwise `ending` has the reasons.
  Expected<bool> goesOn();
  /// True if evaluate.stop ends training.
  bool isStopped() const { return run.stop && run.stop->isDue(); }
  /// Begins a checkpoint between updates; with `wait`, completes it.
  Status checkpointOrWarn(bool wait);
  /// Turns a failure to write a checkpoint into a warning, printed once; state that is not finite stays an error.
  Status warnOf(const Status &status);
  /// The checkpoint that an end needs. Error: it could not be written.
  Status checkpointAtEnd();
  /// The same, on all ranks together. Error also if the ranks' state differs; then no checkpoint is written.
  Status comparedCheckpointAtEnd();
  /// A message about the last checkpoint after an error or a signal, and how to resume.
  std::string kept() const;
  Status stopNonFinite(const UpdateMetrics &metrics);
  /// The cause of an update that is not finite, from the rank where it came first; `where` names the rank if there are
  /// several.
  UpdateRunner::Cause causeOnAnyRank(std::string &where);
  /// After an error between or in updates: writes a checkpoint of the last whole update, if its state still exists.
  Status stopOnError(const Status &problem);
  Status stopOnRequest();
  /// The planned end of the run.
  Status finish();
  /// Writes the trained model.
  Status release();
  /// Writes --trace. Error: the file cannot be written.
  Status writeTrace();

  Session &session;
  const TrainOptions &options;
  PreparedRun run;
  SignalWatch &signals;
  Recorder recorder;
  std::optional<Trace> trace;
  Trace::Track *track = nullptr; ///< of this thread
  Checkpointer checkpoints;
  double begun = monotonicSeconds();
  std::optional<uint64_t> evaluated; ///< the last update that was evaluated
  /// An update whose gradient norm is not known yet.
  struct Awaited {
    UpdateMetrics metrics;
    Start start;
    double now;
  };
  std::optional<Awaited> awaited;
  static constexpr uint64_t kEndRequested = 1, kStopped = 2;
  uint64_t ending = 0; ///< these bits, of any rank
  std::optional<uint64_t> agreedEnds; ///< these bits, if all ranks already agreed on them for the next update
  bool diverged = false;              ///< the ranks' state differs, so no checkpoint is written
  std::optional<uint64_t> compared;   ///< the last update after which all ranks held the same state
  VariableSums comparedSums;          ///< of that state; empty once it may have changed
  bool complete = false;
  bool scaleTold = false;            ///< warnOfScale has printed its warning
  bool warned = false;               ///< a warning was printed that the last checkpoint could not be written
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAINER_H
