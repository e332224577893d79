//===- collectives.cpp - the time of an all-reduce between processes ------===//
//
// `collectives-bench RANKS`: ranks on this machine all-reduce f32 arrays and print a line for each size;
// `mpirun -n RANKS collectives-bench` does so over MPI, `collectives-bench RANKS tcp` over the loopback address.
// test/bench/collectives.py times the same with torch's gloo. docs/measurements/ranks.md has numbers.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/Mpi.h"
#include "tools/common/ExitStatus.h"
#include "tools/trun/OnRanks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

/// Joins this process to the job as a rank. Null, with `status` set, if it only started the ranks or could not join.
static std::unique_ptr<Links> linksOf(int argc, char **argv, int &status) {
  status = kExitFault;
  Expected<std::unique_ptr<Links>> links = Status("no rank");
  if (auto start = mpiFromEnvironment()) {
    auto job = joinMpi(*start);
    if (job)
      links = std::move(job->links);
    else
      links = job.status();
  } else {
    auto started = startRanks(argc > 1 ? static_cast<uint32_t>(std::max(1, std::atoi(argv[1]))) : 2);
    if (started && !started->place) {
      status = started->exitStatus;
      return nullptr;
    }
    if (started && argc > 2 && std::string_view(argv[2]) == "tcp")
      started->place->localSize = 1;
    links = started ? connectRanks(*started->place) : started.status();
  }
  if (links)
    return links.take();
  std::fprintf(stderr, "%s\n", links.message().c_str());
  return nullptr;
}

int main(int argc, char **argv) {
  int status = kExitDone;
  auto links = linksOf(argc, argv, status);
  if (!links)
    return status;
  auto made = makeCommunicator(std::move(links));
  if (!made) {
    std::fprintf(stderr, "%s\n", made.message().c_str());
    return kExitFault;
  }
  auto ranks = made.take();
  for (uint64_t bytes : {uint64_t(4), uint64_t(4096), uint64_t(1) << 20, uint64_t(25) << 20, uint64_t(100) << 20}) {
    std::vector<float> values(bytes / sizeof(float), 1);
    const Piece piece{reinterpret_cast<std::byte *>(values.data()), bytes};
    double best = 1e9;
    for (int i = 0; i < (bytes < 100000 ? 300 : 12); ++i) {
      const auto begun = std::chrono::steady_clock::now();
      if (Status status = ranks->allReduce({&piece, 1}, plan::F32); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.message().c_str());
        return kExitFault;
      }
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    }
    if (ranks->rank() == 0)
      std::printf("%u ranks, %llu bytes: %.1f us, %.2f GB/s\n", ranks->size(), static_cast<unsigned long long>(bytes),
                  best * 1e6, static_cast<double>(bytes) / best / 1e9);
  }
  ranks = nullptr;
  (void)leaveMpi(kExitDone);
  return kExitDone;
}
