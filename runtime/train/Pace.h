//===- Pace.h - work beside training, without slowing it much ------------===//
#ifndef TCC_RUNTIME_TRAIN_PACE_H
#define TCC_RUNTIME_TRAIN_PACE_H

#include <condition_variable>
#include <mutex>

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

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_PACE_H
