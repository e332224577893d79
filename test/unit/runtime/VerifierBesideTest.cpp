//===- VerifierBesideTest.cpp - what may run beside what -----------------===//
#include "TestPlan.h"

using namespace tcc;
using namespace tcc::test;

namespace {
/// Moves the update b = twice(b), which the product does not touch, in front of the product. The instructions are then
/// copy, s = add(y, b), t = twice(s), b = twice(b), z = t · w.
plan::Instruction &besideProduct(plan::Plan &plan) {
  // The last kernel, which updates b in place, moves before the product.
  step(plan).mutable_instructions()->SwapElements(3, 4);
  step(plan).mutable_buffers(kZ)->set_first(4);
  plan::Instruction &update = *step(plan).mutable_instructions(3);
  step(plan).mutable_buffers(kT)->set_last(4);
  return update;
}
} // namespace

TEST(VerifierBeside, AnUpdateBesideAProductThatDoesNotTouchIt) {
  plan::Plan plan = makeTestPlan();
  besideProduct(plan).set_beside(1);
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
}

TEST(VerifierBeside, BeyondTheEnd) {
  for (int beside : {-1, 2, 1 << 30}) {
    plan::Plan plan = makeTestPlan();
    besideProduct(plan).set_beside(beside);
    expectProblem(plan, {"instruction 3", "it may run beside the next " + std::to_string(beside), "1 follow"});
  }
}

TEST(VerifierBeside, WhatWritesWhatItTouches) {
  plan::Plan plan = makeTestPlan();
  step(plan).mutable_instructions(2)->set_beside(1); // writes t, which the product reads
  expectProblem(plan, {"instruction 2", "it may run beside instruction 3, which reads", "'t'"});
  plan = makeTestPlan();
  step(plan).mutable_instructions(1)->set_beside(3); // reads b, which the last instruction writes
  expectProblem(plan, {"instruction 1", "it may run beside instruction 4, which writes", "'b'"});
}

TEST(VerifierBeside, WhatDiesTooSoon) {
  plan::Plan plan = makeTestPlan();
  step(plan).mutable_instructions(0)->set_beside(1); // copies x, which dies there, to y
  step(plan).mutable_instructions(1)->clear_operands();
  expectProblem(plan, {"instruction 0", "'x'", "dies at instruction 0, but it may run until 1 does"});
}

/// The scratch would overlap that of the instructions beside it.
TEST(VerifierBeside, NoScratch) {
  plan::Plan plan = makeTestPlan();
  plan::Instruction &update = besideProduct(plan);
  update.set_beside(1);
  update.set_scratch_shared_bytes(64);
  update.set_scratch_offset(1024);
  expectProblem(plan, {"instruction 3", "it has scratch, so it must not run beside others"});
}

TEST(VerifierBeside, LibraryCallsHaveNoLeave) {
  plan::Plan plan = makeTestPlan();
  step(plan).mutable_instructions(3)->set_beside(1);
  expectProblem(plan, {"instruction 3", "a library call must not run beside others"});
}
