//===- Communicator.h - collectives of the ranks of a job ----------------===//
//
// A job has `size` ranks, each a process with the plan, a part of the data, and the state or its shard of it. Every
// rank calls the same collectives in the same order; a call returns when this rank's part of the result is complete.
// Sums are added in one tree that follows from the number of ranks, not from the order of arrival: every rank gets the
// same bits, in every run.
//
// Implementations: makeCommunicator (Collectives.h) over links: TCP with shared memory between ranks of one machine
// (Tcp.h), or MPI (Mpi.h); NullGroup.h, for checks in one process. A device may carry out a plan's collectives by a
// library of its own; the training loop then uses the Communicator for everything else.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_COMMUNICATOR_H
#define TCC_RUNTIME_PARALLEL_COMMUNICATOR_H

#include "runtime/plan/DType.h"
#include "support/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Elements in the host's memory. A bucket is a list of pieces, which need not be contiguous.
struct Piece {
  std::byte *data = nullptr;
  uint64_t bytes = 0;
};

/// A tensor of which rank r owns bytes [r·shardBytes, min((r + 1)·shardBytes, all)).
struct ShardedPiece {
  Piece whole;
  uint64_t shardBytes = 0;

  Piece part(uint64_t rank) const {
    const uint64_t begin = std::min(rank * shardBytes, whole.bytes);
    return {whole.data ? whole.data + begin : nullptr, std::min(shardBytes, whole.bytes - begin)};
  }
};

/// Bytes that a rank has sent and received for collectives, and the time that it spent in them.
struct CollectiveCounts {
  uint64_t calls = 0, sentBytes = 0, receivedBytes = 0;
  double seconds = 0;
  CollectiveCounts operator+(const CollectiveCounts &more) const {
    return {calls + more.calls, sentBytes + more.sentBytes, receivedBytes + more.receivedBytes, seconds + more.seconds};
  }
};

/// Ranks first, first + stride, … of a job.
struct RankGroup {
  uint32_t first = 0, stride = 1, count = 1;
  bool operator==(const RankGroup &) const = default;
};

class Communicator {
public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  /// "rank 2 (host a, process 4711)".
  virtual std::string describe(uint32_t rank) const = 0;

  /// Each piece becomes the sum over ranks of its elements of type f64, f32, bf16 or f16. The sum of ranks [a, b) is
  /// that of [a, m) plus that of [m, b), m − a the largest power of two below b − a; 16-bit types are added in f32 and
  /// rounded once. Error, here and below: a rank has ended, stopped answering or called something else; the message
  /// names it.
  virtual Status allReduce(std::span<const Piece> pieces, plan::DType dtype) = 0;

  /// Writes the sum over ranks of this rank's part of wholes[i], added as by allReduce, to the start of own[i]. The
  /// rest of own[i] and the tensors are left unchanged.
  virtual Status reduceScatter(std::span<const ShardedPiece> wholes, std::span<const Piece> own, plan::DType dtype) = 0;

  /// Copies each rank's parts of the tensors to every rank.
  virtual Status allGather(std::span<const ShardedPiece> wholes) = 0;

  /// Copies the pieces of rank `root` to every rank.
  virtual Status broadcast(std::span<const Piece> pieces, uint32_t root) = 0;

  /// Returns when every rank has called it.
  virtual Status barrier() = 0;

  /// The texts of all ranks, in the order of the ranks.
  virtual Expected<std::vector<std::string>> gatherTexts(const std::string &own) = 0;

  /// The bitwise or over all ranks: a cheap call for decisions on which all ranks must agree.
  virtual Expected<uint64_t> anyOf(uint64_t bits) = 0;

  /// Tells the other ranks that this one cannot go on: their collectives fail with a message that names this rank and
  /// ends in `text`. Only the first failure of a job counts. Returns when they have been told, after a second at most.
  virtual void abort(const std::string &text) = 0;

  /// The failure of the job, once it is known here; it begins with the description of the rank that failed.
  virtual std::optional<std::string> failure() = 0;

  /// Sets the step that messages of other ranks name for this one.
  virtual void setStep(uint64_t step) = 0;

  /// `hearer` is called with a message when a rank that is alive keeps this one waiting for long.
  virtual void onSlow(std::function<void(const std::string &)> hearer) = 0;

  /// Includes the calls of groups.
  virtual CollectiveCounts counts() const = 0;

  /// A communicator among some of the ranks, which include this one and are numbered from 0. This communicator owns it;
  /// no two calls of both may be in flight at a time. A failure in the group fails the whole job.
  virtual Communicator &group(const RankGroup &ranks) = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_COMMUNICATOR_H
