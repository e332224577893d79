//===- Meeting.h - how the ranks of a job find each other ----------------===//
//
// Rank 0 listens at an address that all know. Every other rank connects to it, says who it is, and hears about all.
// Then each has a connection with every other for messages, and with rank 0 another for signs of life (Watch.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_MEETING_H
#define TCC_RUNTIME_PARALLEL_MEETING_H

#include "runtime/parallel/SharedMemory.h"
#include "runtime/parallel/Tcp.h"

#include <string>
#include <vector>

namespace tcc::runtime {

/// What a rank says on each connection that it opens.
struct Hello {
  uint64_t magic, token;
  uint32_t use; ///< of the connection
  uint32_t rank, size, process;
  uint32_t port; ///< where this rank listens
  SharedOffer memory;
  char host[64];
};

/// What rank 0 tells the others about each rank.
struct RankEntry {
  uint32_t port, process;
  SharedOffer memory;
  char host[64], address[64];
};

class Meeting {
public:
  Meeting(const RankPlace &place, double seconds);

  /// Connects this rank with all others; without `messages`, only those that watch each other. With `shared`, tells
  /// the others where its memory is. Error: as connectRanks.
  Status run(bool messages, const SharedMemory *shared = nullptr);

  /// "rank 2 (host a, process 4711)", by rank.
  std::vector<std::string> names() const;

  std::vector<Descriptor> data, watch; ///< by rank
  std::vector<RankEntry> table;        ///< by rank

private:
  /// A connection and who is at the other end.
  struct Guest {
    Hello hello;
    Descriptor link;
  };

  Expected<Guest> accept();
  Status gather();
  void fill(uint32_t rank, const Hello &hello, const std::string &address);
  Status join();
  Status connectData();

  const RankPlace &place;
  const Deadline deadline;
  Hello own{};
  Descriptor listener;
  std::vector<Guest> early;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_MEETING_H
