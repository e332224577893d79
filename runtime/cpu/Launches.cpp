//===- Launches.cpp - group tiles into launches --------------------------===//
#include "runtime/cpu/Launches.h"

#include <algorithm>
#include <utility>

namespace tcc::runtime {

namespace {
/// An instruction whose tiles from `next` on are still to be added to launches of instructions up to `last`.
struct Waiting {
  int instruction, last;
  int64_t next;
};

constexpr int64_t kLeastTiles = 8; // per worker: with fewer, workers would wait for the last tile of another

class Builder {
public:
  Builder(const plan::Entry &entry, const std::vector<InstructionTiles> &tiles, unsigned workers)
      : entry(entry), tiles(tiles), workers(workers) {}

  std::vector<Launch> build() {
    for (int i = 0; i < entry.instructions_size(); ++i) {
      int last = i + entry.instructions(i).beside();
      // Collectives do not run on workers: the device has a thread for them.
      if (workers > 1 && !entry.instructions(i).has_collective() && callsUntil(i + 1, last) > 0)
        waiting.push_back({i, last, 0});
      else
        launch(i);
      finish(i);
    }
    return std::move(launches);
  }

private:
  /// True if other tiles can run in the instruction's launch without delaying it.
  bool hosts(int i) const {
    const plan::Instruction &instruction = entry.instructions(i);
    const InstructionTiles &own = tiles[static_cast<size_t>(i)];
    bool multiplies =
        instruction.has_convolution() || (instruction.has_matmul() && !instruction.matmul().has_row_kernel());
    return multiplies && own.stages[static_cast<size_t>(own.longest)] >= kLeastTiles * workers;
  }

  /// Nanoseconds, by the planner's cost model, of the library calls in instructions [first, last] that can host others.
  double callsUntil(int first, int last) const {
    double sum = 0;
    for (int i = first; i <= last; ++i)
      if (hosts(i))
        sum += static_cast<double>(entry.instructions(i).cost());
    return sum;
  }

  void launch(int i) {
    const InstructionTiles &own = tiles[static_cast<size_t>(i)];
    for (int stage = 0; stage < static_cast<int>(own.stages.size()); ++stage) {
      Share all{i, stage, 0, own.stages[static_cast<size_t>(stage)]};
      if (all.end == 0)
        continue;
      if (stage == own.longest && hosts(i))
        launchWith(all);
      else
        launches.push_back({{all}});
    }
  }

  /// Launches a library call together with a part of the waiting instructions' tiles, in proportion to its time.
  void launchWith(const Share &call) {
    std::vector<Share> parts;
    for (Waiting &from : waiting) {
      int64_t all = tiles[static_cast<size_t>(from.instruction)].stages[0];
      double part =
          static_cast<double>(entry.instructions(call.instruction).cost()) / callsUntil(call.instruction, from.last);
      int64_t count =
          std::min(all - from.next, static_cast<int64_t>(part * static_cast<double>(all - from.next) + 0.5));
      if (count > 0)
        parts.push_back({from.instruction, 0, from.next, from.next + count});
      from.next += count;
    }
    if (parts.empty()) {
      launches.push_back({{call}});
      return;
    }
    parts.push_back(call);
    launches.push_back({spread(parts)});
  }

  /// Cuts each part into about as many shares as a launch of its own would hand out at first, interleaved evenly.
  std::vector<Share> spread(const std::vector<Share> &parts) const {
    std::vector<std::pair<double, Share>> placed;
    for (const Share &part : parts) {
      int64_t count = part.end - part.begin, size = std::max<int64_t>(1, count / (4 * static_cast<int64_t>(workers)));
      for (int64_t begin = part.begin; begin < part.end; begin += size) {
        Share share{part.instruction, part.stage, begin, std::min(begin + size, part.end)};
        placed.emplace_back((static_cast<double>(begin - part.begin) + 0.5) / static_cast<double>(count), share);
      }
    }
    std::stable_sort(placed.begin(), placed.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<Share> result;
    for (const auto &[position, share] : placed)
      result.push_back(share);
    return result;
  }

  /// Launches the remaining tiles of instructions that may run concurrently with no instruction after i.
  void finish(int i) {
    std::erase_if(waiting, [&](const Waiting &from) {
      int64_t all = tiles[static_cast<size_t>(from.instruction)].stages[0];
      if (from.next < all && from.last <= i)
        launches.push_back({{{from.instruction, 0, from.next, all}}});
      return from.next == all || from.last <= i;
    });
  }

  const plan::Entry &entry;
  const std::vector<InstructionTiles> &tiles;
  unsigned workers;
  std::vector<Waiting> waiting;
  std::vector<Launch> launches;
};
} // namespace

std::vector<Launch> launchesOf(const plan::Entry &entry, const std::vector<InstructionTiles> &tiles, unsigned workers) {
  return Builder(entry, tiles, workers).build();
}

} // namespace tcc::runtime
