// Launches run every tile once, in an order that the plan allows.
#include "runtime/cpu/Launches.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

using namespace tcc;
using namespace tcc::runtime;

namespace {

struct Program {
  plan::Entry entry;
  std::vector<InstructionTiles> tiles;

  void kernel(int64_t count, int beside = 0) {
    plan::Instruction &instruction = *entry.add_instructions();
    instruction.mutable_kernel()->set_tiles(count);
    instruction.set_beside(beside);
    tiles.push_back({{count}, 0});
  }
  void product(std::vector<int64_t> stages, uint64_t cost, int longest = 0) {
    plan::Instruction &instruction = *entry.add_instructions();
    instruction.mutable_matmul();
    instruction.set_cost(cost);
    tiles.push_back({std::move(stages), longest});
  }

  /// The launch of each tile of each stage of each instruction. check() expects every tile in exactly one launch.
  struct Found {
    std::map<std::pair<int, int>, std::vector<size_t>> launches;
    std::vector<size_t> &of(int instruction, int stage = 0) { return launches.at({instruction, stage}); }
  };
  Found check(const std::vector<Launch> &launches) const {
    Found result;
    auto &found = result.launches;
    for (size_t i = 0; i < tiles.size(); ++i)
      for (size_t stage = 0; stage < tiles[i].stages.size(); ++stage)
        found[{int(i), int(stage)}].resize(size_t(tiles[i].stages[stage]), SIZE_MAX);
    for (size_t launch = 0; launch < launches.size(); ++launch)
      for (const Share &share : launches[launch].shares)
        for (int64_t tile = share.begin; tile < share.end; ++tile) {
          size_t &at = found.at({share.instruction, share.stage}).at(size_t(tile));
          EXPECT_EQ(at, SIZE_MAX) << "instruction " << share.instruction << ", tile " << tile;
          at = launch;
        }
    for (const auto &[key, where] : found)
      for (size_t launch : where)
        EXPECT_NE(launch, SIZE_MAX) << "instruction " << key.first;
    return result;
  }
};

} // namespace

TEST(Launches, OneForEachStage) {
  Program program;
  program.kernel(7);
  program.product({32, 5}, 100);
  std::vector<Launch> launches = launchesOf(program.entry, program.tiles, 4);
  program.check(launches);
  ASSERT_EQ(launches.size(), 3u);
  for (const Launch &launch : launches)
    EXPECT_EQ(launch.shares.size(), 1u);
}

TEST(Launches, ShareTheTimeOfTheCallsBesideThem) {
  Program program;
  program.kernel(100, 3);
  program.product({32}, 300);
  program.kernel(4);
  program.product({3, 64}, 100, 1);
  program.kernel(5);
  std::vector<Launch> launches = launchesOf(program.entry, program.tiles, 2);
  auto found = program.check(launches);
  // Three quarters of the kernel run beside the first product, the rest beside the long stage of the second.
  size_t first = found.of(1, 0)[0], second = found.of(3, 1)[0];
  EXPECT_EQ(std::count(found.of(0, 0).begin(), found.of(0, 0).end(), first), 75);
  EXPECT_EQ(std::count(found.of(0, 0).begin(), found.of(0, 0).end(), second), 25);
  EXPECT_LT(first, found.of(2, 0)[0]);
  EXPECT_LT(found.of(3, 0)[0], second);
  // The tiles of kernel and product alternate within the launch.
  const std::vector<Share> &shares = launches[first].shares;
  int changes = 0;
  for (size_t i = 1; i < shares.size(); ++i)
    changes += shares[i].instruction != shares[i - 1].instruction;
  EXPECT_GE(changes, 6);
}

TEST(Launches, RunByThemselvesWhereNothingIsGained) {
  // Cases: one worker; a product of few tiles; no product.
  for (auto [workers, tiles, isProduct] :
       {std::tuple(1u, int64_t(64), true), {2u, int64_t(15), true}, {2u, int64_t(64), false}}) {
    Program program;
    program.kernel(10, 1);
    if (isProduct)
      program.product({tiles}, 100);
    else
      program.kernel(tiles);
    std::vector<Launch> launches = launchesOf(program.entry, program.tiles, workers);
    program.check(launches);
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].shares[0].instruction, 0);
  }
}

TEST(Launches, SeveralMayWaitAtOnce) {
  Program program;
  program.kernel(40, 2);
  program.kernel(40, 1);
  program.product({64}, 100);
  program.kernel(3);
  auto found = program.check(launchesOf(program.entry, program.tiles, 2));
  for (int waiting : {0, 1})
    for (size_t launch : found.of(waiting, 0))
      EXPECT_EQ(launch, found.of(2, 0)[0]);
  EXPECT_GT(found.of(3, 0)[0], found.of(2, 0)[0]);
}
