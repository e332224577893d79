//===- Trainer.h - the loop of a training run ----------------------------===//
//
// Train.cpp has the loop, the ways in which a run ends, and the files that it leaves. TrainSetup.h prepares the run,
// UpdateRunner.h runs one update, RankAgreement.h makes ranks agree on decisions. The run's events go to its recorder,
// which forwards them to the listener (RunEvents.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAINER_H
#define TCC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/train/Checkpointer.h"
#include "runtime/train/RankAgreement.h"
#include "runtime/train/Recorder.h"
#include "runtime/train/TrainSetup.h"

namespace tcc::runtime {

class Trainer {
public:
  Trainer(Session &session, const TrainOptions &options, PreparedRun run, RunControl &control, Recorder recorder);
  Status train();
  RunResult result() const { return {complete, run.position}; }

private:
  RunFacts facts() const;
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
  /// True if TrainOptions::evalEvery asks for an evaluation after update `step`.
  bool isEvaluated(uint64_t step) const;
  /// Passes the evaluation after the last update to the plateau schedule, if there is one.
  void hearForRate(uint64_t step, const EvaluationRecord &record);
  /// Copies rank 0's number of reductions to every rank: only rank 0 knows all evaluations of a resumed run.
  Status shareReductions();
  /// Makes the current checkpoint RUN@best if its evaluation is the best.
  Status keepBest(const EvaluationRecord &record);
  /// True if a request or the time asks for an end after the update.
  bool endRequested() const;
  Status checkReplicas() { return ranks.compareState(run.position.step, track); }
  /// The reasons for which this rank would end training now.
  EndReasons ownEnds() const { return {endRequested(), isStopped()}; }
  /// True if this rank writes checkpoints, or its part of them.
  bool writesCheckpoints() const {
    return options.keepsFiles && session.computes() && (session.leads() || session.isSharded());
  }
  /// True if all ranks agree that another update follows; otherwise `ending` has the reasons.
  Expected<bool> goesOn();
  /// True if evaluate.stop ends training.
  bool isStopped() const { return run.stop && run.stop->isDue(); }
  /// Begins a checkpoint between updates; with `wait`, completes it.
  Status checkpointOrWarn(bool wait);
  /// Turns a failure to write a checkpoint into a warning, given once; state that is not finite stays an error.
  Status warnOf(const Status &status);
  /// The checkpoint that an end needs. Error: it could not be written.
  Status checkpointAtEnd();
  /// The same, on all ranks together. Error also if the ranks' state differs; then no checkpoint is written.
  Status comparedCheckpointAtEnd();
  /// A message about the last checkpoint after an error or a request, and how to resume.
  std::string kept() const;
  Status stopNonFinite(const UpdateMetrics &metrics);
  /// The cause of an update that is not finite, on the rank where it came first.
  UpdateRunner::Cause causeOnAnyRank(std::string &where);
  /// After an error between or in updates: writes a checkpoint of the last whole update, if its state still exists.
  Status stopOnError(const Status &problem);
  Status stopOnRequest();
  /// The planned end of the run.
  Status finish();
  /// Writes the trained model.
  Status release();
  /// Writes TrainOptions::trace. Error: the file cannot be written.
  Status writeTrace();
  /// Reports how the run ended to the recorder.
  void tellEnd(RunEnd::Kind kind, std::string reason = {}, std::string kept = {});

  Session &session;
  const TrainOptions &options;
  PreparedRun run;
  RunControl &control;
  Recorder recorder;
  RankAgreement ranks;
  std::optional<Trace> trace;
  Trace::Track *track = nullptr; ///< of this thread
  Checkpointer checkpoints;
  double begun = monotonicSeconds(), loopBegun = begun;
  std::optional<uint64_t> evaluated; ///< the last update that was evaluated
  /// An update whose gradient norm is not known yet.
  struct Awaited {
    UpdateMetrics metrics;
    Start start;
    double now;
  };
  std::optional<Awaited> awaited;
  EndReasons ending; ///< of any rank
  bool complete = false; ///< the planned end was reached, not one by a request, the time or an error
  bool scaleTold = false; ///< warnOfScale has given its warning
  bool warned = false;    ///< a warning was given that the last checkpoint could not be written
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAINER_H
