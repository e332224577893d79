//===- MeetingTest.cpp - who joins a job, and who does not ---------------===//
//
// Each rank is a thread with connections of its own, beside strangers on the same port.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Host.h"
#include "runtime/parallel/Secret.h"
#include "runtime/parallel/SharedMemory.h"
#include "runtime/parallel/Tcp.h"
#include "test/support/Shown.h"

#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// A job whose rank 0 is already listening.
struct Job {
  explicit Job(uint32_t size, const std::string &address = "127.0.0.1") : size(size), address(address) {
    auto made = listenOn("", 0);
    EXPECT_TRUE(made.ok()) << made.message();
    port = *portOf(*made);
    listener = ::dup(made->get());
  }

  RankPlace place(uint32_t rank) const {
    RankPlace place;
    place.rank = rank;
    place.size = size;
    place.address = address;
    place.port = port;
    place.trust.secret = "a secret of this test";
    place.listener = rank == 0 ? listener : -1;
    return place;
  }

  /// Starts a rank with this place. When it has joined or failed, adds its message to `messages`, empty if it joined.
  void start(RankPlace place, double seconds = 30) {
    threads.emplace_back([this, place = std::move(place), seconds] {
      auto links = connectRanks(place, seconds);
      std::unique_lock lock(mutex);
      messages.emplace_back(links.ok() ? "" : links.message());
      if (links.ok()) // kept open until the others have joined
        joined.push_back(links.take());
    });
  }
  void start(uint32_t rank) { start(place(rank)); }

  /// Waits for all ranks; returns how many joined.
  size_t wait() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
    return joined.size();
  }
  std::string refusals() const {
    std::string all;
    for (const std::string &message : messages)
      all += message + (message.empty() ? "" : "\n");
    return all;
  }

  uint32_t size;
  std::string address;
  uint16_t port = 0;
  int listener = -1;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::string> messages;
  std::vector<std::unique_ptr<Links>> joined;
};

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }
} // namespace

TEST(Secret, AProofIsOfOneEndOneSecretAndTheNumbersOfBothEnds) {
  const Nonce one = *drawNonce(), other = *drawNonce();
  EXPECT_NE(one, other);
  const Proof proof = proofOf("secret", End::Connecting, one, other);
  EXPECT_TRUE(isSame(proof, proofOf("secret", End::Connecting, one, other)));
  EXPECT_FALSE(isSame(proof, proofOf("Secret", End::Connecting, one, other)));
  EXPECT_FALSE(isSame(proof, proofOf("", End::Connecting, one, other)));
  EXPECT_FALSE(isSame(proof, proofOf("secret", End::Accepting, one, other)));
  EXPECT_FALSE(isSame(proof, proofOf("secret", End::Connecting, other, one)));
}

TEST(Meeting, StrangersHoldUpNobody) {
  Job job(3);
  const RankPlace late = job.place(2);
  std::vector<Descriptor> strangers;
  auto connect = [&] {
    auto link = connectTo("127.0.0.1", job.port, deadlineIn(5));
    ASSERT_TRUE(link.ok()) << link.message();
    strangers.push_back(link.take());
  };
  for (int i = 0; i < 100; ++i)
    connect(); // a stranger that sends nothing
  job.start(0);
  job.start(1);
  const std::string request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n" + std::string(60, 'x');
  for (int i = 0; i < 20; ++i) {
    connect();
    const Descriptor &link = strangers.back();
    (void)sendAll(link, std::as_bytes(std::span(request)).first(i % 2 ? request.size() : 9), deadlineIn(1));
  }
  job.start(late, 20);
  EXPECT_EQ(job.wait(), 3u) << job.refusals();
}

TEST(Meeting, WhoDoesNotProveTheSecretIsTurnedAway) {
  for (const char *secret : {"", "another secret of this test"}) {
    Job job(2);
    job.start(0);
    RankPlace stranger = job.place(1);
    stranger.trust.secret = secret;
    stranger.trust.insecure = true;
    auto links = connectRanks(stranger, 20);
    ASSERT_FALSE(links.ok());
    EXPECT_TRUE(contains(links.message(), "TRUN_JOB_SECRET_FILE")) << links.message();
    job.start(1); // and the job goes on
    EXPECT_EQ(job.wait(), 2u) << job.refusals();
  }
}

TEST(Meeting, ARankZeroThatDoesNotProveTheSecretIsLeft) {
  Job job(2);
  RankPlace first = job.place(0);
  first.trust.secret = "another secret of this test";
  job.start(first, 3);
  auto links = connectRanks(job.place(1), 20);
  ASSERT_FALSE(links.ok());
  EXPECT_TRUE(contains(links.message(), "another secret")) << links.message();
  EXPECT_EQ(job.wait(), 0u);
}

TEST(Meeting, WithoutASecretRanksOfThisMachineAndUserJoin) {
  Job job(2);
  for (uint32_t rank : {0u, 1u}) {
    RankPlace place = job.place(rank);
    place.trust.secret.clear();
    job.start(place);
  }
  EXPECT_EQ(job.wait(), 2u) << job.refusals();
}

TEST(Meeting, RanksOfSeveralMachinesNeedASecret) {
  RankPlace place;
  place.size = 3;
  place.rank = 2;
  place.localSize = 2;
  place.address = "198.51.100.1"; // of the range for documentation (RFC 5737): nobody is there
  place.port = 1;
  const std::string refused = test::shown(connectRanks(place, 20));
  EXPECT_TRUE(contains(refused, "--insecure-ranks")) << refused;
  for (const Trust &trust : {Trust{"", true}, Trust{"a secret of this test", false}}) {
    place.trust = trust;
    const std::string absent = connectRanks(place, 0.1).message();
    EXPECT_TRUE(contains(absent, "rank 2 of 3 waits for rank 0 at 198.51.100.1")) << absent;
  }
}

TEST(Meeting, ARankWithoutARankZeroSaysThatNothingListensThere) {
  Job job(3);
  ::close(job.listener); // rank 0 has ended
  std::vector<std::string> notes;
  RankPlace place = job.place(1);
  place.note = [&](const std::string &text) { notes.push_back(text); };
  place.noteSeconds = 0.5;
  const std::string absent = connectRanks(place, 1.2).message();
  const std::string wanted = fmt::format("rank 1 of 3 waits for rank 0 at 127.0.0.1:{0}: nothing listens at 127.0.0.1, "
                                         "port {0} (Connection refused)",
                                         job.port);
  EXPECT_TRUE(absent.starts_with(wanted)) << absent;
  EXPECT_TRUE(contains(absent, "start all ranks again")) << absent;
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.front(), wanted);
}

TEST(Meeting, RanksThatHaveComeWaitAsLongAsRankZeroForTheOthers) {
  // Rank 1 starts long before rank 0, whose time limit for the others begins when it starts.
  Job job(3);
  job.start(job.place(1), 4);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  job.start(job.place(0), 4);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  job.start(job.place(2), 4);
  EXPECT_EQ(job.wait(), 3u) << job.refusals();
}

TEST(Meeting, ASecondJobAtOnePortIsToldSoAndTheFirstGoesOn) {
  Job job(3);
  RankPlace first = job.place(0), second = job.place(1), third = job.place(2);
  first.job = second.job = third.job = "the run a";
  job.start(first);
  job.start(second);
  RankPlace other = job.place(2);
  other.job = "the run b";
  auto links = connectRanks(other, 20);
  EXPECT_TRUE(contains(links.message(), "rank 0 has the run a, it has the run b")) << links.message();
  EXPECT_TRUE(contains(links.message(), "MASTER_PORT")) << links.message();
  other.rank = 0;
  other.listener = -1;
  links = connectRanks(other, 20);
  EXPECT_TRUE(contains(links.message(), "rank 0 cannot listen on port")) << links.message();
  EXPECT_TRUE(contains(links.message(), "MASTER_PORT")) << links.message();
  job.start(third);
  EXPECT_EQ(job.wait(), 3u) << job.refusals();
}

TEST(Meeting, OfTwoRanksOfOneNumberTheFirstStays) {
  Job job(3);
  job.start(0);
  job.start(1);
  job.start(1);
  while (true) { // wait until one of the two is refused, which happens at once
    std::unique_lock lock(job.mutex);
    if (!job.messages.empty())
      break;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  job.start(2);
  EXPECT_EQ(job.wait(), 3u) << job.refusals();
  EXPECT_TRUE(contains(job.refusals(), "is in this job already")) << job.refusals();
}

TEST(Meeting, ARankThatEndsDuringTheStartEndsTheOthersAndTheMissingAreNamed) {
  Job job(4);
  std::string first, second;
  bool toldByFirst = false, toldBySecond = false;
  std::thread zero([&] { first = connectRanks(job.place(0), 60, &toldByFirst).message(); });
  std::thread one([&] { second = connectRanks(job.place(1), 60, &toldBySecond).message(); });
  EXPECT_FALSE(connectRanks(job.place(2), 0.5).ok()); // gives up and closes its connection
  zero.join();
  one.join();
  EXPECT_TRUE(contains(first, "rank 2 (host ")) << first;
  EXPECT_TRUE(contains(first, "has ended while ranks were still to come: missing rank")) << first;
  EXPECT_TRUE(contains(second, first)) << second;
  EXPECT_FALSE(toldByFirst);
  EXPECT_TRUE(toldBySecond) << "rank 0 tells it";
}

TEST(Meeting, RanksMeetAtAnAddressOfIPv6) {
  if (!listenOn("::1", 0).ok())
    GTEST_SKIP() << "this machine has no IPv6";
  Job job(3, "::1");
  for (uint32_t rank : {0u, 1u, 2u})
    job.start(rank);
  EXPECT_EQ(job.wait(), 3u) << job.refusals();
}

TEST(Meeting, NamesOfLoopbackAddressesAreKnown) {
  for (const char *address : {"127.0.0.1", "127.0.1.1", "::1", "localhost", "::ffff:127.0.0.1"})
    EXPECT_TRUE(isLoopback(address)) << address;
  for (const char *address : {"10.0.0.1", "fd77::1", "node0", "localhost0", "::ffff:10.0.0.1", ""})
    EXPECT_FALSE(isLoopback(address)) << address;
}

TEST(SharedMemory, MemoryThatItsOwnerCouldTakeAwayIsNotMapped) {
  auto own = SharedMemory::make(0, 2, 2), theirs = SharedMemory::make(1, 2, 2);
  ASSERT_TRUE(own && theirs);
  const auto process = static_cast<uint32_t>(::getpid());
  const SharedOffer sealed = theirs->offer();
  EXPECT_NE(::ftruncate(sealed.descriptor, 0), 0) << "its size is sealed";
  // The same bytes in unsealed memory are refused.
  Descriptor file(::memfd_create("trun-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const off_t bytes = ::lseek(sealed.descriptor, 0, SEEK_END);
  std::vector<std::byte> head(4096);
  ASSERT_EQ(::pread(sealed.descriptor, head.data(), head.size(), 0), 4096);
  ASSERT_EQ(::pwrite(file.get(), head.data(), head.size(), 0), 4096);
  ASSERT_EQ(::ftruncate(file.get(), bytes), 0);
  SharedOffer open = sealed;
  open.descriptor = file.get();
  EXPECT_FALSE(own->open(1, process, open));
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_TRUE(own->open(1, process, open));
  EXPECT_TRUE(own->open(1, process, sealed));
}
