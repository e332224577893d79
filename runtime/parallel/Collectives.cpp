//===- Collectives.cpp - collectives over links --------------------------===//
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/Sums.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

using namespace tcc;
using namespace tcc::runtime;

namespace {
enum class Kind : uint32_t { AllReduce, ReduceScatter, AllGather, Broadcast, Barrier, Texts, Bits };
constexpr const char *kNames[] = {"an all-reduce", "a reduce-scatter",     "an all-gather", "a broadcast",
                                  "a barrier",     "an exchange of texts", "an agreement"};

/// Bytes of all ranks' parts of a block: small enough that they are still in the cache when they are added.
constexpr uint64_t kStagingBytes = uint64_t(2) << 20;

/// Header of each message of a collective: everything that determines the bytes that follow, and their call. The data
/// begins at a multiple of 64 bytes, so that it can be lent.
struct Header {
  uint64_t number;
  uint32_t kind;
  uint32_t dtype;
  uint64_t bytes;
  uint64_t partBytes; ///< of a rank's part of a block
  uint64_t layout;    ///< of the tensors of a call with shards, as a checksum
  uint32_t group[3];  ///< the RankGroup that makes the call; zeros: all ranks
  uint32_t root;      ///< of a broadcast
  uint32_t unused[2];
  bool operator==(const Header &) const = default;
};
static_assert(sizeof(Header) == 64);

std::string textOf(const Header &header) {
  if (header.kind >= std::size(kNames))
    return "something unknown";
  const auto [first, stride, count] = header.group;
  std::string text = fmt::format("{} of {} bytes, its call {}", kNames[header.kind], header.bytes, header.number);
  if (header.kind == static_cast<uint32_t>(Kind::AllReduce) ||
      header.kind == static_cast<uint32_t>(Kind::ReduceScatter))
    text += fmt::format(" in parts of {}", header.partBytes);
  if (header.kind == static_cast<uint32_t>(Kind::Broadcast))
    text += fmt::format(" from rank {}", header.root);
  if (header.layout)
    text += fmt::format(" of tensors {:016x}", header.layout);
  return count ? text + fmt::format(" with {} ranks from {} on", count, first) : text;
}

/// Parameters on which the ranks agree before the first collective.
struct Terms {
  uint64_t magic = 0x31736d7265746374; ///< "tcterms1": changes with the messages of collectives
  uint64_t headerBytes = sizeof(Header);
  uint64_t blockBytes = 0;        ///< of a rank's part of a block; 0: as many as fit into kStagingBytes
  uint64_t mostLent = UINT64_MAX; ///< bytes that this rank's wires lend, the minimum over its peers
};

/// Bytes of a rank's part of a block among `size` ranks: the same on every rank, whatever wires it has.
uint64_t partBytesOf(const Terms &agreed, uint32_t size) {
  const uint64_t wanted = agreed.blockBytes ? agreed.blockBytes : kStagingBytes / size;
  return std::max<uint64_t>(std::min(wanted, agreed.mostLent) / 64 * 64, 64);
}

/// A checksum of how tensors are divided.
uint64_t layoutOf(std::span<const ShardedPiece> wholes) {
  std::vector<uint64_t> sizes;
  for (const ShardedPiece &one : wholes)
    sizes.insert(sizes.end(), {one.whole.bytes, one.shardBytes});
  return plan::hashBytes(sizes.data(), sizes.size() * sizeof(uint64_t)) | 1;
}

/// Bytes [begin, end) of the pieces, one behind the other.
std::vector<Piece> cut(std::span<const Piece> pieces, uint64_t begin, uint64_t end) {
  std::vector<Piece> parts;
  uint64_t at = 0;
  for (const Piece &piece : pieces) {
    const uint64_t from = std::max(begin, at), to = std::min(end, at + piece.bytes);
    if (from < to)
      parts.push_back({piece.data + (from - at), to - from});
    at += piece.bytes;
  }
  return parts;
}

uint64_t totalBytes(std::span<const Piece> pieces) {
  uint64_t bytes = 0;
  for (const Piece &piece : pieces)
    bytes += piece.bytes;
  return bytes;
}

/// Links among some of the ranks.
class GroupLinks final : public Links {
public:
  GroupLinks(Links &all, const RankGroup &group) : all(all), group(group) {}

  uint32_t rank() const override { return (all.rank() - group.first) / group.stride; }
  uint32_t size() const override { return group.count; }
  std::string describe(uint32_t rank) const override { return all.describe(inAll(rank)); }
  Status exchange(std::span<Transfer> transfers) override {
    for (Transfer &transfer : transfers)
      transfer.peer = inAll(transfer.peer);
    Status status = all.exchange(transfers);
    for (Transfer &transfer : transfers)
      transfer.peer = (transfer.peer - group.first) / group.stride;
    return status;
  }
  uint64_t mostLent(uint32_t rank) const override { return all.mostLent(inAll(rank)); }
  void release() override { all.release(); }
  void abort(const std::string &text) override { all.abort(text); }
  std::optional<std::string> failure() override { return all.failure(); }
  void setStep(uint64_t step) override { all.setStep(step); }
  void onSlow(std::function<void(const std::string &)> hearer) override { all.onSlow(std::move(hearer)); }

private:
  uint32_t inAll(uint32_t rank) const { return group.first + rank * group.stride; }
  Links &all;
  const RankGroup group;
};

class LinkedCommunicator final : public Communicator {
public:
  /// `agreed`: the terms of all ranks of the job. `group`: the ranks of the links, if they are only some of the job's.
  LinkedCommunicator(std::unique_ptr<Links> given, const Terms &agreed, std::optional<RankGroup> group = std::nullopt)
      : links(std::move(given)), agreed(agreed), ofJob(group), partBytes(partBytesOf(agreed, size())) {
    heard.resize(size());
  }

  uint32_t rank() const override { return links->rank(); }
  uint32_t size() const override { return links->size(); }
  std::string describe(uint32_t other) const override { return links->describe(other); }
  void abort(const std::string &text) override { links->abort(text); }
  std::optional<std::string> failure() override { return links->failure(); }
  void setStep(uint64_t step) override { links->setStep(step); }
  void onSlow(std::function<void(const std::string &)> hearer) override { links->onSlow(std::move(hearer)); }
  CollectiveCounts counts() const override {
    CollectiveCounts all = counted;
    for (const auto &[ranks, group] : groups)
      all = all + group->counts();
    return all;
  }

  Communicator &group(const RankGroup &ranks) override {
    if (ranks.count == size())
      return *this;
    for (const auto &[known, group] : groups)
      if (known == ranks)
        return *group;
    groups.emplace_back(
        ranks, std::make_unique<LinkedCommunicator>(std::make_unique<GroupLinks>(*links, ranks), agreed, ranks));
    return *groups.back().second;
  }

  Status allReduce(std::span<const Piece> pieces, plan::DType dtype) override {
    Scope scope(*this);
    const uint64_t width = plan::dtypeBytes(dtype), bytes = totalBytes(pieces);
    if (!canSum(dtype) || bytes % width != 0)
      return error("internal error: an all-reduce of {} bytes of {}", bytes, plan::dtypeName(dtype));
    begin(Kind::AllReduce, dtype, bytes);
    if (size() == 1)
      return Status();
    // The sums of a block are sent together with the terms of the next one. There is at least one block, so that ranks
    // compare headers even if there is nothing to add.
    std::optional<Block> before;
    uint64_t at = 0;
    do {
      const Block block{pieces, at, std::min(bytes - at, partBytes * size()), width};
      if (Status status = reduceBlock(block, dtype, before ? &*before : nullptr); !status.ok())
        return status;
      before = block;
      at += block.size;
    } while (at < bytes);
    const std::vector<Piece> own = partOf(*before, rank());
    return exchange([&](uint32_t) { return own; }, [&](uint32_t peer) { return partOf(*before, peer); });
  }

  Status reduceScatter(std::span<const ShardedPiece> wholes, std::span<const Piece> own, plan::DType dtype) override {
    Scope scope(*this);
    const uint64_t width = plan::dtypeBytes(dtype);
    uint64_t bytes = 0, most = 0;
    std::vector<std::vector<Piece>> parts; // by rank
    for (uint32_t r = 0; r < size(); ++r) {
      parts.push_back(partsOf(wholes, r));
      bytes += totalBytes(parts[r]);
      most = std::max(most, totalBytes(parts[r]));
    }
    if (!canSum(dtype) || bytes % width != 0 || own.size() != wholes.size())
      return error("internal error: a reduce-scatter of {} bytes of {}", bytes, plan::dtypeName(dtype));
    begin(Kind::ReduceScatter, dtype, bytes);
    current.layout = layoutOf(wholes);
    std::vector<Piece> results;
    for (size_t i = 0; i < own.size(); ++i)
      results.push_back({own[i].data, wholes[i].part(rank()).bytes});
    // One slice of every rank's parts at a time; there is at least one, so that ranks compare headers.
    uint64_t at = 0;
    do {
      auto slice = [&](std::span<const Piece> pieces) {
        return cut(pieces, std::min(at, totalBytes(pieces)), std::min(at + partBytes, totalBytes(pieces)));
      };
      const std::vector<Piece> mine = slice(parts[rank()]);
      Status status = addParts(
          mine, slice(results), dtype, [&](uint32_t peer) { return slice(parts[peer]); },
          [](uint32_t) { return std::vector<Piece>(); });
      if (!status.ok())
        return status;
      at += partBytes;
    } while (at < most);
    return Status();
  }

  Status allGather(std::span<const ShardedPiece> wholes) override {
    Scope scope(*this);
    uint64_t bytes = 0;
    for (const ShardedPiece &one : wholes)
      bytes += one.whole.bytes;
    begin(Kind::AllGather, plan::DTYPE_NONE, bytes);
    current.layout = layoutOf(wholes);
    return exchange([&](uint32_t) { return partsOf(wholes, rank()); },
                    [&](uint32_t peer) { return partsOf(wholes, peer); });
  }

  Status broadcast(std::span<const Piece> pieces, uint32_t root) override {
    Scope scope(*this);
    begin(Kind::Broadcast, plan::DTYPE_NONE, totalBytes(pieces));
    current.root = root;
    const std::vector<Piece> all(pieces.begin(), pieces.end()), none;
    return exchange([&](uint32_t) { return rank() == root ? all : none; },
                    [&](uint32_t peer) { return peer == root ? all : none; });
  }

  Status barrier() override {
    Scope scope(*this);
    begin(Kind::Barrier, plan::DTYPE_NONE, 0);
    const std::vector<Piece> none;
    return exchange([&](uint32_t) { return none; }, [&](uint32_t) { return none; });
  }

  Expected<std::vector<std::string>> gatherTexts(const std::string &own) override {
    Scope scope(*this);
    std::vector<uint64_t> lengths(size(), 0);
    lengths[rank()] = own.size();
    auto pieceOf = [](uint64_t &word) {
      return std::vector<Piece>{{reinterpret_cast<std::byte *>(&word), sizeof(uint64_t)}};
    };
    begin(Kind::Texts, plan::DTYPE_NONE, 0);
    if (Status status = exchange([&](uint32_t) { return pieceOf(lengths[rank()]); },
                                 [&](uint32_t peer) { return pieceOf(lengths[peer]); });
        !status.ok())
      return status;
    constexpr uint64_t kMostText = uint64_t(1) << 24;
    std::vector<std::string> texts(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (lengths[r] > kMostText)
        return error("{} sent a text of {} bytes, more than {}", describe(r), lengths[r], kMostText);
      texts[r] = r == rank() ? own : std::string(lengths[r], '\0');
    }
    auto textPiece = [&](uint32_t r) {
      return std::vector<Piece>{{reinterpret_cast<std::byte *>(texts[r].data()), texts[r].size()}};
    };
    begin(Kind::Texts, plan::DTYPE_NONE, 1);
    Status status = exchange([&](uint32_t) { return textPiece(rank()); }, textPiece);
    return status.ok() ? Expected<std::vector<std::string>>(std::move(texts)) : status;
  }

  Expected<uint64_t> anyOf(uint64_t bits) override {
    Scope scope(*this);
    begin(Kind::Bits, plan::DTYPE_NONE, sizeof(uint64_t));
    words.assign(size(), 0);
    words[rank()] = bits;
    auto wordOf = [&](uint32_t r) {
      return std::vector<Piece>{{reinterpret_cast<std::byte *>(&words[r]), sizeof(uint64_t)}};
    };
    if (Status status = exchange([&](uint32_t) { return wordOf(rank()); }, wordOf); !status.ok())
      return status;
    for (uint64_t word : words)
      bits |= word;
    return bits;
  }

private:
  /// Counts the time of a call.
  struct Scope {
    explicit Scope(LinkedCommunicator &own) : own(own) {}
    ~Scope() { own.counted.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); }
    LinkedCommunicator &own;
    std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  };

  void begin(Kind kind, plan::DType dtype, uint64_t bytes) {
    current = {};
    current.number = ++counted.calls;
    current.kind = static_cast<uint32_t>(kind);
    current.dtype = static_cast<uint32_t>(dtype);
    current.bytes = bytes;
    current.partBytes = partBytes;
    if (ofJob)
      current.group[0] = ofJob->first, current.group[1] = ofJob->stride, current.group[2] = ofJob->count;
    introduced = false;
  }

  /// Sends `sent(peer)` to every peer and receives `received(peer)` from each; the first exchange of a collective
  /// begins with its header.
  template <typename Sent, typename Received> Status exchange(Sent &&sent, Received &&received) {
    const Piece own{reinterpret_cast<std::byte *>(&current), sizeof(Header)};
    transfers.clear();
    for (uint32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank())
        continue;
      Transfer out{peer, true, {}}, in{peer, false, {}};
      if (!introduced) {
        out.parts.push_back(own);
        in.parts.push_back({reinterpret_cast<std::byte *>(&heard[peer]), sizeof(Header)});
        // Only the first message needs a header: the sizes of the next ones follow from the agreed terms.
        out.introduces = in.introduces = true;
        in.onFirst = [this, peer] { return compareHeader(peer); };
      }
      for (auto [transfer, parts] : {std::pair(&out, sent(peer)), std::pair(&in, received(peer))})
        transfer->parts.insert(transfer->parts.end(), parts.begin(), parts.end());
      counted.sentBytes += totalBytes(out.parts);
      counted.receivedBytes += totalBytes(in.parts);
      transfers.push_back(std::move(out));
      transfers.push_back(std::move(in));
    }
    introduced = true;
    std::erase_if(transfers, [](const Transfer &transfer) { return totalBytes(transfer.parts) == 0; });
    return transfers.empty() ? Status() : links->exchange(transfers);
  }

  Status compareHeader(uint32_t peer) {
    if (heard[peer] == current)
      return Status();
    std::string text = fmt::format("the ranks call different collectives: {} does {}, {} does {}", describe(rank()),
                                   textOf(current), describe(peer), textOf(heard[peer]));
    links->abort(text);
    return Status(text);
  }

  /// Bytes [at, at + size) of a bucket, of elements of `width` bytes.
  struct Block {
    std::span<const Piece> pieces;
    uint64_t at, size, width;
  };

  /// The part of a block that rank `r` sums.
  std::vector<Piece> partOf(const Block &block, uint64_t r) const {
    const uint64_t elements = block.size / block.width, ranks = size();
    return cut(block.pieces, block.at + elements * r / ranks * block.width,
               block.at + elements * (r + 1) / ranks * block.width);
  }

  static std::vector<Piece> partsOf(std::span<const ShardedPiece> wholes, uint32_t r) {
    std::vector<Piece> parts;
    for (const ShardedPiece &one : wholes)
      if (Piece part = one.part(r); part.bytes)
        parts.push_back(part);
    return parts;
  }

  /// Every rank sums its part of the block, in place. The sums of the block `before`, if there is one, are sent to all
  /// ranks.
  Status reduceBlock(const Block &block, plan::DType dtype, const Block *before) {
    const std::vector<Piece> own = partOf(block, rank()), none;
    auto sent = [&](uint32_t peer) {
      std::vector<Piece> list = before ? partOf(*before, rank()) : none;
      for (const Piece &piece : partOf(block, peer))
        list.push_back(piece);
      return list;
    };
    return addParts(own, own, dtype, sent, [&](uint32_t peer) { return before ? partOf(*before, peer) : none; });
  }

  /// Sends `sent(peer)` and receives `first(peer)`, then each peer's term of the sum whose own term is `own`; the sum
  /// goes to `sums`, whose pieces are as large as those of `own`.
  template <typename Sent, typename First>
  Status addParts(const std::vector<Piece> &own, const std::vector<Piece> &sums, plan::DType dtype, Sent &&sent,
                  First &&first) {
    const uint64_t ranks = size(), bytes = totalBytes(own), stride = (bytes + 63) / 64 * 64;
    auto received = [&](uint32_t peer) {
      std::vector<Piece> list = first(peer);
      if (bytes > 0)
        list.push_back({placeFor(peer, stride, bytes), bytes});
      return list;
    };
    if (Status status = exchange(sent, received); !status.ok())
      return status;
    std::vector<const std::byte *> parts(ranks, nullptr), sources(ranks);
    for (const Transfer &transfer : transfers)
      if (!transfer.send)
        parts[transfer.peer] = transfer.parts.back().data;
    uint64_t at = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      for (uint64_t r = 0; r < ranks; ++r)
        sources[r] = r == rank() ? own[i].data : parts[r] + at;
      sumParts(sums[i].data, sources, dtype, own[i].bytes / plan::dtypeBytes(dtype));
      at += own[i].bytes;
    }
    links->release();
    return Status();
  }

  /// Where the terms of a peer arrive: null (in memory that the links lend) if it is large enough, else in `staging`.
  std::byte *placeFor(uint32_t peer, uint64_t stride, uint64_t bytes) {
    if (links->mostLent(peer) >= bytes)
      return nullptr;
    if (staging.size() < stride * size())
      staging.resize(stride * size());
    return staging.data() + peer * stride;
  }

  std::unique_ptr<Links> links;
  const Terms agreed;
  const std::optional<RankGroup> ofJob;
  const uint64_t partBytes; ///< of a rank's part of a block
  std::vector<std::pair<RankGroup, std::unique_ptr<LinkedCommunicator>>> groups;
  Header current{};
  bool introduced = false; ///< the current collective's header has been sent
  std::vector<Header> heard;
  std::vector<Transfer> transfers; ///< of the latest exchange
  std::vector<uint64_t> words;
  std::vector<std::byte> staging;
  CollectiveCounts counted;
};

/// Exchanges the terms of all ranks; the minimum of each number applies to all.
Expected<Terms> agree(Links &links, uint64_t blockBytes) {
  const uint32_t size = links.size();
  std::vector<Terms> all(size);
  Terms &own = all[links.rank()];
  own.blockBytes = blockBytes;
  for (uint32_t peer = 0; peer < size; ++peer)
    if (const uint64_t lent = peer == links.rank() ? 0 : links.mostLent(peer); lent > 0)
      own.mostLent = std::min(own.mostLent, lent);
  std::vector<Transfer> transfers;
  auto pieceOf = [&](uint32_t rank) { return Piece{reinterpret_cast<std::byte *>(&all[rank]), sizeof(Terms)}; };
  for (uint32_t peer = 0; peer < size; ++peer)
    if (peer != links.rank()) {
      transfers.push_back({peer, true, {pieceOf(links.rank())}});
      transfers.push_back({peer, false, {pieceOf(peer)}});
    }
  if (Status status = transfers.empty() ? Status() : links.exchange(transfers); !status.ok())
    return status;
  Terms agreed = own;
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (all[peer].magic != own.magic || all[peer].headerBytes != own.headerBytes) {
      std::string text =
          fmt::format("{} speaks another version of the collectives than {}; start the same trun on every "
                      "machine",
                      links.describe(peer), links.describe(links.rank()));
      links.abort(text);
      return Status(text);
    }
    agreed.blockBytes = std::min(agreed.blockBytes, all[peer].blockBytes);
    agreed.mostLent = std::min(agreed.mostLent, all[peer].mostLent);
  }
  return agreed;
}
} // namespace

Expected<std::unique_ptr<Communicator>> tcc::runtime::makeCommunicator(std::unique_ptr<Links> links,
                                                                       uint64_t blockBytes) {
  auto agreed = agree(*links, blockBytes);
  if (!agreed)
    return agreed.status();
  return std::unique_ptr<Communicator>(std::make_unique<LinkedCommunicator>(std::move(links), *agreed));
}
