//===- VerifierHostTest.cpp - what a plan keeps on the host ---------------===//
//
// The good plan has a variable and a value on the host:
//   0 fetch  b -> d             may run beside 1
//   1 copy   x -> y
//   2 kernel s = add(y, d)
//   3 store  s -> hs            may run beside 4
//   4 kernel e = twice(d)       in place of d
//   5 store  e -> b             may run beside 6
//   6 fetch  hs -> f
//   7 kernel z = add(f, e)
// Each test damages one fact, as a planner, an emitter or a file might.
//
//===----------------------------------------------------------------------===//
#include "TestPlan.h"

using namespace tcc;
using namespace tcc::test;

namespace {
enum HostBuffer : uint32_t { kInput, kCopied, kFetched, kSum, kDoubled, kStored, kAgain, kOut, kState };

plan::Instruction &transfer(plan::Entry &entry, uint32_t from, int version, uint32_t to, int written, int beside) {
  plan::Instruction &made = *entry.add_instructions();
  made.set_node("node_transfer");
  made.mutable_transfer();
  addOperand(made, from, version, -1);
  addOperand(made, to, -1, written);
  made.set_beside(beside);
  return made;
}

plan::Plan makeHostPlan() {
  plan::Plan plan = makeTestPlan();
  plan.mutable_variables()->DeleteSubrange(1, 2);
  plan::Variable &b = *addVariable(plan, "b", {64}, 0, 3);
  b.set_arena(plan::HOST_RESIDENT);
  plan::setSpaceBytes(plan, plan::RESIDENT, 2048);
  plan::setSpaceBytes(plan, plan::HOST_RESIDENT, 256);
  plan::setSpaceBytes(plan, plan::HOST_TRANSIENT, 256);
  plan::Entry &entry = *plan.mutable_entries(0);
  entry.clear_buffers();
  entry.clear_instructions();
  addBuffer(entry, "x", {64}, plan::TRANSIENT, 0, -1, 1)->set_kind(plan::Buffer::INPUT);
  addBuffer(entry, "y", {64}, plan::TRANSIENT, 256, 1, 2);
  addBuffer(entry, "d", {64}, plan::TRANSIENT, 512, 0, 4);
  addBuffer(entry, "s", {64}, plan::TRANSIENT, 768, 2, 4);
  addBuffer(entry, "e", {64}, plan::TRANSIENT, 512, 4, 7);
  addBuffer(entry, "hs", {64}, plan::HOST_TRANSIENT, 0, 3, 6);
  addBuffer(entry, "f", {64}, plan::TRANSIENT, 768, 6, 7);
  addBuffer(entry, "z", {64}, plan::TRANSIENT, 0, 7, 8)->set_kind(plan::Buffer::OUTPUT);
  addBuffer(entry, "b", {64}, plan::HOST_RESIDENT, 0, -1, 8, 1);
  transfer(entry, kState, 0, kFetched, 1, 1);
  plan::Instruction &copy = *entry.add_instructions();
  copy.mutable_copy();
  addOperand(copy, kInput, 0, -1);
  addOperand(copy, kCopied, -1, 1);
  plan::Instruction &add = *addKernel(entry, "add", 4);
  addOperand(add, kCopied, 1, -1);
  addOperand(add, kFetched, 1, -1);
  addOperand(add, kSum, -1, 1);
  transfer(entry, kSum, 1, kStored, 1, 1);
  plan::Instruction &twice = *addKernel(entry, "twice", 4);
  addOperand(twice, kFetched, 1, -1);
  addOperand(twice, kDoubled, -1, 1);
  twice.add_in_place()->set_destination(1);
  transfer(entry, kDoubled, 1, kState, 1, 1);
  transfer(entry, kStored, 1, kAgain, 1, 0);
  plan::Instruction &last = *addKernel(entry, "add", 4);
  addOperand(last, kAgain, 1, -1);
  addOperand(last, kDoubled, 1, -1);
  addOperand(last, kOut, -1, 1);
  entry.set_transient_bytes(1024);
  entry.set_host_transient_bytes(256);
  plan::setSpaceBytes(plan, plan::TRANSIENT, 1024);
  entry.mutable_inputs(0)->set_buffer(kInput);
  entry.mutable_outputs(0)->set_buffer(kOut);
  return plan;
}

plan::Buffer &buffer(plan::Plan &plan, HostBuffer which) { return *step(plan).mutable_buffers(which); }
} // namespace

TEST(VerifierHost, AGoodPlan) {
  EXPECT_EQ(plan::verifyPlan(makeHostPlan(), 5), std::vector<std::string>());
}

TEST(VerifierHost, TransfersLiveAsLongAsTheyRun) {
  plan::Plan plan = makeHostPlan();
  buffer(plan, kSum).set_last(3); // its store runs beside 4
  expectProblem(plan, {"instruction 3", "'s'", "dies at instruction 3, but it may run until 4 does"});
  plan = makeHostPlan();
  buffer(plan, kStored).set_last(5);
  expectProblem(plan, {"instruction 6", "'hs'", "is used outside its life"});
  plan = makeHostPlan();
  instruction(plan, 3).set_beside(3); // the host's value is fetched at 6
  expectProblem(plan, {"instruction 3", "it may run beside instruction 6, which reads", "'hs'"});
  plan = makeHostPlan();
  instruction(plan, 0).set_beside(2); // 2 reads what it brings
  expectProblem(plan, {"instruction 0", "it may run beside instruction 2, which reads", "'d'"});
  plan = makeHostPlan();
  buffer(plan, kFetched).set_first(1);
  expectProblem(plan, {"instruction 0", "'d'", "is used outside its life"});
  plan = makeHostPlan();
  instruction(plan, 5).set_beside(3);
  expectProblem(plan, {"instruction 5", "it may run beside the next 3, 2 follow"});
}

TEST(VerifierHost, StateIsFetchedBeforeItIsOverwritten) {
  plan::Plan plan = makeHostPlan();
  instruction(plan, 0).mutable_operands(0)->set_version(1);
  expectProblem(plan, {"instruction 0", "version 1 of", "'b'", "it holds version 0"});
  plan = makeHostPlan();
  // A second fetch of the old state that still runs when its store begins.
  instruction(plan, 6).mutable_operands(0)->set_buffer(kState);
  instruction(plan, 6).mutable_operands(0)->set_version(0);
  expectProblem(plan, {"instruction 6", "version 0 of", "'b'", "it holds version 1"});
  plan = makeHostPlan();
  instruction(plan, 5).mutable_operands(1)->set_version_written(2);
  expectProblem(plan, {"instruction 5", "version 2 of", "'b'", "is written, after version 0"});
}

TEST(VerifierHost, WhatIsFetchedWasStored) {
  plan::Plan plan = makeHostPlan();
  step(plan).mutable_instructions()->SwapElements(3, 6);
  expectProblem(plan, {"instruction 3", "'hs'", "is read before anything is written to it"});
}

TEST(VerifierHost, OnlyTransfersReachTheHost) {
  plan::Plan plan = makeHostPlan();
  instruction(plan, 7).mutable_operands(1)->set_buffer(kStored);
  expectProblem(plan, {"instruction 7", "'hs'", "which only transfers access"});
  plan = makeHostPlan();
  instruction(plan, 1).mutable_operands(1)->set_buffer(kState);
  expectProblem(plan, {"instruction 1", "'b'", "which only transfers access"});
  plan = makeHostPlan();
  buffer(plan, kStored).set_arena(plan::TRANSIENT);
  expectProblem(plan, {"instruction 3", "'s'", "'hs'", "both outside the memory of the host"});
  plan = makeHostPlan();
  instruction(plan, 5).mutable_operands(0)->set_buffer(kStored);
  expectProblem(plan, {"instruction 5", "both in the memory of the host"});
  plan = makeHostPlan();
  buffer(plan, kStored).set_kind(plan::Buffer::OUTPUT);
  expectProblem(plan, {"'hs'", "only values between two transfers may be in the host_transient arena"});
  plan = makeHostPlan();
  step(plan).mutable_outputs(0)->set_buffer(kState);
  expectProblem(plan, {"output 'z'", "'b'", "is in the memory of the host"});
}

TEST(VerifierHost, ATransferMovesAllOfOneType) {
  plan::Plan plan = makeHostPlan();
  buffer(plan, kStored).mutable_type()->set_dtype(plan::I32);
  expectProblem(plan, {"instruction 3", "is not all of"});
  plan = makeHostPlan();
  instruction(plan, 6).mutable_operands(0)->set_byte_offset(64);
  expectProblem(plan, {"instruction 6", "is not all of"});
  plan = makeHostPlan();
  instruction(plan, 3).mutable_operands()->RemoveLast();
  expectProblem(plan, {"instruction 3", "a transfer takes 2 operands, it has 1"});
  plan = makeHostPlan();
  instruction(plan, 3).mutable_operands(1)->set_read(true);
  instruction(plan, 3).mutable_operands(1)->set_write(false);
  expectProblem(plan, {"instruction 3", "the destination", "must be marked as written"});
}

TEST(VerifierHost, TheHostsArenasHaveTheirSizes) {
  plan::Plan plan = makeHostPlan();
  buffer(plan, kStored).set_offset(128);
  expectProblem(plan, {"'hs'", "are not inside the host_transient arena of 256 bytes"});
  plan = makeHostPlan();
  buffer(plan, kStored).set_offset(32);
  expectProblem(plan, {"'hs'", "offset 32 is not a multiple of 64"});
  plan = makeHostPlan();
  step(plan).set_host_transient_bytes(320);
  plan::setSpaceBytes(plan, plan::HOST_TRANSIENT, 320);
  expectProblem(plan, {"it states 320 transient bytes on the host, it needs 256"});
  plan = makeHostPlan();
  plan::setSpaceBytes(plan, plan::HOST_TRANSIENT, 512);
  expectProblem(plan, {"the host's transient arena has 512 bytes, the largest entry needs 256"});
  plan = makeHostPlan();
  plan::setSpaceBytes(plan, plan::HOST_RESIDENT, 128);
  expectProblem(plan, {"variable 'b'", "are not inside the host_resident arena of 128 bytes"});
  plan = makeHostPlan();
  addVariable(plan, "c", {64}, 128, 0)->set_arena(plan::HOST_RESIDENT);
  plan::setSpaceBytes(plan, plan::HOST_RESIDENT, 512);
  expectProblem(plan, {"variables 'b' and 'c' overlap in the host_resident arena"});
  plan = makeHostPlan();
  plan.mutable_variables(1)->set_arena(plan::HOST_TRANSIENT);
  expectProblem(plan, {"variable 'b'", "there is no memory space 3 of state"});
  plan = makeHostPlan();
  plan.mutable_variables(1)->set_arena(plan::RESIDENT);
  plan.mutable_variables(1)->set_offset(2048);
  plan::setSpaceBytes(plan, plan::RESIDENT, 2304);
  expectProblem(plan, {"'b'", "of the host_resident arena are not variable 'b' at 2048 of the resident one"});
}

/// Two values that live at once, one of which is still being fetched when the other is stored.
TEST(VerifierHost, ValuesOnTheHostDoNotOverlap) {
  plan::Plan plan = makeHostPlan();
  addBuffer(step(plan), "other", {64}, plan::HOST_TRANSIENT, 0, 5, 6);
  transfer(step(plan), kDoubled, 1, 9, 1, 0);
  step(plan).mutable_instructions()->SwapElements(5, 8);
  expectProblem(plan, {"'hs'", "'other'", "overlap while both live"});
}

TEST(VerifierHost, TheHostHasBothSpacesOrNone) {
  plan::Plan plan = makeHostPlan();
  plan.mutable_spaces()->RemoveLast();
  expectProblem(plan, {"memory space 3 is none that a plan may have"});
  plan = makeHostPlan();
  plan.mutable_spaces(2)->set_name("pinned");
  expectProblem(plan, {"memory space 2 is none that a plan may have"});
  plan = makeHostPlan();
  *plan.add_spaces() = plan.spaces(3);
  plan.mutable_spaces(4)->set_name("more");
  expectProblem(plan, {"memory space 4 is none that a plan may have"});
}
