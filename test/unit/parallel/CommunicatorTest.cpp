//===- CommunicatorTest.cpp - collectives between ranks of one process ---===//
//
// Each rank is a thread with connections of its own: over the loopback address, and over shared memory.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/NullGroup.h"
#include "runtime/parallel/Sums.h"
#include "runtime/parallel/Tcp.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/ranges.h>
#include <functional>
#include <gtest/gtest.h>
#include <latch>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// Runs `body` concurrently as every rank of a job. `localSizes`: for each rank, the number of ranks that it believes
/// are on its machine. A rank that believes to be alone offers no shared memory.
void asRanksOf(const std::vector<uint32_t> &localSizes, const std::function<void(std::unique_ptr<Links>)> &body) {
  const auto size = static_cast<uint32_t>(localSizes.size());
  auto listener = listenOn("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.message();
  auto port = portOf(*listener);
  ASSERT_TRUE(port.ok());
  int number = ::dup(listener->get());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      RankPlace place;
      place.rank = rank;
      place.size = size;
      place.localSize = localSizes[rank];
      place.address = "127.0.0.1";
      place.port = *port;
      place.trust.secret = "a secret of this test";
      place.listener = rank == 0 ? number : -1;
      auto links = connectRanks(place, 20);
      ASSERT_TRUE(links.ok()) << links.message();
      body(links.take());
    });
  listener->close();
  for (std::thread &thread : threads)
    thread.join();
}

void asRanksOf(uint32_t size, uint32_t localSize, const std::function<void(std::unique_ptr<Links>)> &body) {
  asRanksOf(std::vector<uint32_t>(size, localSize), body);
}

void asRanks(const std::vector<uint32_t> &localSizes, const std::function<void(Communicator &)> &body,
             uint64_t blockBytes) {
  // All ranks wait until every communicator is made: a rank whose first call fails would otherwise end the job too
  // early.
  std::latch made(static_cast<std::ptrdiff_t>(localSizes.size()));
  asRanksOf(localSizes, [&](std::unique_ptr<Links> links) {
    auto ranks = makeCommunicator(std::move(links), blockBytes);
    made.arrive_and_wait();
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    body(**ranks);
  });
}

void asRanks(uint32_t size, const std::function<void(Communicator &)> &body, uint64_t blockBytes = 4096) {
  for (uint32_t localSize : {1u, size})
    asRanks(std::vector<uint32_t>(size, localSize), body, blockBytes);
}

template <typename T> Piece pieceOf(std::vector<T> &values, size_t begin, size_t count) {
  return {reinterpret_cast<std::byte *>(values.data() + begin), count * sizeof(T)};
}

/// The operand of rank `rank`: numbers of very different sizes, so that another order of additions gives other bits.
template <typename T> std::vector<T> contribution(uint32_t rank, size_t count) {
  std::mt19937 random(rank * 7919 + 1);
  std::uniform_real_distribution<double> size(-6, 6);
  std::vector<T> values(count);
  for (T &value : values)
    value = static_cast<T>((random() & 1 ? 1 : -1) * std::pow(10.0, size(random)));
  return values;
}

/// The sum of ranks [begin, end) as the interface defines it.
template <typename T> T treeSum(const std::vector<std::vector<T>> &all, size_t element, size_t begin, size_t end) {
  if (end - begin == 1)
    return all[begin][element];
  const size_t half = std::bit_floor(end - begin - 1);
  return treeSum(all, element, begin, begin + half) + treeSum(all, element, begin + half, end);
}

uint16_t bf16Of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float ofBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
} // namespace

TEST(Communicator, SumsAreTheTreeOfTheRanksToTheBit) {
  for (uint32_t size : {1u, 2u, 3u, 5u, 8u}) {
    constexpr size_t kCount = 5003; // several blocks, and no multiple of any number of ranks
    std::vector<std::vector<float>> all;
    for (uint32_t rank = 0; rank < size; ++rank)
      all.push_back(contribution<float>(rank, kCount));
    std::vector<std::vector<float>> results(size);
    asRanks(size, [&](Communicator &ranks) {
      std::vector<float> values = all[ranks.rank()];
      const Piece pieces[] = {pieceOf(values, 0, 17), pieceOf(values, 17, 1), pieceOf(values, 18, kCount - 18)};
      Status status = ranks.allReduce(pieces, plan::F32);
      EXPECT_TRUE(status.ok()) << status.message();
      results[ranks.rank()] = values;
    });
    for (uint32_t rank = 0; rank < size; ++rank)
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(results[rank][i]), std::bit_cast<uint32_t>(treeSum(all, i, 0, size)))
            << size << " ranks, rank " << rank << ", element " << i;
  }
}

TEST(Communicator, GroupsComputeAlone) {
  constexpr size_t kCount = 1001;
  std::vector<std::vector<float>> all;
  for (uint32_t rank = 0; rank < 6; ++rank)
    all.push_back(contribution<float>(rank, kCount));
  asRanks(6, [&](Communicator &ranks) {
    const uint32_t rank = ranks.rank();
    const RankGroup node{rank - rank % 2, 1, 2}, across{rank % 2, 2, 3}, everyone{0, 1, 6};
    EXPECT_EQ(&ranks.group(everyone), &ranks);
    EXPECT_EQ(&ranks.group(node), &ranks.group(node));
    Communicator &own = ranks.group(node), &others = ranks.group(across);
    EXPECT_EQ(own.rank(), rank % 2);
    EXPECT_EQ(others.rank(), rank / 2);
    EXPECT_EQ(others.describe(2), ranks.describe(rank % 2 + 4));
    std::vector<float> values = all[rank];
    const Piece piece = pieceOf(values, 0, kCount);
    // A sum within each node, then one across nodes, is the tree over all ranks.
    ASSERT_TRUE(own.allReduce({&piece, 1}, plan::F32).ok());
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(values[i], all[rank - rank % 2][i] + all[rank - rank % 2 + 1][i]);
    ASSERT_TRUE(others.allReduce({&piece, 1}, plan::F32).ok());
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(values[i], treeSum(all, i, 0, 6));
    auto bits = others.anyOf(uint64_t(1) << rank);
    ASSERT_TRUE(bits.ok());
    EXPECT_EQ(*bits, rank % 2 ? 0b101010u : 0b010101u);
    EXPECT_EQ(ranks.counts().calls, 3u);
    // After calls of groups, all ranks can still meet.
    ASSERT_TRUE(ranks.barrier().ok());
  });
}

/// For each rank the size of its node; launchers number ranks by node: {2, 1} has ranks 0 and 1 on one node, 2 on
/// another.
std::vector<uint32_t> localSizesOf(const std::vector<uint32_t> &nodes) {
  std::vector<uint32_t> sizes;
  for (uint32_t node : nodes)
    sizes.insert(sizes.end(), node, node);
  return sizes;
}

/// Checks sums of ranks whose links lend different numbers of bytes, with the block size of a real job: sums over all
/// ranks, within nodes and across nodes, whole and in shards.
void checkSums(const std::vector<uint32_t> &localSizes, const std::vector<std::vector<float>> &all,
               const std::vector<float> &expected, const std::string &what) {
  const auto size = static_cast<uint32_t>(localSizes.size());
  const size_t count = expected.size(), share = (count + size - 1) / size;
  asRanks(
      localSizes,
      [&](Communicator &ranks) {
        const uint32_t rank = ranks.rank();
        std::vector<float> values = all[rank], shard(share), gathered(count);
        const Piece whole = pieceOf(values, 0, count), own = pieceOf(shard, 0, share);
        const ShardedPiece source{whole, share * sizeof(float)},
            parts{pieceOf(gathered, 0, count), share * sizeof(float)};
        Status status = ranks.reduceScatter({&source, 1}, {&own, 1}, plan::F32);
        ASSERT_TRUE(status.ok()) << what << ": " << status.message();
        const Piece mine = parts.part(rank);
        std::memcpy(mine.data, shard.data(), mine.bytes);
        status = ranks.allGather({&parts, 1});
        ASSERT_TRUE(status.ok()) << what << ": " << status.message();
        EXPECT_TRUE(std::memcmp(gathered.data(), expected.data(), count * sizeof(float)) == 0)
            << what << ": reduce-scatter and all-gather on rank " << rank;
        if (size % 2 == 0) { // a sum within nodes of two, then across nodes, is the tree over all ranks
          status = ranks.group({rank - rank % 2, 1, 2}).allReduce({&whole, 1}, plan::F32);
          ASSERT_TRUE(status.ok()) << what << ": " << status.message();
          status = ranks.group({rank % 2, 2, size / 2}).allReduce({&whole, 1}, plan::F32);
          ASSERT_TRUE(status.ok()) << what << ": " << status.message();
          EXPECT_TRUE(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0)
              << what << ": nodes of two on rank " << rank;
          values = all[rank];
        }
        status = ranks.allReduce({&whole, 1}, plan::F32);
        ASSERT_TRUE(status.ok()) << what << ": " << status.message();
        EXPECT_TRUE(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0)
            << what << ": all-reduce on rank " << rank;
      },
      0);
}

/// The operands of all ranks, and their sum. They are larger than a block for any number of ranks.
std::pair<std::vector<std::vector<float>>, std::vector<float>> bigContributions(uint32_t size) {
  constexpr size_t kCount = 450'001; // 1.8 MB: a block of ranks with shared memory has at most 1.5 MiB
  std::vector<std::vector<float>> all;
  for (uint32_t rank = 0; rank < size; ++rank) {
    std::vector<float> &values = all.emplace_back(contribution<float>(rank, 1000));
    values.reserve(kCount);
    while (values.size() < kCount)
      values.push_back(values[values.size() - 1000] * 1.0009765625f);
  }
  std::vector<float> sum(kCount);
  for (size_t i = 0; i < kCount; ++i)
    sum[i] = treeSum(all, i, 0, size);
  return {std::move(all), std::move(sum)};
}

/// Calls `body` for each of the 2^(ranks − 1) divisions of so many ranks into nodes.
void forSplits(uint32_t ranks, std::vector<uint32_t> &nodes, const std::function<void()> &body) {
  if (ranks == 0)
    return body();
  for (uint32_t first = 1; first <= ranks; ++first) {
    nodes.push_back(first);
    forSplits(ranks - first, nodes, body);
    nodes.pop_back();
  }
}

TEST(Communicator, SumsAreTheSameHoweverRanksAreSplitOverNodes) {
  // All splits up to six ranks; with TCC_RANKS_ALL=1 up to nine, and uneven ones of sixteen.
  const bool everything = std::getenv("TCC_RANKS_ALL") != nullptr;
  std::vector<uint32_t> nodes;
  for (uint32_t size = 2; size <= (everything ? 9u : 6u); ++size) {
    const auto [all, sum] = bigContributions(size);
    forSplits(size, nodes, [&, &all = all, &sum = sum] {
      checkSums(localSizesOf(nodes), all, sum, fmt::format("nodes of {} ranks", fmt::join(nodes, "+")));
    });
  }
  if (!everything)
    return;
  const auto [all, sum] = bigContributions(16);
  for (uint32_t first = 1; first < 16; ++first)
    for (const std::vector<uint32_t> &split : {std::vector<uint32_t>{first, 16 - first}, {1, first, 15 - first}})
      if (split.back() > 0)
        checkSums(localSizesOf(split), all, sum, fmt::format("nodes of {} ranks", fmt::join(split, "+")));
}

TEST(Communicator, SumsAreTheSameWhereSharedMemoryFailsOnOneRank) {
  for (uint32_t size : {2u, 3u, 4u, 6u}) {
    const auto [all, sum] = bigContributions(size);
    for (uint32_t without = 0; without < size; ++without) {
      std::vector<uint32_t> localSizes(size, size);
      localSizes[without] = 1;
      checkSums(localSizes, all, sum, fmt::format("{} ranks, rank {} without shared memory", size, without));
    }
  }
}

TEST(Communicator, RanksThatCutTensorsDifferentlyAreTold) {
  asRanks(2, [](Communicator &ranks) {
    std::vector<float> values(64, 1);
    const ShardedPiece whole{pieceOf(values, 0, 64), ranks.rank() ? 128u : 192u};
    Status status = ranks.allGather({&whole, 1});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("different collectives"), std::string::npos) << status.message();
  });
  asRanks(2, [](Communicator &ranks) {
    std::vector<float> values(64, 1);
    const Piece piece = pieceOf(values, 0, 64);
    Status status = ranks.broadcast({&piece, 1}, ranks.rank());
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("from rank 0"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("from rank 1"), std::string::npos) << status.message();
  });
}

TEST(Communicator, RanksOfAMachineReadEachOthersMemory) {
  for (uint32_t localSize : {1u, 3u})
    asRanksOf(3, localSize, [&](std::unique_ptr<Links> links) {
      const uint32_t next = (links->rank() + 1) % 3;
      EXPECT_EQ(links->mostLent(next) > 0, localSize > 1);
      // More bytes than a ring buffer holds, divided differently on the two sides.
      std::vector<uint64_t> sent(3 << 20), received(3 << 20);
      std::iota(sent.begin(), sent.end(), links->rank());
      auto out = pieceOf(sent, 0, sent.size()), head = pieceOf(received, 0, 5),
           rest = pieceOf(received, 5, (3 << 20) - 5);
      Transfer transfers[] = {{next, true, {out}}, {(links->rank() + 2) % 3, false, {head, rest}}};
      Status status = links->exchange(transfers);
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<uint64_t> expected(3 << 20);
      std::iota(expected.begin(), expected.end(), (links->rank() + 2) % 3);
      EXPECT_EQ(received, expected);
    });
}

TEST(Communicator, SixteenBitsAreAddedWideAndRoundedOnce) {
  // 1 + 2^-8 + 2^-8: rounded after each addition, bf16 would keep 1.
  asRanks(3, [](Communicator &ranks) {
    std::vector<uint16_t> values(100, bf16Of(ranks.rank() == 0 ? 1.0f : 0x1p-8f));
    const Piece piece = pieceOf(values, 0, values.size());
    ASSERT_TRUE(ranks.allReduce({&piece, 1}, plan::BF16).ok());
    for (uint16_t bits : values)
      EXPECT_EQ(ofBf16(bits), 1 + 0x1p-7f);
  });
}

TEST(Sums, HalvesOfEveryBitPatternAreTheSameAfterAddingZero) {
  for (plan::DType dtype : {plan::F16, plan::BF16}) {
    std::vector<uint16_t> values(65536), zeros(65536, 0);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<uint16_t>(i);
    std::byte *into = reinterpret_cast<std::byte *>(values.data());
    const std::byte *parts[] = {into, reinterpret_cast<std::byte *>(zeros.data())};
    sumParts(into, parts, dtype, values.size());
    const uint16_t infinity = dtype == plan::F16 ? 0x7c00 : 0x7f80;
    for (size_t i = 0; i < values.size(); ++i) {
      if ((i & 0x7fff) > infinity) // a NaN stays one
        EXPECT_GT(values[i] & 0x7fff, infinity) << i;
      else // −0 + 0 is 0
        EXPECT_EQ(values[i], i == 0x8000 ? 0 : i);
    }
  }
}

TEST(Sums, HalvesRoundToNearestEven) {
  auto sum = [](float a, float b) {
    auto half = [](float value) {
      return static_cast<uint16_t>(value == 2048 ? 0x6800 : value == 1 ? 0x3c00 : 0x4200);
    };
    std::vector<uint16_t> left{half(a)}, right{half(b)};
    std::byte *into = reinterpret_cast<std::byte *>(left.data());
    const std::byte *parts[] = {into, reinterpret_cast<std::byte *>(right.data())};
    sumParts(into, parts, plan::F16, 1);
    return left[0];
  };
  EXPECT_EQ(sum(2048, 1), 0x6800); // 2049 is a tie between 2048 and 2050: rounds to even
  EXPECT_EQ(sum(2048, 3), 0x6802); // 2051 is a tie between 2050 and 2052
  std::vector<uint16_t> most{0x7bff}, more{0x7bff};
  std::byte *into = reinterpret_cast<std::byte *>(most.data());
  const std::byte *parts[] = {into, reinterpret_cast<std::byte *>(more.data())};
  sumParts(into, parts, plan::F16, 1);
  EXPECT_EQ(most[0], 0x7c00); // beyond 65504: infinity
}

TEST(Communicator, ShardsOfReduceScatterAndAllGatherMakeAnAllReduce) {
  // Several blocks; counts that are no multiple of the ranks; fewer elements than ranks, so that the last ranks own
  // none.
  const std::vector<size_t> counts{5003, 12000, 2, 1, 64};
  for (uint32_t size : {1u, 2u, 3u, 4u})
    asRanks(size, [&](Communicator &ranks) {
      std::vector<std::vector<double>> given, sums, shards, gathered;
      std::vector<ShardedPiece> sources, results;
      std::vector<Piece> own, whole;
      for (size_t i = 0; i < counts.size(); ++i) {
        given.push_back(contribution<double>(ranks.rank() + 10 * static_cast<uint32_t>(i), counts[i]));
        shards.emplace_back((counts[i] + size - 1) / size, -1.0);
        gathered.emplace_back(counts[i], -1.0);
      }
      sums = given;
      for (size_t i = 0; i < counts.size(); ++i) {
        const uint64_t bytes = shards[i].size() * sizeof(double);
        sources.push_back({pieceOf(given[i], 0, counts[i]), bytes});
        results.push_back({pieceOf(gathered[i], 0, counts[i]), bytes});
        own.push_back(pieceOf(shards[i], 0, shards[i].size()));
        whole.push_back(pieceOf(sums[i], 0, counts[i]));
      }
      const std::vector<std::vector<double>> before = given;
      ASSERT_TRUE(ranks.reduceScatter(sources, own, plan::F64).ok());
      EXPECT_EQ(given, before);
      ASSERT_TRUE(ranks.allReduce(whole, plan::F64).ok());
      for (size_t i = 0; i < counts.size(); ++i) {
        const Piece part = results[i].part(ranks.rank());
        std::memcpy(part.data, shards[i].data(), part.bytes);
        for (size_t k = part.bytes / sizeof(double); k < shards[i].size(); ++k)
          EXPECT_EQ(shards[i][k], -1.0) << "padding is left alone";
      }
      ASSERT_TRUE(ranks.allGather(results).ok());
      EXPECT_EQ(gathered, sums);
    });
}

TEST(Communicator, BroadcastTextsAndBitsReachEveryRank) {
  asRanks(3, [](Communicator &ranks) {
    std::vector<uint8_t> bytes(100000, static_cast<uint8_t>(ranks.rank() + 1));
    const Piece piece = pieceOf(bytes, 0, bytes.size());
    ASSERT_TRUE(ranks.broadcast({&piece, 1}, 2).ok());
    EXPECT_EQ(bytes, std::vector<uint8_t>(100000, 3));
    auto texts = ranks.gatherTexts(std::string(ranks.rank() * 1000, 'x'));
    ASSERT_TRUE(texts.ok()) << texts.message();
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ((*texts)[rank].size(), rank * 1000);
    auto bits = ranks.anyOf(uint64_t(1) << ranks.rank());
    ASSERT_TRUE(bits.ok());
    EXPECT_EQ(*bits, 7u);
    EXPECT_TRUE(ranks.barrier().ok());
    EXPECT_GT(ranks.counts().sentBytes, 0u);
  });
}

TEST(Communicator, ARankThatCallsSomethingElseIsNamed) {
  asRanks(3, [](Communicator &ranks) {
    std::vector<float> values(8, 1);
    const Piece piece = pieceOf(values, 0, ranks.rank() == 2 ? 4 : 8);
    Status status = ranks.allReduce({&piece, 1}, plan::F32);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("different collectives"), std::string::npos) << status.message();
  });
}

TEST(Communicator, AnAbortReachesRanksThatWait) {
  const auto begun = std::chrono::steady_clock::now();
  asRanks(3, [](Communicator &ranks) {
    if (ranks.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ranks.abort("step 7: the data is damaged");
      return;
    }
    Status status = ranks.barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("rank 1 (host"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("step 7: the data is damaged"), std::string::npos) << status.message();
    // Later calls fail at once, for the same reason.
    EXPECT_EQ(ranks.barrier().message(), status.message());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

/// A program that embeds a rank decides by itself about SIGPIPE, whose default action ends the process.
TEST(Communicator, APeerThatClosedItsConnectionsRaisesNoSignal) {
  struct sigaction byDefault {}, before{};
  byDefault.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &byDefault, &before), 0);
  std::vector<std::byte> much(size_t(1) << 20);
  auto listener = listenOn("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.message();
  auto socket = connectTo("127.0.0.1", *portOf(*listener), deadlineIn(20));
  ASSERT_TRUE(socket.ok()) << socket.message();
  int problem = 0;
  acceptNow(*listener, problem).close();
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i)
    status = sendAll(*socket, much, deadlineIn(20));
  EXPECT_FALSE(status.ok());
  // The connections of a job, likewise.
  std::latch closed(1);
  asRanksOf(2, 1, [&](std::unique_ptr<Links> links) {
    if (links->rank() == 1) {
      links.reset();
      closed.count_down();
      return;
    }
    closed.wait();
    Status exchanged;
    for (int i = 0; i < 100 && exchanged.ok(); ++i) {
      Transfer transfer{.peer = 1, .send = true, .parts = {{much.data(), much.size()}}};
      exchanged = links->exchange({&transfer, 1});
    }
    EXPECT_FALSE(exchanged.ok());
  });
  ASSERT_EQ(::sigaction(SIGPIPE, &before, nullptr), 0);
}

TEST(Communicator, RanksThatDoNotAgreeOnTheirNumberAreNamed) {
  auto listener = listenOn("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  auto port = portOf(*listener);
  RankPlace first, second;
  first.size = 2;
  second.rank = 1;
  second.size = 3;
  first.address = second.address = "127.0.0.1";
  first.port = second.port = *port;
  first.listener = ::dup(listener->get());
  listener->close();
  std::thread other([&] { EXPECT_FALSE(connectRanks(second, 2).ok()); });
  auto links = connectRanks(first, 2);
  other.join();
  ASSERT_FALSE(links.ok());
  EXPECT_NE(links.message().find("3 ranks"), std::string::npos) << links.message();
}

TEST(Communicator, MissingRanksAreNamed) {
  RankPlace place;
  place.size = 3;
  place.address = "127.0.0.1";
  auto links = connectRanks(place, 0.2);
  ASSERT_FALSE(links.ok());
  EXPECT_NE(links.message().find("ranks 1, 2 of 3 have not come in time"), std::string::npos) << links.message();
}

TEST(NullGroup, CountsBytesAndComparesSequences) {
  auto group = makeNullGroup(4);
  std::vector<float> values(1000, 1);
  const Piece piece = pieceOf(values, 0, values.size());
  for (auto &ranks : group)
    EXPECT_TRUE(ranks->allReduce({&piece, 1}, plan::F32).ok());
  EXPECT_EQ(group[0]->counts().sentBytes, 6000u); // 2 · 3/4 of 4000
  EXPECT_EQ(values, std::vector<float>(1000, 1));
  const ShardedPiece sharded{piece, 1004}; // 251 elements, the last rank has 247
  for (auto &ranks : group)
    EXPECT_TRUE(ranks->reduceScatter({&sharded, 1}, {&piece, 1}, plan::F32).ok());
  EXPECT_EQ(group[0]->counts().sentBytes, 6000u + 2996u);
  EXPECT_TRUE(group[1]->barrier().ok());
  Status status = group[2]->broadcast({&piece, 1}, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("rank 2 does a broadcast"), std::string::npos) << status.message();
}
