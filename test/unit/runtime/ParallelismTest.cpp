//===- ParallelismTest.cpp - memory and time by the number of workers ----===//
#include "TestPlan.h"

#include "runtime/plan/Variants.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"

using namespace tcc;
using namespace tcc::test;

namespace {
/// Two kernels, of 5 tiles and of 1 tile. The first has scratch above the only buffer: 64 bytes, and 128 for each
/// worker.
plan::Entry makeEntry() {
  plan::Entry entry;
  addBuffer(entry, "x", {100}, plan::TRANSIENT, 0, -1, 0)->set_kind(plan::Buffer::INPUT);
  plan::Instruction *five = addKernel(entry, "five", 5), *one = addKernel(entry, "one", 1);
  five->set_scratch_offset(448);
  five->set_scratch_shared_bytes(64);
  five->set_scratch_slot_bytes(128);
  five->set_cost(100);
  one->set_cost(10);
  return entry;
}
} // namespace

TEST(Parallelism, EachHasASlotUnlessThereAreFewerTiles) {
  const plan::Entry entry = makeEntry();
  EXPECT_EQ(plan::transientBytes(entry, 0), 448u + 64);
  EXPECT_EQ(plan::transientBytes(entry, 1), 448u + 64 + 128);
  EXPECT_EQ(plan::transientBytes(entry, 5), 448u + 64 + 5 * 128);
  EXPECT_EQ(plan::transientBytes(entry, 64), 448u + 64 + 5 * 128);
  plan::Entry none = entry;
  none.mutable_instructions()->DeleteSubrange(0, 1);
  EXPECT_EQ(plan::transientBytes(none, 64), 448u) << "400 bytes, padded";
}

TEST(Parallelism, SumsSaturate) {
  plan::Entry entry = makeEntry();
  entry.mutable_instructions(0)->set_scratch_slot_bytes(uint64_t(1) << 63);
  EXPECT_EQ(plan::transientBytes(entry, 2), UINT64_MAX);
  entry.mutable_instructions(0)->set_scratch_offset(UINT64_MAX);
  EXPECT_EQ(plan::transientBytes(entry, 1), UINT64_MAX);
}

TEST(Parallelism, AsManyAsFit) {
  plan::Plan plan;
  plan::setSpaceBytes(plan, plan::RESIDENT, 1000);
  *plan.add_entries() = makeEntry();
  EXPECT_EQ(plan::workersWithin(plan, 1000 + 448 + 64 + 3 * 128, 64), 3u);
  EXPECT_EQ(plan::workersWithin(plan, 1000 + 448 + 64 + 3 * 128 - 1, 64), 2u);
  EXPECT_EQ(plan::workersWithin(plan, 1000 + 448 + 64 + 3 * 128, 2), 2u);
  EXPECT_EQ(plan::workersWithin(plan, 1 << 20, 64), 64u);
  EXPECT_EQ(plan::workersWithin(plan, 1000, 64), 0u);
}

/// Variant 0 has fewer buffers but more scratch for each worker, so that it is the larger one for many workers.
TEST(Parallelism, VariantsAreWeighedWithTheWorkersThatRunThem) {
  plan::Plan plan;
  *plan.add_entries() = makeEntry();
  *plan.add_entries() = makeEntry();
  plan.mutable_entries(1)->set_variant(1);
  plan.mutable_entries(1)->mutable_instructions(0)->set_scratch_offset(512);
  plan.mutable_entries(1)->mutable_instructions(0)->set_scratch_slot_bytes(64);
  plan.add_variants()->set_cost(100);
  plan.add_variants()->set_cost(110);
  EXPECT_EQ(plan::smallestVariant(plan, 1), 0u); // 640 and 640: the first
  EXPECT_EQ(plan::smallestVariant(plan, 2), 1u); // 768 and 704
  EXPECT_EQ(plan::fastestVariant(plan, 700, 1), 0u);
  EXPECT_EQ(plan::fastestVariant(plan, 710, 2), 1u);
  EXPECT_EQ(plan::fastestVariant(plan, 700, 2), std::nullopt);
}

/// With 2 workers the five tiles take 3/5 of 100 ns, the one tile 10 ns: 110 ns of work in 2 × 70 ns.
TEST(Parallelism, EfficiencyFollowsFromTheLargestShare) {
  const plan::Entry entry = makeEntry();
  EXPECT_DOUBLE_EQ(plan::parallelEfficiency(entry, 1), 1);
  EXPECT_DOUBLE_EQ(plan::parallelEfficiency(entry, 2), 110.0 / (2 * 70));
  EXPECT_DOUBLE_EQ(plan::parallelEfficiency(entry, 128), 110.0 / (128 * 30));
  const std::vector<plan::IdleTime> idle = plan::idleTimes(entry, 2);
  ASSERT_EQ(idle.size(), 2u);
  EXPECT_EQ(idle[0].instruction, 0); // 2 × 60 - 100
  EXPECT_DOUBLE_EQ(idle[0].nanoseconds, 20);
  EXPECT_EQ(idle[1].instruction, 1);
  EXPECT_DOUBLE_EQ(idle[1].nanoseconds, 10);
  EXPECT_TRUE(plan::idleTimes(entry, 1).empty());
}

/// Operands that name no buffer must not fail, since reports are made for any file.
TEST(Parallelism, CopiesOfWhatDoesNotExistMoveNothing) {
  plan::Entry entry;
  plan::Instruction &copy = *entry.add_instructions();
  copy.mutable_copy();
  EXPECT_EQ(plan::movedBytes(entry, copy), 0u);
  copy.add_operands()->set_buffer(7);
  copy.add_operands()->set_buffer(8);
  EXPECT_EQ(plan::movedBytes(entry, copy), 0u);
  EXPECT_EQ(plan::tilesOf(entry, copy), 0);
}
