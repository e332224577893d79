#include "test/support/mutate/MutateMessage.h"

#include "runtime/plan/plan.pb.h"

#include <gtest/gtest.h>
#include <set>

using namespace tcc;

namespace {
plan::Plan smallPlan() {
  plan::Plan plan;
  plan.set_producer("größer");
  for (int i = 0; i < 3; ++i) {
    plan::Entry &entry = *plan.add_entries();
    entry.set_name("entry" + std::to_string(i));
    for (int k = 0; k < 4; ++k) {
      entry.add_buffers()->set_offset(uint64_t(64 * k));
      plan::Instruction &instruction = *entry.add_instructions();
      instruction.mutable_kernel()->set_tiles(k + 1);
      instruction.add_operands()->set_buffer(uint32_t(k));
      instruction.add_operands()->set_write(true);
    }
  }
  (*plan.mutable_data()->mutable_map())["x"] = "column";
  return plan;
}

TEST(MutateMessage, SameSeedSameChanges) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 a(seed), b(seed);
    plan::Plan first = smallPlan(), second = smallPlan();
    EXPECT_EQ(test::mutateMessage(first, a), test::mutateMessage(second, b));
    EXPECT_EQ(first.DebugString(), second.DebugString());
  }
}

TEST(MutateMessage, ResultsCanBeParsedAgain) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    plan::Plan plan = smallPlan(), again;
    for (int i = 0; i < 10; ++i)
      test::mutateMessage(plan, random);
    ASSERT_TRUE(again.ParseFromString(plan.SerializeAsString()));
  }
}

TEST(MutateMessage, ReachesNestedFieldsAndEveryKindOfChange) {
  std::mt19937_64 random(2);
  std::set<std::string> kinds;
  size_t changed = 0;
  for (int round = 0; round < 3000; ++round) {
    plan::Plan plan = smallPlan();
    std::string before = plan.SerializeAsString(), change = test::mutateMessage(plan, random);
    changed += plan.SerializeAsString() != before;
    for (const char *kind : {"operands: element 0 deleted", "repeated at", "swapped", "added", "overwritten", "cleared",
                             "buffers[2].offset: is", "kernel.tiles: is", "matmul: emptied", "data.map"})
      if (change.find(kind) != std::string::npos)
        kinds.insert(kind);
  }
  EXPECT_EQ(kinds.size(), 10u) << "some kinds of change never happened";
  EXPECT_GT(changed, 2500u);
}
} // namespace
