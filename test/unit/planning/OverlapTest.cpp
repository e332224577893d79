// Which instructions run concurrently; the order and packing this needs.
#include "compiler/planning/Overlap.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace tcc::planning;

namespace {

/// A problem made from instructions: live ranges follow from their reads and writes; buffers are packed greedily, and
/// the arena is larger than that by `more` bytes.
OverlapProblem problemOf(std::vector<Bytes> buffers, std::vector<OverlapInstruction> instructions, Bytes more = 0) {
  OverlapProblem problem;
  for (size_t id = 0; id < buffers.size(); ++id) {
    PackingBuffer buffer{"b" + std::to_string(id), buffers[id], -1, -1};
    for (size_t t = 0; t < instructions.size(); ++t)
      if (std::count(instructions[t].reads.begin(), instructions[t].reads.end(), int(id)) ||
          std::count(instructions[t].writes.begin(), instructions[t].writes.end(), int(id))) {
        if (buffer.last < 0)
          buffer.first = Time(t);
        buffer.last = Time(t);
      }
    problem.packing.buffers.push_back(buffer);
  }
  problem.instructions = std::move(instructions);
  PackingSolution packed = packGreedily(problem.packing);
  problem.offsets = packed.offsets;
  problem.capacity = packed.bytes + more;
  return problem;
}

/// Gradients 0, 1, 2 of 1 KiB; sums 3, 4, 5 of 64 bytes; parameters 6, 7, 8 are state.
std::vector<OverlapInstruction> twoUpdates() {
  return {{1000, 0, {}, {0}},       // product
          {0, 400, {0, 6}, {3, 6}}, // update, and a sum of the gradient
          {0, 0, {3}, {4}},         // waits for the sum
          {1000, 0, {}, {1}},       // product
          {0, 400, {1, 7}, {5, 7}}};
}

} // namespace

TEST(Overlap, AnUpdateRunsBesideTheNextProduct) {
  OverlapProblem problem = problemOf({1024, 1024, 1024, 64, 64, 64}, twoUpdates(), 1024);
  OverlapSolution solution = overlap(problem);
  EXPECT_EQ(validate(problem, solution), "");
  // The reader of the first update's sum moved behind the product that hides the update.
  EXPECT_GE(solution.hiddenNs, 400u);
  auto product = std::find(solution.order.begin(), solution.order.end(), 3) - solution.order.begin();
  auto waits = std::find(solution.order.begin(), solution.order.end(), 2) - solution.order.begin();
  EXPECT_LT(product, waits);
}

TEST(Overlap, NotWhereTheArenaIsFull) {
  OverlapProblem problem = problemOf({1024, 1024, 1024, 64, 64, 64}, twoUpdates());
  OverlapSolution solution = overlap(problem);
  EXPECT_EQ(validate(problem, solution), "");
  EXPECT_EQ(solution.hiddenNs, 0u);
  EXPECT_EQ(solution.order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(solution.offsets, problem.offsets);
}

TEST(Overlap, NotBesideWhatItDisturbs) {
  // The product reads the parameter that is updated.
  OverlapProblem problem = problemOf({1024, 1024}, {{1000, 0, {}, {0}}, {0, 400, {0}, {6}}, {1000, 0, {6}, {1}}}, 4096);
  EXPECT_EQ(overlap(problem).hiddenNs, 0u);
}

TEST(Overlap, ALongUpdateGoesBeforeProducts) {
  // No product follows the update of gradient 0, but two products can be moved behind it.
  OverlapProblem problem =
      problemOf({1024, 64, 64}, {{500, 0, {}, {1}}, {500, 0, {}, {2}}, {500, 0, {}, {0}}, {0, 900, {0, 6}, {6}}}, 4096);
  OverlapSolution solution = overlap(problem);
  EXPECT_EQ(validate(problem, solution), "");
  EXPECT_EQ(solution.order, (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(solution.beside, (std::vector<int>{0, 2, 0, 0}));
  EXPECT_EQ(solution.hiddenNs, 900u);
}

TEST(Overlap, TheValidatorObjects) {
  OverlapProblem problem = problemOf({1024, 1024, 1024, 64, 64, 64}, twoUpdates(), 1024);
  OverlapSolution solution{{0, 1, 2, 3, 4}, {0, 0, 0, 0, 0}, problem.offsets, 0};
  EXPECT_EQ(validate(problem, solution), "");
  solution.beside[1] = 1;
  EXPECT_NE(validate(problem, solution).find("run beside each other"), std::string::npos);
  solution.beside[1] = 4;
  EXPECT_NE(validate(problem, solution).find("not there"), std::string::npos);
  solution.beside[1] = 0;
  solution.order = {1, 0, 2, 3, 4};
  EXPECT_NE(validate(problem, solution).find("change places"), std::string::npos);
  // In this order the first gradient is still live while the second one is made at the same offset.
  solution.order = {0, 1, 3, 2, 4};
  solution.beside = {0, 1, 0, 0, 0};
  EXPECT_NE(validate(problem, solution).find("overlap"), std::string::npos);
}

TEST(Overlap, RandomPrograms) {
  std::mt19937 random(5);
  int hiding = 0, reordered = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed 5");
    int count = 4 + int(random() % 40), buffers = 3 + int(random() % 20), states = 1 + int(random() % 4);
    std::vector<Bytes> bytes;
    for (int i = 0; i < buffers; ++i)
      bytes.push_back(64 + random() % 8192);
    std::vector<OverlapInstruction> instructions;
    for (int i = 0; i < count; ++i) {
      OverlapInstruction instruction;
      (random() % 2 ? instruction.computeNs : instruction.memoryNs) = random() % 1000;
      auto some = [&](std::vector<int> &ids) {
        for (unsigned n = random() % 3; n-- > 0;)
          ids.push_back(int(random() % unsigned(buffers + states)));
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      };
      some(instruction.reads);
      some(instruction.writes);
      instructions.push_back(instruction);
    }
    OverlapProblem problem = problemOf(bytes, instructions, random() % 3 * 4096);
    OverlapSolution solution = overlap(problem), again = overlap(problem);
    ASSERT_EQ(validate(problem, solution), "");
    EXPECT_EQ(solution.order, again.order);
    EXPECT_EQ(solution.offsets, again.offsets);
    bool leave = std::any_of(solution.beside.begin(), solution.beside.end(), [](int n) { return n > 0; });
    EXPECT_EQ(solution.hiddenNs > 0, leave);
    hiding += leave;
    reordered += !std::is_sorted(solution.order.begin(), solution.order.end());
  }
  EXPECT_GT(hiding, 500);
  EXPECT_GT(reordered, 100);
}
