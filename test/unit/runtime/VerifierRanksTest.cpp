//===- VerifierRanksTest.cpp - collectives of a plan ---------------------===//
#include "TestPlan.h"

using namespace tcc;
using namespace tcc::test;

namespace {
/// The test plan, with an all-reduce instead of the kernel that computes t in place of s.
plan::Plan makeRankPlan() {
  plan::Plan plan = makeTestPlan();
  plan.mutable_training()->mutable_parallel()->set_mode("ddp");
  plan::Instruction &sum = *step(plan).mutable_instructions(2);
  sum.mutable_collective()->set_kind(plan::CollectiveCall::ALL_REDUCE);
  sum.mutable_collective()->set_dtype(plan::F32);
  return plan;
}
} // namespace

TEST(VerifierRanks, AnAllReduceInPlaceOfItsSource) {
  EXPECT_EQ(plan::verifyPlan(makeRankPlan(), 5), std::vector<std::string>());
}

/// Ranks run these entries as often as their own data requires, or one rank alone runs them.
TEST(VerifierRanks, NoCollectiveWhereRanksDoNotRunTogether) {
  for (const char *name : {"evaluate", "predict", "gradients", "accumulate_first", "accumulate_next.critic"}) {
    plan::Plan plan = makeRankPlan();
    step(plan).set_name(name);
    expectProblem(plan, {"instruction 2", "a collective in an entry that ranks do not run together"});
  }
  for (const char *name : {"update", "step.critic", "update.critic"}) {
    plan::Plan plan = makeRankPlan();
    step(plan).set_name(name);
    EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>()) << name;
  }
}

/// All ranks have the same number of micro-batches in a window.
TEST(VerifierRanks, SynchronisedNormalisationsInMicroBatches) {
  for (const char *name : {"accumulate_first", "accumulate_next.critic", "evaluate", "hold_0"}) {
    plan::Plan plan = makeRankPlan();
    plan.mutable_training()->mutable_parallel()->set_batch_norm("sync");
    step(plan).set_name(name);
    if (std::string_view(name).starts_with("accumulate"))
      EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>()) << name;
    else
      expectProblem(plan, {"instruction 2", "a collective in an entry that ranks do not run together"});
  }
}

TEST(VerifierRanks, VirtualRanksAreABinaryTree) {
  for (auto [all, least, good] : {std::tuple(8, 2, true),
                                  {8, 8, true},
                                  {1, 1, true},
                                  {6, 2, false},
                                  {8, 3, false},
                                  {4, 8, false},
                                  {8, 0, false},
                                  {0, 2, false},
                                  {1 << 17, 1, false}}) {
    plan::Plan plan = makeRankPlan();
    plan.mutable_training()->mutable_parallel()->set_virtual_ranks(static_cast<uint64_t>(all));
    plan.mutable_training()->mutable_parallel()->set_least_ranks(static_cast<uint64_t>(least));
    if (good)
      EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>()) << all << " on " << least;
    else
      expectProblem(plan, {"virtual ranks on", "make no tree"});
  }
}

TEST(VerifierRanks, NoCollectiveInAPlanForOneRank) {
  plan::Plan plan = makeRankPlan();
  plan.mutable_training()->clear_parallel();
  expectProblem(plan, {"instruction 2", "a collective in a plan for one rank"});
}

TEST(VerifierRanks, TypesAndRoots) {
  plan::Plan plan = makeRankPlan();
  step(plan).mutable_instructions(2)->mutable_collective()->set_dtype(plan::BF16);
  expectProblem(plan, {"an all-reduce of bf16 writes", "which holds f32"});
  plan = makeRankPlan();
  step(plan).mutable_instructions(2)->mutable_collective()->set_dtype(plan::I32);
  expectProblem(plan, {"an all-reduce of i32"});
  plan = makeRankPlan();
  step(plan).mutable_instructions(2)->mutable_collective()->set_root(3);
  expectProblem(plan, {"a broadcast of rank 3"});
}

TEST(VerifierRanks, SomeRanksOnlyInPlansForNodes) {
  for (auto reach : {plan::CollectiveCall::WITHIN_NODE, plan::CollectiveCall::ACROSS_NODES}) {
    plan::Plan plan = makeRankPlan();
    step(plan).mutable_instructions(2)->mutable_collective()->set_reach(reach);
    expectProblem(plan, {"only an all-reduce of a plan with mode hybrid is for some of the ranks"});
    plan.mutable_training()->mutable_parallel()->set_mode("hybrid");
    plan.mutable_training()->mutable_parallel()->set_ranks(2);
    EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
    step(plan).mutable_instructions(2)->mutable_collective()->set_kind(plan::CollectiveCall::BROADCAST);
    expectProblem(plan, {"not broadcast with reach"});
  }
  plan::Plan plan = makeRankPlan();
  plan.mutable_training()->mutable_parallel()->set_mode("hybrid");
  step(plan).mutable_instructions(2)->mutable_collective()->set_reach(static_cast<plan::CollectiveCall::Reach>(7));
  expectProblem(plan, {"with reach 7"});
}

/// Shards of accumulators are summed at each micro-batch, of which all ranks have the same number.
TEST(VerifierRanks, ScattersOfGradientsInMicroBatches) {
  for (auto [name, good] : {std::pair("accumulate_first", true), {"accumulate_next.critic", true}, {"evaluate", false}}) {
    plan::Plan plan = makeRankPlan();
    step(plan).set_name(name);
    step(plan).mutable_instructions(2)->clear_collective();
    *step(plan).mutable_instructions(2) = makeTestPlan().entries(0).instructions(2);
    plan::CollectiveCall &scatter = *step(plan).mutable_instructions(0)->mutable_collective();
    scatter.set_kind(plan::CollectiveCall::REDUCE_SCATTER);
    scatter.set_dtype(plan::F32);
    plan.mutable_training()->mutable_parallel()->set_mode("grad_op");
    plan.mutable_training()->mutable_parallel()->set_ranks(1);
    if (good)
      EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>()) << name;
    else
      expectProblem(plan, {"instruction 0", "a collective in an entry that ranks do not run together"});
  }
}

/// If no rank has all parameters, all ranks evaluate together.
TEST(VerifierRanks, GathersInEvaluationsOfShardedParameters) {
  for (auto [mode, good] : {std::pair("full", true), {"hybrid", true}, {"grad_op", false}}) {
    plan::Plan plan = makeRankPlan();
    step(plan).set_name("evaluate");
    step(plan).mutable_instructions(2)->clear_collective();
    *step(plan).mutable_instructions(2) = makeTestPlan().entries(0).instructions(2);
    step(plan).mutable_instructions(0)->mutable_collective()->set_kind(plan::CollectiveCall::ALL_GATHER);
    plan.mutable_training()->mutable_parallel()->set_mode(mode);
    plan.mutable_training()->mutable_parallel()->set_ranks(1);
    if (good)
      EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>()) << mode;
    else
      expectProblem(plan, {"instruction 0", "a collective in an entry that ranks do not run together"});
  }
}

TEST(VerifierRanks, PairsOfOperands) {
  plan::Plan plan = makeRankPlan();
  step(plan).mutable_instructions(2)->mutable_operands()->RemoveLast();
  step(plan).mutable_instructions(2)->clear_in_place();
  expectProblem(plan, {"a collective takes pairs of source and destination, it has 1 operands"});
  plan = makeRankPlan();
  step(plan).mutable_instructions(2)->clear_operands();
  step(plan).mutable_instructions(2)->clear_in_place();
  expectProblem(plan, {"it has 0 operands"});
  plan = makeRankPlan();
  plan::Operand &source = *step(plan).mutable_instructions(2)->mutable_operands(0);
  source.set_byte_offset(4);
  expectProblem(plan, {"instruction 2", "a source needs 256 bytes"});
}

TEST(VerifierRanks, ShardsHaveThePlansSize) {
  for (auto kind :
       {plan::CollectiveCall::ALL_GATHER, plan::CollectiveCall::REDUCE_SCATTER, plan::CollectiveCall::OWN_SHARD}) {
    plan::Plan plan = makeRankPlan();
    plan::CollectiveCall &call = *step(plan).mutable_instructions(0)->mutable_collective(); // was the copy of x to y
    call.set_kind(kind);
    if (kind == plan::CollectiveCall::REDUCE_SCATTER)
      call.set_dtype(plan::F32);
    expectProblem(plan, {"instruction 0", "shards in a plan that is for any number of ranks"});
    plan.mutable_training()->mutable_parallel()->set_ranks(1);
    EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
    plan.mutable_training()->mutable_parallel()->set_ranks(2);
    expectProblem(plan, {"instruction 0", "f32[64] becomes"});
    // A destination of another size cannot overwrite its source in place.
    plan.mutable_training()->mutable_parallel()->set_ranks(1);
    plan::Instruction &inPlace = *step(plan).mutable_instructions(2);
    inPlace.mutable_collective()->set_kind(kind);
    expectProblem(plan, {"instruction 2", "cannot write its operand"});
  }
}

TEST(VerifierRanks, ParametersAreGatheredInEveryMicroBatch) {
  plan::Plan plan = makeRankPlan();
  plan.mutable_training()->mutable_parallel()->set_ranks(1);
  step(plan).mutable_instructions(0)->mutable_collective()->set_kind(plan::CollectiveCall::ALL_GATHER);
  step(plan).set_name("accumulate_next");
  const std::vector<std::string> problems = plan::verifyPlan(plan, 5);
  ASSERT_EQ(problems.size(), 1u) << problems[0];
  EXPECT_NE(problems[0].find("instruction 2"), std::string::npos) << "the sum alone: " << problems[0];
}

TEST(VerifierRanks, AShardIsTheRanksPartOfAVariable) {
  plan::Plan plan = makeRankPlan();
  plan::Variable *variable = nullptr;
  for (plan::Variable &one : *plan.mutable_variables())
    if (one.name() == "b")
      variable = &one;
  ASSERT_TRUE(variable);
  for (int64_t dim : {2, 32})
    variable->mutable_shard()->add_dims(dim);
  expectProblem(plan, {"variable 'b'", "a shard in a plan that is for any number of ranks"});
  plan.mutable_training()->mutable_parallel()->set_ranks(1);
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
  plan.mutable_training()->mutable_parallel()->set_ranks(2);
  expectProblem(plan, {"variable 'b'", "f32[64] is no shard of f32[2x32] over 2 ranks"});
}

TEST(VerifierRanks, NothingThatTouchesItsResultsRunsBesideIt) {
  plan::Plan plan = makeRankPlan();
  step(plan).mutable_instructions(2)->set_beside(1); // writes t, which the product reads
  expectProblem(plan, {"instruction 2", "it may run beside instruction 3, which reads", "'t'"});
  // The update of b does not touch t, if it comes before the product.
  plan = makeRankPlan();
  step(plan).mutable_instructions()->SwapElements(3, 4);
  step(plan).mutable_buffers(kZ)->set_first(4);
  step(plan).mutable_buffers(kT)->set_last(4);
  step(plan).mutable_instructions(2)->set_beside(1);
  EXPECT_EQ(plan::verifyPlan(plan, 5), std::vector<std::string>());
  step(plan).mutable_buffers(kT)->set_last(2);
  expectProblem(plan, {"'t'", "dies at instruction 2, but it may run until 3 does"});
}
