//===- Tcp.h - ranks that are processes on any machines ------------------===//
//
// Ranks find each other by rank 0, which listens at an address that all know, and then each has a connection with every
// other: one for collectives, and with rank 0 another for signs of life (Watch.h). Each end of a connection proves that
// it is of the job (Secret.h); what follows is not encrypted.
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
  std::string portName;     ///< what the port is, where that is no variable's value; for messages
  Trust trust;              ///< the same on all ranks of a job
  std::string job = {};     ///< likewise, in words for messages, another one where two jobs can be told apart
  std::string machine = {}; ///< the same text on the same machine; empty: as machineName says
  bool launched = false;    ///< by startRanks, with its own processors
  bool bound = false;       ///< by another launcher to processors of its own
  int listener = -1;        ///< of rank 0: a socket that listens there already, which it takes over; -1: none
  std::function<void(const std::string &)> note = nullptr; ///< hears of ranks that are missing, and of strangers
  double noteSeconds = 10;                                 ///< between notes on ranks that are missing
};

/// Connects this rank with all others; every rank of the job calls it. Error: not all ranks came within so many
/// seconds, one has ended meanwhile, this one is not of the job that meets there, or the ranks do not agree on how many
/// they are. `told`, if given: another process tells the error, rank 0 or startRanks.
Expected<std::unique_ptr<Links>> connectRanks(const RankPlace &place, double seconds = 120, bool *told = nullptr);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_TCP_H
