//===- Tcp.h - ranks that are processes on any machines ------------------===//
//
// Ranks find each other by rank 0, which listens at an address that all know, and then each has a connection with every
// other: one for collectives, and with rank 0 another for signs of life (Watch.h). Connections are neither encrypted
// nor authenticated beyond the job's token: use them on networks that you trust.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_TCP_H
#define TCC_RUNTIME_PARALLEL_TCP_H

#include "runtime/parallel/Links.h"
#include "runtime/parallel/Socket.h"

#include <memory>

namespace tcc::runtime {

/// A rank's place in its job.
struct RankPlace {
  uint32_t rank = 0, size = 1;
  uint32_t localRank = 0, localSize = 1; ///< among the ranks of this machine
  std::string address;                   ///< where rank 0 listens
  uint16_t port = 0;
  uint64_t token = 0;    ///< the same on all ranks of a job
  bool launched = false; ///< by startRanks, with its own processors
  bool bound = false;    ///< by another launcher to processors of its own
  int listener = -1;     ///< of rank 0: a socket that listens there already, which it takes over; -1: none
};

/// Connects this rank with all others; every rank of the job calls it. Error: not all ranks came within so many
/// seconds, two have the same number, or they do not agree on how many they are.
Expected<std::unique_ptr<Links>> connectRanks(const RankPlace &place, double seconds = 120);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_TCP_H
