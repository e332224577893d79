//===- Launches.h - which tiles are handed out together ------------------===//
//
// An instruction's tiles are one launch, or one for each stage of a library call, and the next instruction waits for
// the last of them. An instruction that the plan lets run beside later ones (Instruction.beside) has no launch of its
// own: its tiles are spread over the launches of the library calls beside it. It waits for memory while they multiply,
// so of two workers one does the one, one the other; both at once would wait for memory together.
//
// Which worker runs a tile is chance, as always; what a tile computes is not, so no result depends on any of this.
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

/// What the launches of one instruction are made of.
struct InstructionTiles {
  std::vector<int64_t> stages; ///< tiles of each stage, which run one after another
  int longest = 0;             ///< the stage that takes most of its time
};

/// The launches of an entry, in order. `tiles` has an element an instruction.
std::vector<Launch> launchesOf(const plan::Entry &entry, const std::vector<InstructionTiles> &tiles, unsigned workers);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_LAUNCHES_H
