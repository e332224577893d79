#include "test/support/isolate/IsolatedPlan.h"

#include "test/unit/runtime/TestPlan.h"

#include <fstream>

using namespace tcc;
using namespace tcc::test;

namespace {
std::string kernels() {
  std::ifstream file(TEST_KERNELS, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs the test plan after a change that the verifier accepts.
void run(const std::function<void(plan::Plan &)> &change) {
  plan::PlanWriter writer;
  writer.addPayload(kernels());
  plan::Plan plan = makeTestPlan();
  change(plan);
  bindCode(*plan.mutable_code_objects(0), kernels());
  auto reader = plan::PlanReader::fromBuffer(writer.toBuffer(plan).take());
  ASSERT_TRUE(reader.ok()) << reader.message();
  ASSERT_EQ(plan::verifyPlan(reader->plan()), std::vector<std::string>());
  auto isolated = IsolatedPlan::load(*reader, 2);
  ASSERT_TRUE(isolated.ok()) << isolated.message();
  nameFaults();
  std::mt19937_64 random(1);
  Status status = isolated->run(reader->plan().entries(0), random);
  ASSERT_TRUE(status.ok()) << status.message();
}

} // namespace

TEST(IsolatedPlan, AGoodPlanRuns) {
  run([](plan::Plan &) {});
}

/// Kernels that access more than their signatures say: the verifier trusts signatures, and only this run finds it.
TEST(IsolatedPlanDeathTest, ReadsBeyondAnOperand) {
  EXPECT_DEATH(run([](plan::Plan &plan) {
                 plan.mutable_code_objects(0)->mutable_kernels(0)->mutable_operands(0)->set_bytes(128);
                 step(plan).mutable_instructions(1)->mutable_operands(0)->set_byte_offset(128);
               }),
               "fault in entry 'step', instruction 1 \\(node 'node_add'\\)");
}

TEST(IsolatedPlanDeathTest, WritesWhatItMayOnlyRead) {
  EXPECT_DEATH(run([](plan::Plan &plan) {
                 plan::Instruction &call = *step(plan).mutable_instructions(1);
                 // Declares the sum as the second operand of kernel 'add', and b as its result.
                 auto &signature = *plan.mutable_code_objects(0)->mutable_kernels(0);
                 for (int i : {1, 2}) {
                   signature.mutable_operands(i)->set_read(i == 2);
                   signature.mutable_operands(i)->set_write(i == 1);
                 }
                 call.mutable_operands()->SwapElements(1, 2);
               }),
               "fault in entry 'step', instruction 1 \\(node 'node_add'\\)");
}

TEST(IsolatedPlan, FindsOverlappingBuffers) {
  plan::Plan plan = makeTestPlan();
  EXPECT_EQ(findOverlap(step(plan)), "");
  step(plan).mutable_buffers(kY)->set_offset(64);
  EXPECT_NE(findOverlap(step(plan)).find("'x' and 'y'"), std::string::npos);
}
