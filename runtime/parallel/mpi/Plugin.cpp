//===- Plugin.cpp - messages by MPI --------------------------------------===//
//
// Only start and finish block inside MPI: where ranks share processors, a blocking call would spin and take processor
// time from the rank that it waits for.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/mpi/Plugin.h"

// Only the C interface.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1

#include <algorithm>
#include <mpi.h>
#include <sched.h>
#include <string>
#include <vector>

namespace {
constexpr uint64_t kMostBlock = uint64_t(1) << 30; // lengths are ints

std::vector<MPI_Request> requests; ///< by number; MPI_REQUEST_NULL: free
std::string problem;

const char *check(int result, const char *call) {
  if (result == MPI_SUCCESS)
    return nullptr;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  problem = std::string(call) + ": " + text;
  return problem.c_str();
}

/// Waits, yielding the processor meanwhile.
const char *waitFor(MPI_Request &request, const char *call) {
  for (int done = 0; !done;) {
    if (const char *failed = check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call))
      return failed;
    if (!done)
      sched_yield();
  }
  return nullptr;
}

const char *start(TrunMpiPlace *place) {
  int given = 0, rank = 0, size = 1, localRank = 0, localSize = 1;
  if (const char *failed = check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread"))
    return failed;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (given < MPI_THREAD_SERIALIZED)
    return "this MPI offers no MPI_THREAD_SERIALIZED: collectives could not run on a thread of their own";
  MPI_Comm machine = MPI_COMM_NULL;
  if (const char *failed = check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
                                 "MPI_Comm_split_type"))
    return failed;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(machine, &localRank);
  MPI_Comm_size(machine, &localSize);
  MPI_Comm_free(&machine);
  *place = {static_cast<uint32_t>(rank), static_cast<uint32_t>(size), static_cast<uint32_t>(localRank),
            static_cast<uint32_t>(localSize)};
  return nullptr;
}

const char *gather(const void *own, uint32_t bytes, void *all) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  if (const char *failed =
          check(MPI_Iallgather(own, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD, &request), "MPI_Iallgather"))
    return failed;
  return waitFor(request, "MPI_Iallgather");
}

const char *post(uint32_t peer, int send, int tag, const TrunMpiPart *parts, uint64_t count, int64_t *number) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  for (uint64_t i = 0; i < count; ++i)
    for (uint64_t at = 0; at < parts[i].bytes; at += kMostBlock) {
      MPI_Aint address = 0;
      MPI_Get_address(static_cast<char *>(parts[i].data) + at, &address);
      places.push_back(address);
      lengths.push_back(static_cast<int>(std::min(kMostBlock, parts[i].bytes - at)));
    }
  MPI_Datatype type = MPI_BYTE;
  void *data = lengths.size() == 1 ? parts[0].data : MPI_BOTTOM;
  int elements = lengths.size() == 1 ? lengths[0] : 1;
  if (lengths.size() != 1) {
    if (const char *failed = check(
            MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_BYTE, &type),
            "MPI_Type_create_hindexed"))
      return failed;
    MPI_Type_commit(&type);
  }
  auto free = std::find(requests.begin(), requests.end(), MPI_REQUEST_NULL);
  if (free == requests.end())
    free = requests.insert(requests.end(), MPI_REQUEST_NULL);
  const int other = static_cast<int>(peer);
  const int result = send ? MPI_Isend(data, elements, type, other, tag, MPI_COMM_WORLD, &*free)
                          : MPI_Irecv(data, elements, type, other, tag, MPI_COMM_WORLD, &*free);
  if (type != MPI_BYTE)
    MPI_Type_free(&type); // MPI frees it once the message is finished
  *number = free - requests.begin();
  return check(result, send ? "MPI_Isend" : "MPI_Irecv");
}

const char *test(int64_t number, int *done) {
  // A finished request becomes MPI_REQUEST_NULL.
  return check(MPI_Test(&requests[static_cast<size_t>(number)], done, MPI_STATUS_IGNORE), "MPI_Test");
}

const char *finish() {
  MPI_Request request = MPI_REQUEST_NULL;
  if (const char *failed = check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier"))
    return failed;
  if (const char *failed = waitFor(request, "MPI_Ibarrier"))
    return failed;
  return check(MPI_Finalize(), "MPI_Finalize");
}

void end(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

constexpr TrunMpi kTable = {TRUN_MPI_VERSION, start, gather, post, test, finish, end};
} // namespace

const TrunMpi *trunMpi() { return &kTable; }
