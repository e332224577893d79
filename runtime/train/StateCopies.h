//===- StateCopies.h - copy the state while the next update computes -----===//
//
// A checkpoint needs the state after update N, and update N + 1 overwrites it, one variable after the other. Each
// variable is copied once: by the thread that writes the checkpoint, in the order in which updates change them, or by
// training itself where it is about to change one that nobody has copied yet. Training waits only for a variable whose
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
    std::optional<uint32_t> variable; ///< none: the host has it
    std::function<Status(const ByteSink &)> stream;
    std::span<std::byte> to; ///< as many bytes as the stream has
  };
  /// In the order in which copyAll() takes them. `track` is that of the thread that trains, or null.
  StateCopies(std::vector<Item> items, size_t variables, Trace::Track *track);

  /// Makes the copies that are not under way and returns when all is copied, or after an error. Any thread, several at
  /// once.
  void copyAll();
  /// The same for one variable, on the thread that trains.
  void beforeWrite(uint32_t variable) override;
  /// The same for what the host has: all of it.
  void beforeHostChanges();
  /// Nobody needs the copies any more.
  void abandon(const Status &why);

  /// The first error of a stream, or of abandon().
  Status status() const;
  /// What training has waited and copied itself.
  double waitedSeconds() const { return waited; }

private:
  enum class State : uint8_t { Pending, Copying, Done };
  /// Without the lock; the item is Copying.
  void copy(size_t item);
  void settle(size_t item, std::unique_lock<std::mutex> &lock);

  std::vector<Item> items;
  std::vector<std::atomic<State>> states; ///< changed under the lock
  std::vector<int32_t> itemOf;            ///< by variable; -1: not copied
  Trace::Track *track;
  mutable std::mutex mutex;
  std::condition_variable changed;
  Status problem;
  double waited = 0; ///< the training thread's own
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_STATECOPIES_H
