//===- Launches.h - group tiles into launches ----------------------------===//
//
// An instruction's tiles are one launch, or one for each stage of a library call, and the next instruction waits for
// the last of them. An instruction that may run concurrently with later ones (Instruction.beside) has no launch of its
// own: its tiles are spread over the launches of these library calls. It is memory-bound and they are compute-bound, so
// some workers run its tiles while others multiply; otherwise all workers would wait for memory at once.
//
// Any worker may run any tile, and the result of a tile does not depend on that.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_LAUNCHES_H
#define TCC_RUNTIME_CPU_LAUNCHES_H

#include "runtime/plan/PlanFile.h"

#include <cstdint>
#include <vector>

namespace tcc::runtime {

/// Tiles [begin, end) of one stage of an instruction.
struct Share {
  int instruction, stage;
  int64_t begin, end;
};

/// Shares that any worker may take, in this order. A single share is handed out tile by tile.
struct Launch {
  std::vector<Share> shares;
};

/// The tiles of one instruction.
struct InstructionTiles {
  std::vector<int64_t> stages; ///< tiles of each stage, which run one after another
  int longest = 0;             ///< the stage that takes most of the time
};

/// The launches of an entry, in order. `tiles` has one element per instruction.
std::vector<Launch> launchesOf(const plan::Entry &entry, const std::vector<InstructionTiles> &tiles, unsigned workers);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LAUNCHES_H
