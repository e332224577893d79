//===- Mpi.h - ranks that MPI started ------------------------------------===//
//
// MPI tells ranks who they are, and carries the messages of collectives; sums, their order and the headers are those of
// Collectives.h, so that the bits are those of any other start. Signs of life have TCP connections of their own, whose
// addresses come over MPI: a rank that stops inside MPI is named all the same.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_MPI_H
#define TCC_RUNTIME_PARALLEL_MPI_H

#include "runtime/parallel/Tcp.h"

#include <memory>
#include <optional>
#include <string>

namespace tcc::runtime {

/// How a launcher of MPI says that it started this process.
struct MpiStart {
  std::string variable;         ///< "OMPI_COMM_WORLD_SIZE=4"
  std::optional<uint64_t> size; ///< of the job, where the launcher tells
};

/// By the variables of Open MPI's mpirun, of PMIx and PMI, and of a step of Slurm's. Nothing: none of them is set.
std::optional<MpiStart> mpiFromEnvironment();

struct MpiJob {
  RankPlace place;
  std::unique_ptr<Links> links; ///< null: this process is the only rank
};

/// Opens the plug-in, joins the job, and connects this rank with all others. Error: the plug-in or MPI itself is
/// missing, with what to install; or not all ranks came within so many seconds.
Expected<MpiJob> joinMpi(const MpiStart &start, double seconds = 120);

/// Leaves the job: in order, or where `status` is not 0 by ending all of its processes when this one exits, which
/// leaves the time to say why. Nothing where there was none.
void leaveMpi(int status);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_MPI_H
