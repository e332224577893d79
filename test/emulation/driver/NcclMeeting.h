//===- NcclMeeting.h - where the ranks of a communicator meet ------------===//
//
// Ranks of NCCL's stand-in are processes of one machine. The first one makes memory without a name, and the id says
// which descriptor of which process it is, so that the others open it through /proc. A meeting is a barrier with one
// counter per rank: a rank goes on once all others have counted as far. Between two meetings each rank may write its
// own part of the memory, or read those of others.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_NCCLMEETING_H
#define TCC_TEST_EMULATION_DRIVER_NCCLMEETING_H

#include "runtime/cuda/api/Nccl.h"
#include "support/Status.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tcc::emulation {

class NcclMeeting {
public:
  static constexpr uint32_t kMostRanks = 16;
  static constexpr uint64_t kPieceBytes = 64 << 10;

  /// Makes the memory; it lives as long as the process.
  static cuda::api::ncclUniqueId makeId();
  /// Errors: the id is not from makeId, another rank gave another number of ranks, or the rank has already joined.
  static Expected<std::shared_ptr<NcclMeeting>> open(const cuda::api::ncclUniqueId &id, uint32_t ranks, uint32_t rank,
                                                     int device);
  ~NcclMeeting();
  NcclMeeting(const NcclMeeting &) = delete;

  uint32_t rank() const { return own; }
  uint32_t size() const { return ranks; }
  int deviceOf(uint32_t rank) const;

  enum class Outcome { Met, Stopped, Late };
  /// Waits for all ranks. Stopped: `stop` returned true. Late: some rank did not arrive within `seconds`.
  Outcome meet(const std::function<bool()> &stop, double seconds);
  /// Whether another rank waits for this one.
  bool isAwaited() const;
  /// The first rank that has not arrived at the latest meeting.
  uint32_t missing() const;

  /// Publishes what this rank does next, so that others can compare: at most 255 characters.
  void say(const std::string &text);
  std::string saidBy(uint32_t rank) const;
  /// A rank's part of the memory.
  std::byte *piece(uint32_t rank) const;

private:
  struct Shared;
  NcclMeeting(Shared *shared, uint32_t ranks, uint32_t rank) : shared(shared), ranks(ranks), own(rank) {}

  Shared *shared;
  const uint32_t ranks, own;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_NCCLMEETING_H
