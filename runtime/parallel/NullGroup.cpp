//===- NullGroup.cpp - ranks that check and move nothing -----------------===//
#include "runtime/parallel/NullGroup.h"
#include "runtime/parallel/Sums.h"

#include <mutex>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The sequence of calls of a group's ranks, and their first failure.
struct Sequence {
  std::mutex mutex;
  std::vector<std::string> calls;
  std::string failure;
};

class NullCommunicator final : public Communicator {
public:
  NullCommunicator(uint32_t rank, uint32_t size, std::shared_ptr<Sequence> sequence)
      : own(rank), ranks(size), sequence(std::move(sequence)) {}

  uint32_t rank() const override { return own; }
  uint32_t size() const override { return ranks; }
  std::string describe(uint32_t other) const override { return fmt::format("rank {}", other); }

  Status allReduce(std::span<const Piece> pieces, plan::DType dtype) override {
    const uint64_t bytes = bytesOf(pieces);
    if (!canSum(dtype) || bytes % plan::dtypeBytes(dtype) != 0)
      return error("internal error: an all-reduce of {} bytes of {}", bytes, plan::dtypeName(dtype));
    return call(fmt::format("an all-reduce of {} bytes of {}", bytes, plan::dtypeName(dtype)),
                2 * bytes * (ranks - 1) / ranks);
  }
  Status reduceScatter(std::span<const ShardedPiece> wholes, std::span<const Piece>, plan::DType dtype) override {
    const uint64_t bytes = bytesOf(wholes);
    uint64_t own = 0;
    for (const ShardedPiece &one : wholes)
      own += one.part(rank()).bytes;
    return call(fmt::format("a reduce-scatter of {} bytes of {}", bytes, plan::dtypeName(dtype)), bytes - own);
  }
  Status allGather(std::span<const ShardedPiece> wholes) override {
    uint64_t own = 0;
    for (const ShardedPiece &one : wholes)
      own += one.part(rank()).bytes;
    return call(fmt::format("an all-gather of {} bytes", bytesOf(wholes)), own * (ranks - 1));
  }
  Status broadcast(std::span<const Piece> pieces, uint32_t root) override {
    const uint64_t bytes = bytesOf(pieces);
    return call(fmt::format("a broadcast of {} bytes from rank {}", bytes, root),
                own == root ? bytes * (ranks - 1) : 0);
  }
  Status barrier() override { return call("a barrier", 0); }
  Expected<std::vector<std::string>> gatherTexts(const std::string &text) override {
    Status status = call("an exchange of texts", text.size() * (ranks - 1));
    return status.ok() ? Expected(std::vector<std::string>(ranks, text)) : status;
  }
  Expected<uint64_t> anyOf(uint64_t bits) override {
    Status status = call("an agreement", sizeof(bits) * (ranks - 1));
    return status.ok() ? Expected<uint64_t>(bits) : status;
  }
  void abort(const std::string &text) override {
    std::lock_guard lock(sequence->mutex);
    if (sequence->failure.empty())
      sequence->failure = fmt::format("rank {}: {}", own, text);
  }
  std::optional<std::string> failure() override {
    std::lock_guard lock(sequence->mutex);
    return sequence->failure.empty() ? std::nullopt : std::optional(sequence->failure);
  }
  void setStep(uint64_t) override {}
  void onSlow(std::function<void(const std::string &)>) override {}
  CollectiveCounts counts() const override {
    CollectiveCounts all = counted;
    for (const auto &[ranks, group] : groups)
      all = all + group->counts();
    return all;
  }
  /// Calls within a group are not compared.
  Communicator &group(const RankGroup &group) override {
    if (group.count == ranks)
      return *this;
    for (const auto &[known, made] : groups)
      if (known == group)
        return *made;
    groups.emplace_back(group, std::make_unique<NullCommunicator>((own - group.first) / group.stride, group.count,
                                                                  std::make_shared<Sequence>()));
    return *groups.back().second;
  }

private:
  static uint64_t bytesOf(std::span<const Piece> pieces) {
    uint64_t bytes = 0;
    for (const Piece &piece : pieces)
      bytes += piece.bytes;
    return bytes;
  }

  static uint64_t bytesOf(std::span<const ShardedPiece> wholes) {
    uint64_t bytes = 0;
    for (const ShardedPiece &one : wholes)
      bytes += one.whole.bytes;
    return bytes;
  }

  Status call(const std::string &text, uint64_t sent) {
    std::lock_guard lock(sequence->mutex);
    if (!sequence->failure.empty())
      return Status(sequence->failure);
    const uint64_t number = counted.calls++;
    counted.sentBytes += sent;
    if (number == sequence->calls.size())
      sequence->calls.push_back(text);
    if (sequence->calls[number] == text)
      return Status();
    sequence->failure =
        fmt::format("the ranks call different collectives: rank {} does {}, its call {}, where another does {}", own,
                    text, number + 1, sequence->calls[number]);
    return Status(sequence->failure);
  }

  const uint32_t own, ranks;
  std::shared_ptr<Sequence> sequence;
  CollectiveCounts counted;
  std::vector<std::pair<RankGroup, std::unique_ptr<NullCommunicator>>> groups;
};
} // namespace

std::vector<std::unique_ptr<Communicator>> tcc::runtime::makeNullGroup(uint32_t size) {
  auto sequence = std::make_shared<Sequence>();
  std::vector<std::unique_ptr<Communicator>> group;
  for (uint32_t rank = 0; rank < size; ++rank)
    group.push_back(std::make_unique<NullCommunicator>(rank, size, sequence));
  return group;
}
