//===- CheckpointWriter.h - write a checkpoint while training goes on ----===//
//
// Tensors are written in the order of the file. As many of the last ones as the staging memory holds are copied there
// first; training waits for these copies and until the tensors before them are written, and goes on while a thread
// writes the copies. Without staging memory everything is written while training waits.
//
//   file order:  | written from the device | written from staging memory |
//   training:    | waits (copies, then the device's part) | goes on       |
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H

#include "runtime/state/Checkpoint.h"
#include "support/Trace.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tcc::runtime {

class CheckpointWriter {
public:
  /// Allocates the staging memory.
  explicit CheckpointWriter(uint64_t stagingBytes);
  /// `own` is the track of the thread that calls start(), `thread` that of the thread which writes.
  void traceTo(Trace::Track *own, Trace::Track *thread) {
    ownTrack = own;
    threadTrack = thread;
  }
  /// Waits for the thread.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter &) = delete;
  CheckpointWriter &operator=(const CheckpointWriter &) = delete;

  struct Result {
    uint64_t step = 0;
    Status status;
    uint64_t bytes = 0;         ///< of the files
    double blockedSeconds = 0;  ///< that training waited
    double writingSeconds = 0;  ///< from the start until it was durable
  };
  /// Writes the tensors and returns the bytes of the files; called on the thread, or where training waits.
  using Write = std::function<Expected<uint64_t>(std::vector<CheckpointTensor>)>;

  /// Returns when training may change the state. Only while nothing is under way.
  void start(uint64_t step, std::vector<CheckpointTensor> tensors, Write write);

  bool isUnderWay() const { return underWay; }
  /// The result of the last start, once; nothing while the thread writes.
  std::optional<Result> poll();
  /// The same, waiting for the thread.
  std::optional<Result> wait();

private:
  /// The first of `tensors` that was copied; their number where none was.
  Expected<size_t> stage(std::vector<CheckpointTensor> &tensors);
  void finish(const Expected<uint64_t> &written, double begun);
  std::optional<Result> take();

  std::vector<std::byte> memory;
  Trace::Track *ownTrack = nullptr, *threadTrack = nullptr;
  std::thread thread;
  bool underWay = false; ///< started, and its result not taken
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false, done = false; ///< the device's part is written; all is, or cannot be
  Result result;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTWRITER_H
