//===- Meeting.h - how the ranks of a job find each other ----------------===//
//
// Rank 0 listens at an address that all know. Every other rank connects to it, says who it is, and hears about all once
// all are there (meet). This connection stays for signs of life (Watch.h). Then each rank connects with every other for
// messages (connect), while the watch tells who ends meanwhile. Whoever connects is proved first (Greeting.h).
//
// Addresses: a rank is known by the address that its connection to rank 0 comes from. That of a rank on rank 0's
// machine may be a loopback address, so each rank reaches those where it reaches rank 0.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_MEETING_H
#define TCC_RUNTIME_PARALLEL_MEETING_H

#include "runtime/parallel/Greeting.h"
#include "runtime/parallel/SharedMemory.h"
#include "runtime/parallel/Tcp.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

class Watch;

/// What the ranks of a job know of one of them.
struct RankEntry {
  uint32_t process = 0, port = 0; ///< where it listens
  SharedOffer memory;
  std::string host, machine;
  std::string address; ///< numeric; empty: that of rank 0
};

/// True if the job has failed and another process tells it: rank 0, whose name is `first`, tells of every failure but
/// its own end, and startRanks of that.
bool isTold(Watch &alive, const RankPlace &place, const std::string &first);

class Meeting {
public:
  Meeting(const RankPlace &place, double seconds);

  /// Returns when all ranks are there. With `shared`, tells the others where this rank's memory is. Error: as
  /// connectRanks.
  Status meet(const SharedMemory *shared = nullptr);
  /// Connects this rank with every other for messages. Error: `watch` knows it, too.
  Status connect(Watch &watch);

  /// "rank 2 (host a, process 4711)", by rank.
  std::vector<std::string> names() const;

  /// After an error: rank 0 has it, too, and tells it, or startRanks does.
  bool told = false;

  std::vector<Descriptor> data, watch; ///< by rank
  std::vector<RankEntry> table;        ///< by rank

private:
  struct Hello;
  Status gather(Door &door);
  /// Takes the guest in, or turns it away. Error: the job cannot begin.
  Status receive(Guest guest);
  Status join();
  /// "rank 2", "ranks 2, 3 and 5 more": those from `first` on without a link.
  std::string missing(const std::vector<Descriptor> &links, uint32_t first) const;
  void note(const std::string &text) const;

  const RankPlace &place;
  const double seconds; ///< that each part may take
  uint64_t job = 0;     ///< a number of rank 0's, which ranks say on later connections
  std::optional<Door> door;
  mutable int notes = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_MEETING_H
