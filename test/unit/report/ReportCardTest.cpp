//===- ReportCardTest.cpp - the roofline of a CUDA card in reports --------===//
#include "test/unit/report/HandMadePlan.h"
#include "tools/common/Cards.h"
#include "tools/tcc/Report.h"
#include "tools/tcc/ReportSections.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {
/// A plan for a card whose bandwidth is about 10¹² bytes a second: two launches are memory-bound, one is compute-bound.
plan::Plan cudaPlan(const std::string &card) {
  plan::Plan plan = handMadePlan();
  plan.set_target("cuda:sm_90");
  plan.set_execution(plan::Plan::GRIDS);
  plan.set_card(card);
  plan::Entry &step = *plan.mutable_entries(0);
  step.mutable_instructions(0)->set_bytes(4'800'000'000);
  step.mutable_instructions(1)->mutable_kernel()->set_symbol("k_loops");
  step.mutable_instructions(1)->mutable_kernel()->set_loops("attention");
  plan::KernelSignature &single = *plan.add_code_objects()->add_kernels();
  single.set_symbol("k_loops");
  single.set_tile_threads(1);
  step.mutable_instructions(1)->set_flops(66.9e9);
  step.mutable_instructions(2)->set_bytes(9'600'000'000);
  return plan;
}
} // namespace

TEST(ReportCard, IsTheRooflineOfANamedCard) {
  plan::Plan plan = cudaPlan("h200");
  nlohmann::ordered_json card = cardJson(analyzePlan(plan, 0));
  EXPECT_EQ(card["name"], "h200");
  EXPECT_TRUE(card["named"]);
  EXPECT_EQ(card["launches"], 4);
  // 1 ms and 2 ms at 4.8 TB/s, 1 ms at 66.9 Tflop/s, and a negligible time for 64 bytes.
  EXPECT_NEAR(card["best_seconds"].get<double>(), 4e-3, 1e-9);
  EXPECT_NEAR(card["memory_bound_share"].get<double>(), 0.75, 1e-6);
  EXPECT_NEAR(card["best_seconds_on_tensor_cores"].get<double>(), 4e-3, 1e-9) << "f32 has none";
  ASSERT_EQ(card["floor"].size(), 1u);
  EXPECT_EQ(card["floor"][0]["loops"], "attention");
  EXPECT_EQ(card["floor"][0]["count"], 1);
  plan.set_precision("bf16");
  card = cardJson(analyzePlan(plan, 0));
  EXPECT_NEAR(card["best_seconds_on_tensor_cores"].get<double>(), 3e-3 + 66.9e9 / 989.4e12, 1e-9);
  EXPECT_NEAR(card["best_seconds"].get<double>(), 4e-3, 1e-9) << "what kernels use today";
}

TEST(ReportCard, IsTheUsualCardOfTheArchitectureWithoutAName) {
  plan::Plan plan = cudaPlan("");
  Report report = analyzePlan(plan, 0);
  nlohmann::ordered_json card = cardJson(report);
  EXPECT_EQ(card["name"], "h100");
  EXPECT_FALSE(card["named"]);
  EXPECT_NEAR(card["best_seconds"].get<double>(), 3 * 4.8 / 3350 + 1e-3, 1e-9);
  std::string text = cardText(report);
  for (const char *part : {"H100 SXM (sm_90)", "one update takes at least 5.3 ms in 4 launches", "a bound, not a measurement",
                           "one thread a tile", "attention"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in" << text;
}

TEST(ReportCard, ExpectsMoreThanTheBound) {
  plan::Plan plan = cudaPlan("h200");
  const Report report = analyzePlan(plan, 0);
  const nlohmann::ordered_json card = cardJson(report);
  const double expected = card["expected_seconds"], least = card["best_seconds"];
  EXPECT_GT(expected, 1.1 * least);
  EXPECT_LT(expected, 10 * least);
  EXPECT_TRUE(card["rates_measured"]);
  double sum = 0;
  for (const auto &[name, seconds] : card["expected_classes"].items())
    sum += seconds.get<double>();
  EXPECT_NEAR(sum, expected, 1e-12);
  EXPECT_GT(card["expected_classes"]["attention"], 0) << "its kernel has loops of this name";
  EXPECT_NEAR(card["expected_classes"]["launches"].get<double>(), 4 * 2.5e-6, 1e-9);
  const std::string text = cardText(report);
  for (const std::string &part :
       {fmt::format("expected: {:.3g} ms by rates that an H100 and an H200 have shown", 1e3 * expected),
        std::string("by kind, in ms: ")})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in" << text;
}

TEST(ReportCard, SaysWhereNoCardWasMeasured) {
  plan::Plan plan = cudaPlan("");
  plan.set_target("cuda:sm_80");
  const Report report = analyzePlan(plan, 0);
  EXPECT_FALSE(cardJson(report)["rates_measured"]);
  EXPECT_NE(cardText(report).find("no card of sm_80 has been measured"), std::string::npos) << cardText(report);
}

TEST(ReportCard, CountsTheLaunchesOfSlices) {
  plan::Plan plan = cudaPlan("h200");
  plan::MatmulCall &product = *plan.mutable_entries(0)->mutable_instructions(2)->mutable_matmul();
  product.set_implementation(plan::MatmulCall::BLAS);
  product.set_dtype(plan::F32);
  product.set_m(1000), product.set_n(1 << 18), product.set_k(64), product.set_tile_m(400);
  product.mutable_row_kernel()->set_symbol("k_rows");
  const Report report = analyzePlan(plan, 0);
  const nlohmann::ordered_json card = cardJson(report);
  EXPECT_EQ(card["sliced_gradients"], 1);
  EXPECT_EQ(card["slice_launches"], 6) << "400, 400 and 200 rows, a product and a kernel for each";
  EXPECT_EQ(card["launches"], 3 + 6);
  EXPECT_NE(
      cardText(report).find(
          "1 weight gradient in slices, 1000.0 MiB never stored whole: 6 launches, where whole ones would take 2"),
      std::string::npos)
      << cardText(report);
}

TEST(ReportCard, OtherTargetsHaveNone) {
  plan::Plan plan = handMadePlan();
  EXPECT_TRUE(cardJson(analyzePlan(plan, 0)).is_null());
  EXPECT_EQ(cardText(analyzePlan(plan, 0)), "");
}

TEST(Cards, TheOneThatRunsCountsMoreThanTheOneThatWasPlannedFor) {
  plan::Plan plan = cudaPlan("h200");
  EXPECT_EQ(chooseCard(plan, "NVIDIA H100 80GB HBM3").card, findCard("h100"));
  EXPECT_EQ(chooseCard(plan, "NVIDIA H100 80GB HBM3").from, ChosenCard::From::Device);
  EXPECT_EQ(chooseCard(plan, "Emulated sm_90").card, findCard("h200"));
  EXPECT_EQ(chooseCard(plan).from, ChosenCard::From::Plan);
  plan.clear_card();
  EXPECT_EQ(chooseCard(plan).card, findCard("h100"));
  EXPECT_EQ(chooseCard(plan).from, ChosenCard::From::Architecture);
  plan.set_target("cpu:v4");
  plan.set_execution(plan::Plan::WORKERS);
  EXPECT_EQ(chooseCard(plan, "NVIDIA H200").card, nullptr);
}

TEST(Cards, HaveNamesOfTheirOwnAndPlausibleRates) {
  std::set<std::string_view> names;
  for (const report::Card &card : report::cards()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_EQ(report::findCard(card.name), &card);
    EXPECT_TRUE(card.architecture.starts_with("sm_"));
    EXPECT_GE(card.memoryBytes, 20'000'000'000u) << card.name;
    EXPECT_LE(card.f32, card.tf32) << card.name;
    EXPECT_LT(card.tf32, card.bf16) << card.name;
    EXPECT_FALSE(card.source.empty()) << card.name;
    EXPECT_EQ(report::findCardOfDriver(card.driverName), &card) << card.driverName;
  }
  for (const report::Card &slice : report::slices()) {
    EXPECT_TRUE(names.insert(slice.name).second) << slice.name;
    EXPECT_EQ(report::findCard(slice.name), &slice);
    EXPECT_EQ(report::findCardOfDriver(slice.driverName), &slice) << slice.driverName;
  }
  // Half of the memory and its bandwidth, three sevenths of the processors.
  const report::Card &half = *report::findCard("h100-3g.40gb"), &h100 = *report::findCard("h100");
  EXPECT_EQ(half.architecture, "sm_90");
  EXPECT_EQ(half.memoryBytes, 40'000'000'000u);
  EXPECT_DOUBLE_EQ(half.bytesPerSecond, h100.bytesPerSecond / 2);
  EXPECT_DOUBLE_EQ(half.bf16, h100.bf16 * 3 / 7);
  EXPECT_EQ(report::findCard("a100-1g.5gb")->memoryBytes, 5'000'000'000u);
  EXPECT_EQ(report::findCardOfDriver("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), report::findCard("a100-1g.5gb"));
  EXPECT_EQ(report::findCard("H200")->title, "H200 SXM");
  EXPECT_EQ(report::findCard("h300"), nullptr);
  EXPECT_EQ(report::usualCard("sm_80")->name, "a100");
  EXPECT_EQ(report::usualCard("sm_70"), nullptr);
}
