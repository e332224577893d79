//===- ReportDiffTest.cpp - what changed between two plans ----------------===//
#include "tools/tcc/ReportDiff.h"
#include "test/unit/report/HandMadePlan.h"
#include "runtime/plan/Spaces.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {

nlohmann::ordered_json difference(const plan::Plan &a, const plan::Plan &b) {
  return diffJson(analyzePlan(a, 0), analyzePlan(b, 0));
}

void expectText(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in\n" << text;
}

} // namespace

TEST(ReportDiff, EqualPlansHaveNone) {
  EXPECT_EQ(diffText(difference(handMadePlan(), handMadePlan())), "no difference\n");
  plan::Plan other = handMadePlan();
  other.mutable_entries(0)->mutable_buffers(1)->set_offset(1500);
  expectText(diffText(difference(handMadePlan(), other)),
             "no difference in the reports; the files differ in constants");
}

TEST(ReportDiff, SizesAreSetAgainstEachOther) {
  plan::Plan other = handMadePlan();
  plan::setSpaceBytes(other, plan::TRANSIENT, 2560);
  other.set_budget_bytes(4096);
  other.mutable_entries(0)->set_batch(16);
  nlohmann::ordered_json json = difference(handMadePlan(), other);
  EXPECT_EQ(json["memory"]["arena_bytes"].dump(), R"({"a":1280,"b":2560})");
  EXPECT_EQ(json["memory"]["budget_bytes"].dump(), R"({"a":null,"b":4096})");
  EXPECT_FALSE(json["memory"].contains("resident_bytes"));
  EXPECT_EQ(json["programs"]["step"].dump(), R"({"batch":{"a":8,"b":16}})");
  EXPECT_EQ(json["identical"], false);
  std::string text = diffText(json);
  expectText(text, "arena           1.2 KiB  2.5 KiB  +1.2 KiB  +100.0 %");
  expectText(text, "budget             none  4.0 KiB");
}

TEST(ReportDiff, BuffersAtThePeakAreMatchedWithoutTheirNumbers) {
  plan::Plan a = handMadePlan(), b = handMadePlan();
  for (plan::Plan *plan : {&a, &b})
    for (plan::Buffer &buffer : *plan->mutable_entries(0)->mutable_buffers())
      buffer.set_name(buffer.name() + (plan == &a ? " #1" : " #27")); // as if one plan had more values
  EXPECT_TRUE(difference(a, b)["programs"].empty());
  b.mutable_entries(0)->mutable_buffers(1)->set_bytes(32);
  b.mutable_entries(0)->mutable_buffers(2)->set_name("another #3");
  nlohmann::ordered_json peak = difference(a, b)["programs"]["step"]["at_peak"];
  EXPECT_EQ(peak["changed"].dump(),
            R"([{"name":"a","node":"node_a","a":{"bytes":64,"count":1},"b":{"bytes":32,"count":1}}])");
  EXPECT_EQ(peak["appeared"].dump(), R"([{"name":"another","node":"node_b","bytes":128,"count":1}])");
  EXPECT_EQ(peak["vanished"].dump(), R"([{"name":"b","node":"node_b","bytes":128,"count":1}])");
  std::string text = diffText(difference(a, b));
  expectText(text, "buffers live at the peak of step: 1 buffer appeared (128 B), 1 buffer vanished (128 B), 1 changed");
  expectText(text, "- b (node_b)");
  expectText(text, "+ another (node_b)");
}

TEST(ReportDiff, ProgramsKernelsParametersAndRecipe) {
  plan::Plan a = handMadePlan(), b = handMadePlan();
  a.set_recipe("[optimizer]\nlr = 1\nbetas = 2\n# a remark\n");
  b.set_recipe("[optimizer]\n\n  lr = 3\nbetas = 2\n[train]\nlr = 1\n");
  b.mutable_entries(0)->mutable_instructions(1)->mutable_matmul()->set_implementation(
      plan::MatmulCall::PANELS);
  b.mutable_variables(3)->set_role(plan::PARAMETER);
  b.mutable_training()->mutable_optimizer()->mutable_groups(0)->set_weight_decay(0);
  b.add_entries()->set_name("predict");
  nlohmann::ordered_json json = difference(a, b);
  EXPECT_EQ(json["recipe"].dump(),
            R"({"vanished":["[optimizer] lr = 1"],"appeared":["[optimizer] lr = 3","[train] lr = 1"]})");
  EXPECT_EQ(json["kernels"]["vanished"][0]["name"], "matmul oneDNN");
  EXPECT_EQ(json["kernels"]["appeared"][0]["name"], "matmul panels");
  EXPECT_EQ(json["parameters"]["trainable"].dump(), R"({"appeared":["mean"]})");
  EXPECT_EQ(json["parameters"]["frozen"].dump(), R"({"vanished":["mean"]})");
  EXPECT_EQ(json["parameters"]["groups"]["vanished"][0], "w in \"default\": lr x 1, weight decay 0.5");
  EXPECT_EQ(json["programs"]["predict"]["change"], "appeared");
  std::string text = diffText(json);
  for (const char *part : {"program predict: in B alone", "recipe\n  - [optimizer] lr = 1\n  + [optimizer] lr = 3\n",
                           "- matmul oneDNN", "trained parameters\n  + mean\n"})
    expectText(text, part);
}

TEST(ReportDiff, AnotherOrderIsSaid) {
  plan::Plan other = handMadePlan();
  other.mutable_entries(0)->mutable_instructions()->SwapElements(2, 3);
  EXPECT_EQ(difference(handMadePlan(), other)["programs"]["step"].dump(), R"({"reordered":true})");
  expectText(diffText(difference(handMadePlan(), other)), "the same instructions in another order");
}
