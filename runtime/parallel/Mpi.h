//===- Mpi.h - ranks that MPI started ------------------------------------===//
//
// MPI gives each rank its number and carries the messages of collectives. Sums, their order and the headers are those
// of Collectives.h, so results have the same bits as with any other launcher. Signs of life have their own TCP
// connections, whose addresses are exchanged over MPI: a rank that stops inside MPI can still be named.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_MPI_H
#define TCC_RUNTIME_PARALLEL_MPI_H

#include "runtime/parallel/Tcp.h"

#include <memory>
#include <optional>
#include <string>

namespace tcc::runtime {

/// How an MPI launcher shows that it started this process.
struct MpiStart {
  std::string variable;         ///< "OMPI_COMM_WORLD_SIZE=4"
  std::optional<uint64_t> size; ///< of the job, if the launcher sets it
};

/// Reads the variables of Open MPI's mpirun, of PMIx and PMI, and of a Slurm step. Nothing: none of them is set.
std::optional<MpiStart> mpiFromEnvironment();

struct MpiJob {
  RankPlace place;
  std::unique_ptr<Links> links; ///< null: this process is the only rank
};

/// Opens the plug-in, joins the job, and connects this rank to all others. Error: the plug-in or MPI itself is missing
/// (the message says what to install), or not all ranks arrived within `seconds`.
Expected<MpiJob> joinMpi(const MpiStart &start, double seconds = 120);

/// Leaves the job. If `status` is not 0, endMpi ends all processes of the job, so that this one can still report the
/// reason. Does nothing without a job. Error: MPI could not end in order, which undoes nothing of the job.
Status leaveMpi(int status);

/// For the end of the process: ends all processes of a job that this one joined and did not leave with status 0. Rank 0
/// gets two seconds to report the failure first. Does not return if it ends them.
void endMpi();

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_MPI_H
