//===- collectives.cpp - the time of an all-reduce between processes ------===//
//
// `collectives-bench RANKS`: ranks on this machine sum f32 over the loopback address; a line for each size. Beside it:
// test/bench/collectives.py, the same by torch's gloo. docs/measurements/ranks.md has numbers.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/Launch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace tcc;
using namespace tcc::runtime;

int main(int argc, char **argv) {
  auto started = startRanks(argc > 1 ? static_cast<uint32_t>(std::max(1, std::atoi(argv[1]))) : 2);
  if (!started || !started->place)
    return started ? started->exitCode : kExitFault;
  auto links = connectRanks(*started->place);
  if (!links) {
    std::fprintf(stderr, "%s\n", links.message().c_str());
    return kExitFault;
  }
  auto ranks = makeCommunicator(links.take());
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
  return kExitDone;
}
