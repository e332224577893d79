//===- VerifierTest.cpp - memory, versions and state of damaged plans ----===//
#include "TestPlan.h"
#include "runtime/plan/Spaces.h"

using namespace tcc;
using namespace tcc::test;

namespace {
plan::Buffer &buffer(plan::Plan &plan, uint32_t index) { return *step(plan).mutable_buffers(static_cast<int>(index)); }
} // namespace

TEST(Verifier, AcceptsAGoodPlan) {
  for (const std::string &problem : plan::verifyPlan(makeTestPlan()))
    ADD_FAILURE() << problem;
}

TEST(Verifier, BufferOutsideItsArena) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kZ).set_offset(uint64_t(1) << 40);
  expectProblem(plan, {"buffer 4 'z'", "node 'node_z'", "are not inside the transient arena"});
  buffer(plan, kZ).set_offset(UINT64_MAX - 63); // offset + bytes wraps around 64 bits
  expectProblem(plan, {"buffer 4 'z'", "are not inside"});
}

TEST(Verifier, MisalignedBuffer) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kY).set_offset(260);
  expectProblem(plan, {"'y'", "offset 260 is not a multiple of 64"});
}

TEST(Verifier, TypeLargerThanItsBuffer) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kY).mutable_type()->set_dims(0, 65);
  expectProblem(plan, {"'y'", "f32[65] does not fit its 256 bytes"});
}

TEST(Verifier, OverlapOfLiveBuffers) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kY).set_offset(64); // x lives at [0, 256) while y is written
  expectProblem(plan, {"'x'", "'y'", "overlap while both live, at instruction 0"});
}

TEST(Verifier, OverlapWithALargerBufferBehind) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kY).set_bytes(512); // swallows the end of s, moved to 512
  buffer(plan, kS).set_offset(512);
  expectProblem(plan, {"'y'", "'s'", "overlap"});
}

TEST(Verifier, InPlaceNeedsADeclaredPair) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 2).clear_in_place();
  expectProblem(plan, {"'s'", "'t'", "overlap while both live, at instruction 2"});
}

TEST(Verifier, InPlaceNeedsTheSameBytes) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kT).set_offset(64);
  expectProblem(plan, {"'s'", "'t'", "overlap"});
}

TEST(Verifier, InPlaceNeedsTheSourceToDie) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kS).set_last(3);
  expectProblem(plan, {"'s'", "'t'", "overlap"});
}

TEST(Verifier, InPlaceIsForKernelsOnly) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 2).mutable_copy();
  expectProblem(plan, {"'s'", "'t'", "overlap"});
}

TEST(Verifier, StateWrittenInPlaceNeedsAPair) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 4).clear_in_place();
  expectProblem(plan, {"instruction 4", "'b'", "read and written without an in-place pair"});
}

/// The test plan with a second product that is added to z in place.
static plan::Plan accumulatingPlan() {
  plan::Plan plan = makeTestPlan();
  plan::Instruction again = plan.entries(0).instructions(3);
  again.mutable_matmul()->set_accumulate(true);
  again.mutable_operands(2)->set_version_written(2);
  *again.add_operands() = again.operands(2);
  again.mutable_operands(2)->set_write(false);
  again.mutable_operands(2)->set_version_written(0);
  again.mutable_operands(2)->set_read(true);
  again.mutable_operands(2)->set_version(1);
  again.add_in_place()->set_source(2);
  again.mutable_in_place(0)->set_destination(3);
  *step(plan).add_instructions() = again;
  for (plan::Buffer &b : *step(plan).mutable_buffers())
    if (b.last() == 5)
      b.set_last(6);
  buffer(plan, kT).set_last(5);
  return plan;
}

TEST(Verifier, AProductIsAddedWhereItLies) {
  for (const std::string &problem : plan::verifyPlan(accumulatingPlan()))
    ADD_FAILURE() << problem;
  plan::Plan plan = accumulatingPlan();
  instruction(plan, 5).clear_in_place();
  expectProblem(plan, {"instruction 5", "the addend is not in the memory of C"});
  plan = accumulatingPlan();
  instruction(plan, 5).mutable_operands()->RemoveLast();
  instruction(plan, 5).clear_in_place();
  expectProblem(plan, {"instruction 5", "a matmul takes 4 operands, it has 3"});
  plan = accumulatingPlan();
  instruction(plan, 5).mutable_matmul()->set_accumulate(false);
  expectProblem(plan, {"instruction 5", "a matmul takes 3 operands, it has 4"});
}

TEST(Verifier, UseOutsideTheLiveInterval) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kY).set_last(0);
  expectProblem(plan, {"instruction 1", "'y'", "used outside its life from 0 to 0"});
}

TEST(Verifier, IntervalOutsideTheEntry) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kZ).set_last(6);
  expectProblem(plan, {"'z'", "lives from 3 to 6 in an entry of 5 instructions"});
}

TEST(Verifier, ReadBeforeWritten) {
  plan::Plan plan = makeTestPlan();
  std::swap(*instruction(plan, 0).mutable_operands(0), *instruction(plan, 1).mutable_operands(0));
  buffer(plan, kX).set_last(1);
  expectProblem(plan, {"instruction 0", "'y'", "read before anything is written"});
}

TEST(Verifier, ReadOfAnOverwrittenVersion) {
  plan::Plan plan = makeTestPlan();
  plan::Instruction late = plan.entries(0).instructions(1); // reads b at version 0, after b became version 1
  late.mutable_operands(0)->set_buffer(kB);
  late.mutable_operands(2)->set_buffer(kZ);
  late.mutable_operands(2)->set_version_written(2);
  *step(plan).add_instructions() = late;
  for (plan::Buffer &b : *step(plan).mutable_buffers())
    if (b.last() == 5)
      b.set_last(6);
  expectProblem(plan, {"instruction 5", "version 0 of buffer 6 'b'", "holds version 1, written by instruction 4"});
}

TEST(Verifier, WriteOfASkippedVersion) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 4).mutable_operands(1)->set_version_written(2);
  expectProblem(plan, {"instruction 4", "version 2 of buffer 6 'b'", "after version 0"});
}

TEST(Verifier, VariablesThatOverlap) {
  plan::Plan plan = makeTestPlan();
  plan.mutable_variables(2)->set_offset(2048 + 192);
  expectProblem(plan, {"variables 'b' and 'unused' overlap in the resident arena"});
}

TEST(Verifier, VariableOutsideTheResidentArena) {
  plan::Plan plan = makeTestPlan();
  plan::setSpaceBytes(plan, plan::RESIDENT, 2304 + 11);
  expectProblem(plan, {"variable 'unused'", "are not inside the resident arena of 2315"});
}

TEST(Verifier, StateBufferThatIsNotItsVariable) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kB).set_offset(0);
  expectProblem(plan, {"'b'", "are not variable 'b' at 2048"});
}

TEST(Verifier, ResidentBufferWithoutVariable) {
  plan::Plan plan = makeTestPlan();
  buffer(plan, kB).set_variable(-1);
  expectProblem(plan, {"'b'", "only variables may be in the resident arena"});
}

TEST(Verifier, VariableWithoutInitialValue) {
  plan::Plan plan = makeTestPlan();
  plan.mutable_variables(0)->clear_fill();
  expectProblem(plan, {"variable 'w'", "no initial value"});
  plan.mutable_variables(0)->set_payload(0);
  expectProblem(plan, {"variable 'w'", "payload 0 has 1 bytes", "2048"});
  plan.mutable_variables(0)->set_payload(9);
  expectProblem(plan, {"variable 'w'", "payload 9 does not exist"});
}

TEST(Verifier, TransientArenaIsTheLargestEntrys) {
  plan::Plan plan = makeTestPlan();
  plan::setSpaceBytes(plan, plan::TRANSIENT, plan::spaceBytes(plan, plan::TRANSIENT) + 64);
  expectProblem(plan, {"the largest entry needs"});
}

/// Scratch must begin above all buffers that are live with it: below one of them, the scratch of enough workers would
/// reach into that buffer.
TEST(Verifier, ScratchLiesAboveWhatLives) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 3).set_scratch_offset(1024 - 64);
  expectProblem(plan, {"instruction 3", "its scratch at offset 960", "'z'", "1024"});
  // y is dead by then.
  plan = makeTestPlan();
  buffer(plan, kY).set_offset(1024);
  EXPECT_EQ(plan::verifyPlan(plan), std::vector<std::string>());
  buffer(plan, kY).set_last(3);
  expectProblem(plan, {"instruction 3", "its scratch at offset 1024", "'y'", "1280"});
  plan = makeTestPlan();
  instruction(plan, 3).set_scratch_offset(1024 + 32);
  expectProblem(plan, {"instruction 3", "no multiple of 64"});
}

TEST(Verifier, StatesTheArenaOfItsWorkers) {
  plan::Plan plan = makeTestPlan();
  plan.set_max_workers(5);
  expectProblem(plan, {"entry 'step'", "with 5 workers it needs"});
  plan.set_max_workers(3);
  expectProblem(plan, {"entry 'step'", "with 3 workers it needs"});
}

TEST(Verifier, TilesAreNoFewerThanTheCallHas) {
  plan::Plan plan = makeTestPlan();
  // One slot for each stated tile is only enough for any number of workers if no tile is missing.
  instruction(plan, 3).set_tiles(0);
  expectProblem(plan, {"instruction 3", "states 0 tiles"});
}

TEST(Verifier, ScratchOfACopyIsRefused) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 0).set_scratch_shared_bytes(64);
  instruction(plan, 0).set_scratch_offset(1024);
  expectProblem(plan, {"instruction 0", "does not use"});
}

TEST(Verifier, ScratchSlotSmallerThanTheLibraryKernels) {
  plan::Plan plan = makeTestPlan();
  instruction(plan, 3).mutable_matmul()->set_library_scratch_bytes(1 << 20);
  expectProblem(plan, {"instruction 3", "scratch slots"});
}
