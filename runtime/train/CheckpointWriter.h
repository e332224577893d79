//===- CheckpointWriter.h - write a checkpoint while training goes on ----===//
//
// Tensors are written in the order of the file. The last ones, as many as fit, are first copied to the staging memory.
//
//   all fit, and the device guards its state: a thread copies all of it and writes the copies. Training goes on at
//     once, and waits only before it changes a variable that is not copied yet (StateCopies.h).
//   the device copies state itself: all copies are submitted to it, and the thread waits for each before it writes it.
//     If all fit, training goes on at once; the device delays work that changes a variable until that is copied.
//   else: training waits until the copies are made and the tensors before them are written.
//
//       file order:  | written from the device | written from staging memory |
//       training:    | waits (copies, then the device's part) | goes on      |
//
// The thread writes slowly, so that it hardly delays training, until another thread waits for it.
//
//   without staging memory: everything is written while training waits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/StateCopies.h"
#include "support/Trace.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tcc::runtime {

/// Limits a thread to a small share of a core: between pieces of its work it sleeps until its processor time is that
/// share of the elapsed time. Once another thread waits for the work, it no longer sleeps, and later work may take
/// twice the share.
class Pace {
public:
  explicit Pace(double share) : share(share) {}

  /// Called before new work begins, for which no thread waits yet.
  void reset();
  /// Called by the thread when it begins the work.
  void begin();
  /// Called by it after each piece: sleeps if its share is used up.
  void rest();
  /// Called by a thread that waits for the work: it is no longer slowed down.
  void hurry();

private:
  double share; ///< of one core; 1 or more never rests
  double begun = 0, processorBegun = 0;
  std::mutex mutex;
  std::condition_variable changed;
  bool hurried = false;
};

class CheckpointWriter {
public:
  /// Allocates the staging memory, plus at most a page. `device` outlives the writer.
  CheckpointWriter(uint64_t stagingBytes, Device &device);
  /// `own` is the track of the thread that calls start(), `thread` that of the thread which writes.
  void traceTo(Trace::Track *own, Trace::Track *thread) {
    ownTrack = own;
    threadTrack = thread;
  }
  /// Waits for the thread. Like start, poll and wait, call it only on the thread that calls the device.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter &) = delete;
  CheckpointWriter &operator=(const CheckpointWriter &) = delete;

  struct Result {
    uint64_t step = 0;
    Status status;
    uint64_t bytes = 0;        ///< of the files
    double blockedSeconds = 0; ///< for which training waited
    double writingSeconds = 0; ///< from the start until it was durable
  };
  /// Writes the tensors and returns the bytes of the files; called on the writer's thread, or on the waiting one.
  using Write = std::function<Expected<uint64_t>(std::vector<CheckpointTensor>)>;

  /// Starts a checkpoint, and returns when training may go on. Only while none is under way. Until it is done, the
  /// device has the writer's guard, and the caller calls beforeHostChanges() before state on the host changes.
  void start(uint64_t step, std::vector<CheckpointTensor> tensors, Write write);

  void beforeHostChanges() {
    if (copies)
      copies->beforeHostChanges();
  }

  bool isUnderWay() const { return underWay; }
  /// True if the device copies its state itself: then the tensors' streams have bytes only while they are written.
  bool copiesState() const { return capacity != 0 && device.capabilities().copiesState; }
  /// The result of the last start, once; nothing while the thread writes.
  std::optional<Result> poll();
  /// The same, but waits for the thread, which then works as fast as it can.
  std::optional<Result> wait();

private:
  /// Redirects the streams of the last tensors to the staging memory, and sets up their `copies`; returns the index of
  /// the first of these, or the number of tensors if none fits.
  size_t stage(std::vector<CheckpointTensor> &tensors);
  /// Returns when the device has made the last copies of stage().
  Status waitForCopies() const;
  void finish(const Expected<uint64_t> &written, double begun);
  std::optional<Result> take();

  Device &device;
  std::shared_ptr<std::byte> memory;   ///< page-aligned
  uint64_t capacity;                   ///< bytes of it that may hold copies
  std::vector<size_t> rankOf;          ///< by variable: its place in the order in which they change
  std::unique_ptr<StateCopies> copies; ///< of the checkpoint that is under way
  std::vector<StateCopy> deviceCopies; ///< likewise: those that the device makes
  Trace::Track *ownTrack = nullptr, *threadTrack = nullptr;
  std::thread thread;
  Pace pace;
  bool underWay = false; ///< started, and its result not taken
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false, done = false; ///< the device's part is written; all is written, or has failed
  Result result;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H
