//===- Profile.h - when each instruction of a few updates ran ---*- C++ -*-===//
//
// Times real updates on real batches: the clock is read after every launch, which costs tens of nanoseconds. If
// instructions run concurrently, each gets the share of the launch's time that workers spent on it. Nothing is written
// to disk; the weights change only in memory.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_PROFILE_H
#define TCC_RUNTIME_TRAIN_PROFILE_H

#include "runtime/train/Session.h"

namespace tcc::runtime {

struct ProfileOptions {
  std::string data;
  std::string entry;   ///< the only entry to run; empty: all entries of an update
  uint64_t warmup = 2; ///< updates before those that are measured
  uint64_t steps = 3;  ///< updates that are measured, at least 1
};

/// One run of an entry: seconds of a monotonic clock.
struct EntryTimes {
  size_t entry = 0; ///< index into Profile::entries
  double begin = 0;
  struct Piece {
    uint32_t instruction;
    double end; ///< also the begin of the next one
  };
  std::vector<Piece> pieces; ///< in order; an instruction that ran concurrently with others has several
};

struct StepTimes {
  double begin = 0, end = 0; ///< reading the batch and computing scalars included
  std::vector<EntryTimes> runs;
  double seconds() const { return end - begin; }
};

/// A collective of a step, averaged over the measured steps.
struct ProfiledCollective {
  size_t entry = 0;                                  ///< index into Profile::entries
  int index = 0;                                     ///< of the instruction
  double calls = 0, seconds = 0, exposedSeconds = 0; ///< of a step: Device.h
};

struct Profile {
  std::vector<const plan::Entry *> entries;
  std::vector<StepTimes> steps;
  std::vector<ProfiledCollective> collectives; ///< of several ranks
  uint64_t samples = 0, tokens = 0;            ///< of a step, on this rank
  bool finite = true;               ///< every loss was
};

/// Runs warm-up and measured updates (or runs of one entry) on batches in the data's order. The ranks of a job run them
/// together, each on its part of the batches. Errors: no such entry, data that does not fit, a failed call.
Expected<Profile> profile(Session &session, const ProfileOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_PROFILE_H
