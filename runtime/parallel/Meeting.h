//===- Meeting.h - how the ranks of a job find each other ----------------===//
//
// Rank 0 listens at an address that all know. Every other rank connects to it, identifies itself, and gets the table of
// all ranks once all have arrived (meet). This connection stays open for signs of life (Watch.h). Then each rank
// connects to every other for messages (connect), while the watch reports ranks that end meanwhile. Every connection
// begins with the handshake of Greeting.h.
//
// Addresses: a rank is known by the address from which it connects to rank 0. For a rank on rank 0's machine that may
// be a loopback address, so other ranks reach it at the address at which they reach rank 0.
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

/// One rank in the table that all ranks get.
struct RankEntry {
  uint32_t process = 0, port = 0; ///< where it listens
  SharedOffer memory;
  std::string host, machine;
  std::string address; ///< numeric; empty: that of rank 0
};

/// True if the job has failed and another process reports it: rank 0, whose name is `first`, reports every failure
/// except its own death, which startRanks reports.
bool isTold(Watch &alive, const RankPlace &place, const std::string &first);

class Meeting {
public:
  Meeting(const RankPlace &place, double seconds);

  /// Returns when all ranks have arrived. `shared`: this rank's memory, to be offered to the others. Error: as
  /// connectRanks.
  Status meet(const SharedMemory *shared = nullptr);
  /// Connects this rank to every other for messages. An error is also reported to `watch`.
  Status connect(Watch &watch);

  /// "rank 2 (host a, process 4711)", by rank.
  std::vector<std::string> names() const;

  /// After an error: rank 0 or startRanks reports it.
  bool told = false;

  std::vector<Descriptor> data, watch; ///< by rank
  std::vector<RankEntry> table;        ///< by rank

private:
  struct Hello;
  Status gather(Door &door);
  /// Adds the guest to the job, or refuses it. Error: the job cannot begin.
  Status receive(Guest guest);
  Status join();
  /// "rank 2", "ranks 2, 3 and 5 more": those from `first` on without a link.
  std::string missing(const std::vector<Descriptor> &links, uint32_t first) const;
  void note(const std::string &text) const;

  const RankPlace &place;
  const double seconds; ///< that each part may take
  uint64_t job = 0;     ///< a number drawn by rank 0, which ranks repeat on later connections
  std::optional<Door> door;
  mutable int notes = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_MEETING_H
