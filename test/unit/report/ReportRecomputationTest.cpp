//===- ReportRecomputationTest.cpp - recomputation in the report ----------===//
#include "test/unit/report/HandMadePlan.h"
#include "tools/tcc/Report.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {

void connect(plan::Instruction &instruction, int reads, int writes) {
  for (int id : {reads, writes}) {
    if (id < 0)
      continue;
    plan::Operand &operand = *instruction.add_operands();
    operand.set_buffer(uint32_t(id));
    (id == reads ? operand.set_read(true) : operand.set_write(true));
  }
}

/// The hand-made plan, with `first` repeated at its end (into buffer 5) for a last reader. Costs are 100 ns, and 20 ns
/// for `first`.
plan::Plan twice() {
  plan::Plan plan = handMadePlan();
  plan::Entry &step = *plan.mutable_entries(0);
  connect(*step.mutable_instructions(0), 0, 1); // x → a
  connect(*step.mutable_instructions(1), 1, 2); // a → b
  connect(*step.mutable_instructions(2), 2, 3); // b → c
  addBuffer(step, "a", 64, 64, 4, 5).set_name("a #9");
  plan::Instruction &again = addInstruction(step, "first", 10, 128);
  again.mutable_kernel()->set_symbol("k_same");
  again.set_recompute(true);
  connect(again, 0, 5);
  connect(addInstruction(step, "reader", 0, 64), 5, -1);
  for (plan::Instruction &instruction : *step.mutable_instructions())
    instruction.set_cost(instruction.node() == "first" ? 20 : 100);
  step.set_lower_bound_cost(430);
  step.set_without_recompute_bytes(1280 + 640);
  return plan;
}

} // namespace

TEST(ReportRecomputation, FractionsAreOfWhatRunsOnce) {
  plan::Plan plan = twice();
  Report report = analyzePlan(plan, 0);
  const Recomputation &all = report.recomputation;
  EXPECT_DOUBLE_EQ(all.extraFlopsFraction(), 10 / 1020.0);
  EXPECT_DOUBLE_EQ(all.extraCostFraction(), 20 / 420.0); // total cost 440
  EXPECT_DOUBLE_EQ(all.boundFraction(), 10 / 420.0);
  EXPECT_DOUBLE_EQ(all.gap(), 440 / 430.0 - 1);
  EXPECT_EQ(all.bytes, 640u);
  EXPECT_EQ(report.withoutRecomputeBytes(), 192u + 1280 + 640);
}

TEST(ReportRecomputation, ATensorSaysWhenItWasGivenUpAndMadeAgain) {
  plan::Plan plan = twice();
  nlohmann::ordered_json recompute = reportJson(analyzePlan(plan, 0))["recompute"];
  ASSERT_EQ(recompute["tensors"].size(), 1u);
  EXPECT_EQ(
      recompute["tensors"][0].dump(),
      R"({"name":"a #9","node":"node_a","bytes":64,"flops":10.0,"cost_ns":20,"program":"step","given_up":1,"step":4})");
}

TEST(ReportRecomputation, AnUpdateOfSeveralMicroBatchesPaysEachTime) {
  plan::Plan plan = twice();
  plan.mutable_entries(0)->set_name("accumulate_next");
  plan.mutable_training()->set_accumulate(4);
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.recomputation.extraCost, 3 * 20u);
  EXPECT_DOUBLE_EQ(report.recomputation.extraCostFraction(), 20 / 420.0);
}

TEST(ReportRecomputation, WithoutItNothingIsSaidToBeSaved) {
  plan::Plan plan = twice();
  plan.mutable_entries(0)->mutable_instructions(4)->set_recompute(false);
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.withoutRecomputeBytes(), report.peakBytes());
  EXPECT_EQ(report.recomputation.extraCostFraction(), 0);
  EXPECT_EQ(reportText(report).find("recomputed"), std::string::npos);
}

TEST(ReportRecomputation, ExtraCostIsMeasuredFromTheLaddersFirstRung) {
  plan::Plan plan = twice();
  // The first execution omits a result that the second one makes: executing the whole kernel once would cost 30.
  plan.mutable_entries(0)->add_frontier()->set_cost(430);
  EXPECT_DOUBLE_EQ(analyzePlan(plan, 0).recomputation.extraCostFraction(), 10 / 430.0);
}

TEST(ReportRecomputation, TextNamesTensorsAndFrontier) {
  plan::Plan plan = twice();
  for (uint64_t i = 0; i < 2; ++i) {
    plan::FrontierPoint &point = *plan.mutable_entries(0)->add_frontier();
    point.set_transient_bytes(1920 - 640 * i);
    point.set_cost(420 + 20 * i);
    point.set_lower_bound_cost(420 + 10 * i);
    point.set_chosen(i == 1);
  }
  std::string text = reportText(analyzePlan(plan, 0));
  EXPECT_NE(text.find("recomputed: 1 tensor in one update\n  saves 640 B of the arena (2.1 KiB in total without), for "
                      "0.98 % more operations and 4.76 % more time"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("node_a        1   64 B     10 FLOP  20 ns"), std::string::npos) << text;
  EXPECT_NE(text.find("1.4 KiB  1.2 KiB  440 ns  +4.76 %       430 ns  2.33 %  this plan"), std::string::npos) << text;
  nlohmann::ordered_json frontier = reportJson(analyzePlan(plan, 0))["memory"]["frontier"];
  ASSERT_EQ(frontier.size(), 2u);
  EXPECT_EQ(frontier[1].dump(),
            R"({"program":"step","arena_bytes":1280,"cost_ns":440,"lower_bound_cost_ns":430,)"
            R"("device_bytes":1472,"host_bytes":0,"moved_state_bytes":0,"chosen":true})");
}

TEST(ReportRecomputation, OneVariantIsReportedAndAllAreListed) {
  plan::Plan plan = handMadePlan();
  *plan.add_entries() = plan.entries(0);
  plan.mutable_entries(1)->set_variant(1);
  plan.mutable_entries(1)->set_transient_bytes(1000);
  plan::Entry &predict = *plan.add_entries(); // belongs to the first variant only
  predict.set_name("predict");
  for (uint64_t bytes : {1280, 1000})
    plan.add_variants()->set_transient_bytes(bytes);
  for (uint32_t variant : {0u, 1u}) {
    Report report = analyzePlan(plan, 0, variant);
    ASSERT_EQ(report.entries.size(), 2u);
    EXPECT_EQ(report.entries[0].programs.size(), 1u);
    EXPECT_EQ(report.arenaBytes, variant ? 1000u : 1280u);
    nlohmann::ordered_json variants = reportJson(report)["memory"]["variants"];
    ASSERT_EQ(variants.size(), 2u);
    EXPECT_EQ(variants[1]["bytes"], 192 + 1000);
    EXPECT_EQ(variants[1]["reported"], variant == 1);
  }
}
