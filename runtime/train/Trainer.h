//===- Trainer.h - the loop of a training run ----------------------------===//
//
// Train.cpp is the loop, TrainEnds.cpp how it ends and what it leaves. What comes before the first update is in
// TrainSetup.h, one update in UpdateRunner.h.
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
  /// `signals` watches from before the run's folder was made.
  Trainer(Session &session, const TrainOptions &options, PreparedRun run, SignalWatch &signals, Recorder recorder);
  Status train();
  /// The run came to its own end: neither a signal, nor --max-time, nor an error ended it.
  bool isComplete() const { return complete; }

private:
  Progress &progress() { return recorder.progress(); }
  /// Prints the data, lengths and memory of the run, for people.
  void report();
  Status steps();
  Status updateOnce(UpdateMetrics &metrics, bool &finite);
  /// The position that an update began from.
  struct Start {
    uint64_t step, epoch, batch;
  };
  /// Records the update, once all of its numbers are there: now, or after the next update was submitted.
  void recordUpdate(const UpdateMetrics &metrics, double now, const Start &start);
  /// Waits for the numbers of the update that is not recorded yet, and records it; `isLast`: no update was submitted
  /// after it, so its seconds last until now. Error: the numbers are not finite; training has ended before that update.
  Status completeUpdate(bool isLast);
  /// Tells once that a skipped update cannot be helped by a smaller loss scale.
  void warnOfScale(const UpdateMetrics &metrics);
  /// All ranks together; rank 0 keeps the result.
  Status evaluateNow();
  /// Averages and weights change places, on every rank. Those of the host are rank 0's alone: the others take its
  /// weights.
  Status exchangeAverages();
  /// With the weights, or with their averages; the weights are back afterwards.
  Expected<Evaluation> evaluateWith(bool averages);
  /// An evaluation is due after the last update, by --eval-every.
  /// The last update was the last of its epoch.
  bool endsEpoch() const;
  bool isEvaluated(uint64_t step) const;
  /// A rate on a plateau hears of the evaluation of the last update.
  void hearForRate(uint64_t step, const EvaluationRecord &record);
  /// Every rank takes the number of reductions of rank 0, which alone knows all evaluations of a run that goes on.
  Status shareReductions();
  /// Makes the present checkpoint RUN@best if its evaluation is.
  Status keepBest(const EvaluationRecord &record);
  /// A signal, or --max-time, asks for an end after the update.
  bool endRequested() const;
  /// All ranks together; once for each update. Error: the state of a rank is not that of rank 0.
  Status checkReplicas();
  /// A checkpoint is due after this update, as rank 0 says: the ranks compare its state, and with shards all write it.
  /// `asked` becomes true on every rank.
  Expected<bool> checkpointIsDue(bool evaluating, bool &asked);
  /// What ends training now, on this rank: kEndRequested, kStopped.
  uint64_t ownEnds() const { return (endRequested() ? kEndRequested : 0) | (isStopped() ? kStopped : 0); }
  /// This rank writes checkpoints, or its part of them.
  bool writesCheckpoints() const { return session.computes() && (session.leads() || session.isSharded()); }
  /// Another update follows, as all ranks agree; else `ending` says why not.
  Expected<bool> goesOn();
  /// evaluate.stop ends training.
  bool isStopped() const { return run.stop && run.stop->isDue(); }
  /// Begins a checkpoint between updates; with `wait` it is complete afterwards.
  Status checkpointOrWarn(bool wait);
  /// A checkpoint that could not be written is told once, and training goes on; state that is not finite ends it.
  Status warnOf(const Status &status);
  /// The checkpoint that an end needs. Error: it could not be written.
  Status checkpointAtEnd();
  /// The same, on all ranks together. Error, too: the ranks' state differs, so there is none.
  Status comparedCheckpointAtEnd();
  /// What an error or a signal leaves, and how to go on.
  std::string kept() const;
  Status stopNonFinite(const UpdateMetrics &metrics);
  /// What made the update not finite, on the first rank that knows; `where` names it if there are several.
  UpdateRunner::Cause causeOnAnyRank(std::string &where);
  /// After an error between or in updates: keeps the last whole update, if its state can still be had.
  Status stopOnError(const Status &problem);
  Status stopOnRequest();
  /// The end that was asked for.
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
  std::optional<uint64_t> evaluated; ///< the last update that was
  /// An update whose norm is still to come.
  struct Awaited {
    UpdateMetrics metrics;
    Start start;
    double now;
  };
  std::optional<Awaited> awaited;
  static constexpr uint64_t kEndRequested = 1, kStopped = 2;
  uint64_t ending = 0; ///< bits of those, of any rank
  std::optional<uint64_t> agreedEnds; ///< of any rank, before the next update: agreed on already
  bool diverged = false;              ///< ranks hold different state: none of it is worth a checkpoint
  std::optional<uint64_t> compared;   ///< the last update after which all ranks held the same state
  VariableSums comparedSums;          ///< of that state; empty once it may have changed
  bool complete = false;
  bool scaleTold = false;            ///< warnOfScale has spoken
  bool warned = false;               ///< the last checkpoint could not be written, which was told
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAINER_H
