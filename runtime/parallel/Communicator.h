//===- Communicator.h - what the ranks of a job do together --------------===//
//
// A job has `size` ranks, each a process with a plan, a part of the data and all of the weights. Every rank calls the
// same collectives in the same order; a call returns when this rank's part of the result is there. Sums have one tree,
// given by the number of ranks, whatever arrives first: every rank gets the same bits, in every run.
//
// Backends: Tcp.h for processes on any machines, NullGroup.h for checks without any.
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

/// Elements in the host's memory. A bucket is a list of pieces, which need not lie side by side.
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

  /// Each of `own` begins with the sum over ranks of this rank's part of the tensor of the same number, the sum of
  /// allReduce; its bytes behind that, and the tensors, stay as they are.
  virtual Status reduceScatter(std::span<const ShardedPiece> wholes, std::span<const Piece> own, plan::DType dtype) = 0;

  /// Each rank's parts of the tensors come to every rank.
  virtual Status allGather(std::span<const ShardedPiece> wholes) = 0;

  /// The pieces of rank `root` come to every rank.
  virtual Status broadcast(std::span<const Piece> pieces, uint32_t root) = 0;

  /// Returns when every rank has called it.
  virtual Status barrier() = 0;

  /// The texts of all ranks, in their order.
  virtual Expected<std::vector<std::string>> gatherTexts(const std::string &own) = 0;

  /// The bits that some rank has set. A small call, for decisions that all ranks must take alike.
  virtual Expected<uint64_t> anyOf(uint64_t bits) = 0;

  /// Tells the other ranks that this one cannot go on: their collectives fail with a message that names this rank and
  /// ends in `text`. Only the first failure of a job counts. Returns when they have been told, after a second at most.
  virtual void abort(const std::string &text) = 0;

  /// The failure of the job, once it is known here; it begins with the description of the rank that failed.
  virtual std::optional<std::string> failure() = 0;

  /// Where this rank is, for the messages of others.
  virtual void setStep(uint64_t step) = 0;

  /// Hears of a rank that is alive but has kept this one waiting for long.
  virtual void onSlow(std::function<void(const std::string &)> hearer) = 0;

  /// With those of groups.
  virtual CollectiveCounts counts() const = 0;

  /// Some of the ranks, this one among them, as a communicator in which they are numbered from 0. It belongs to this
  /// one, and no two calls of both may be under way at a time. A failure is the job's.
  virtual Communicator &group(const RankGroup &ranks) = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_COMMUNICATOR_H
