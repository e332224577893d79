//===- Pace.h - work beside training, without slowing it much ------------===//
#ifndef TCC_RUNTIME_TRAIN_PACE_H
#define TCC_RUNTIME_TRAIN_PACE_H

#include <condition_variable>
#include <mutex>

namespace tcc::runtime {

/// Holds a thread to a small part of a core: between pieces of its work it rests until the processor time that it took
/// is that part of the time that has passed. Once somebody waits for the work, it rests no more, and later work may
/// take twice the part.
class Pace {
public:
  explicit Pace(double share) : share(share) {}

  /// Nobody waits for the work that comes next. Before it begins.
  void reset();
  /// The calling thread begins.
  void begin();
  /// It has done a piece.
  void rest();
  /// Somebody waits for the work that has begun.
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
