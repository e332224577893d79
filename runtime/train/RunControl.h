//===- RunControl.h - ask a run to end, or to write a checkpoint -----------===//
//
// stop() and requestCheckpoint() may be called at any time, on any thread and in a signal handler: they are lock-free
// and allocate nothing. The run answers between two updates.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNCONTROL_H
#define TCC_RUNTIME_TRAIN_RUNCONTROL_H

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>

namespace tcc::runtime {

class RunControl {
public:
  RunControl() = default;
  RunControl(const RunControl &) = delete;
  RunControl &operator=(const RunControl &) = delete;

  /// Asks for the end: the run finishes its update, writes a checkpoint and returns. `by` says who asks, for messages
  /// ("SIGTERM"), and outlives the run. The first call counts.
  void stop(const char *by) noexcept {
    const char *none = nullptr;
    stopper.compare_exchange_strong(none, by);
  }
  /// Asks for a checkpoint; the run goes on.
  void requestCheckpoint() noexcept { requested = true; }

  /// Who asked for the end; null: nobody did.
  const char *stoppedBy() const noexcept { return stopper; }
  /// True while files are written that should not be left half-written: a checkpoint.
  bool isWriting() const noexcept { return writers != 0; }
  /// The folder of the newest checkpoint that is durable; empty: none. For a signal handler: it stays readable until
  /// the next but one is written.
  const char *lastCheckpoint() const noexcept { return paths[current]; }

  /// Called when isWriting() has become false, on the thread that wrote. Set it before the run begins.
  std::function<void()> onWritten;

  /// Forgets all requests, for the next run.
  void reset() noexcept {
    stopper = nullptr;
    requested = false;
  }

  // The run's side.

  /// True once after each request.
  bool takeCheckpointRequest() noexcept { return requested.exchange(false); }
  void setLastCheckpoint(const std::string &path) noexcept {
    const int next = 1 - current;
    const size_t length = std::min(path.size(), sizeof(paths[next]) - 1);
    std::memcpy(paths[next], path.data(), length);
    paths[next][length] = 0;
    current = next;
  }

  /// Files are written while it lives.
  class Writing {
  public:
    explicit Writing(RunControl &control) : control(control) { ++control.writers; }
    ~Writing() {
      if (--control.writers == 0 && control.onWritten)
        control.onWritten();
    }
    Writing(const Writing &) = delete;
    Writing &operator=(const Writing &) = delete;

  private:
    RunControl &control;
  };

private:
  std::atomic<const char *> stopper{nullptr};
  std::atomic<bool> requested{false};
  std::atomic<int> writers{0}, current{0};
  /// Two alternating texts, so that a handler never reads one that is being written.
  char paths[2][4096] = {};
  static_assert(std::atomic<const char *>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
                std::atomic<bool>::is_always_lock_free);
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNCONTROL_H
