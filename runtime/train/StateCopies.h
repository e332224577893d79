//===- StateCopies.h - copy the state while the next update computes -----===//
//
// A checkpoint needs the state after update N, and update N + 1 overwrites it, one variable after the other. Each
// variable is copied once: by the thread that writes the checkpoint, in the order in which updates change them, or by
// the training thread, if it is about to change one that is not copied yet. Training waits only for a variable whose
// copy is under way.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_STATECOPIES_H
#define TCC_RUNTIME_TRAIN_STATECOPIES_H

#include "runtime/Device.h"
#include "support/Trace.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace tcc::runtime {

class StateCopies final : public StateGuard {
public:
  struct Item {
    std::optional<uint32_t> variable; ///< none: state on the host
    std::function<Status(const ByteSink &)> stream;
    std::span<std::byte> to; ///< as many bytes as the stream has
  };
  /// `items`: in the order in which copyAll() copies them. `track`: of the training thread, or null.
  StateCopies(std::vector<Item> items, size_t variables, Trace::Track *track);

  /// Makes the copies that are not under way and returns when all are complete, or after an error. May run on several
  /// threads at once.
  void copyAll();
  /// The same for one variable, on the training thread.
  void beforeWrite(uint32_t variable) override;
  /// The same for all state on the host.
  void beforeHostChanges();
  /// Cancels the copies: they are no longer needed.
  void abandon(const Status &why);

  /// The first error of a stream, or of abandon().
  Status status() const;
  /// Seconds that the training thread spent waiting and copying.
  double waitedSeconds() const { return waited; }

private:
  enum class State : uint8_t { Pending, Copying, Done };
  /// Called without the lock for an item in state Copying.
  void copy(size_t item);
  void settle(size_t item, std::unique_lock<std::mutex> &lock);

  std::vector<Item> items;
  std::vector<std::atomic<State>> states; ///< changed under the lock
  std::vector<int32_t> itemOf;            ///< by variable; -1: not copied
  Trace::Track *track;
  mutable std::mutex mutex;
  std::condition_variable changed;
  Status problem;
  double waited = 0; ///< accessed only by the training thread
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_STATECOPIES_H
