//===- Tcp.h - ranks that are processes on any machines ------------------===//
//
// Ranks find each other through rank 0, which listens at an address that all know. Then each rank has a connection to
// every other for collectives, and one to rank 0 for signs of life (Watch.h). Both ends of a connection prove that they
// belong to the job (Secret.h); the data that follows is not encrypted.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_TCP_H
#define TCC_RUNTIME_PARALLEL_TCP_H

#include "runtime/parallel/Links.h"
#include "runtime/parallel/Secret.h"
#include "runtime/parallel/Socket.h"

#include <functional>
#include <memory>
#include <string>

namespace tcc::runtime {

/// A rank's place in its job.
struct RankPlace {
  uint32_t rank = 0, size = 1;
  uint32_t localRank = 0, localSize = 1; ///< among the ranks of this machine
  std::string address;                   ///< where rank 0 listens
  uint16_t port = 0;
  std::string portName;     ///< for messages: how the port was chosen, if it is not the value of a variable
  Trust trust;              ///< the same on all ranks of a job
  std::string job = {};     ///< likewise: a name for messages, different for jobs that can be told apart
  std::string machine = {}; ///< the same text on the same machine; empty: machineName()
  bool launched = false;    ///< started by startRanks, with its own processors
  bool bound = false;       ///< another launcher bound it to its own processors
  int listener = -1;        ///< rank 0: a socket that already listens at the address and is taken over; -1: none
  std::function<void(const std::string &)> note = nullptr; ///< called about missing ranks and about strangers
  double noteSeconds = 10;                                 ///< between notes about missing ranks
};

/// Connects this rank to all others; every rank of the job calls it. Error: not all ranks arrived within `seconds`, one
/// has ended meanwhile, this one does not belong to the job at that address, or the ranks disagree about their number.
/// `told`, if given: set if another process (rank 0 or startRanks) reports the error.
Expected<std::unique_ptr<Links>> connectRanks(const RankPlace &place, double seconds = 120, bool *told = nullptr);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_TCP_H
