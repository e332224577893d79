//===- ReportTextTest.cpp - the report for people -------------------------===//
#include "test/unit/report/HandMadePlan.h"
#include "tools/tcc/Report.h"

#include <gtest/gtest.h>

#include <sstream>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {

void expectLine(const std::string &text, std::initializer_list<std::string> words) {
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t at = 0;
    for (const std::string &word : words)
      if (at != std::string::npos)
        at = line.find(word, at);
    if (at != std::string::npos)
      return;
  }
  ADD_FAILURE() << "no line with '" << *words.begin() << "' … in\n" << text;
}

} // namespace

TEST(ReportText, Bytes) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1024), "1.0 KiB");
  EXPECT_EQ(formatBytes(1536), "1.5 KiB");
  EXPECT_EQ(formatBytes((1 << 20) - 1), "1.0 MiB"); // not 1024.0 KiB
  EXPECT_EQ(formatBytes(uint64_t(5) << 30), "5.00 GiB");
  EXPECT_EQ(formatBytes(uint64_t(5) << 40), "5120.00 GiB");
}

TEST(ReportText, SaysWhatTakesMemoryAndWhy) {
  plan::Plan plan = handMadePlan();
  std::string text = reportText(analyzePlan(plan, 100));
  expectLine(text, {"hand.onnx", "cpu:v3", "2 workers"});
  expectLine(text, {"trun allocates", "1.4 KiB", "1472 B"});
  expectLine(text, {"resident", "192 B", "parameters 80 B", "optimizer 64 B", "alignment 40 B"});
  expectLine(text, {"peak", "1.4 KiB", "step, instruction 1 of 4, node product"});
  expectLine(text, {"train", "step", "8", "4", "1.4 KiB", "1.2 KiB", "1.074"}); // 1280 ÷ 1192
  expectLine(text, {"largest of 3 buffers", "instruction 1"});
  expectLine(text, {"128 B", "128", "1–2", "node_b", "u8[128]", "read by node_after_b"});
  expectLine(text, {"1000 B", "scratch"});
}

TEST(ReportText, NamesAttentionAndWhatBrokeIt) {
  plan::Plan plan = handMadePlan();
  auto note = [&](const std::string &kind, const std::string &subject, const std::string &text) {
    plan::Decisions::Note &added = *plan.mutable_decisions()->add_notes();
    added.set_kind(kind);
    added.set_subject(subject);
    added.set_text(text);
  };
  note("attention fused", "sm", R"({"nodes":["s","sm","y"],"samples":2,"heads":4,"key_heads":2,"queries":8,"keys":9,"size":16,
    "scale":0.25,"causal":true,"causal_offset":1,"bias":"1x4x8x9","mask":"","in":["training"]})");
  note("attention elided", "sm", R"({"bytes":2304,"in":["training"]})");
  note("attention missed", "relu", R"({"reason":"relu of the scores","softmax":"other","in":["prediction"]})");
  Report report = analyzePlan(plan, 0);
  std::string text = reportText(report);
  expectLine(text, {"fused: 1", "never formed: 2.2 KiB"});
  expectLine(text, {"sm", "2 × 4 heads on 2, 8 × 9, 16 wide", "× 0.25", "causal + 1, bias 1x4x8x9", "training"});
  expectLine(text, {"relu", "relu of the scores", "prediction"});
  EXPECT_EQ(text.find("note: sm"), std::string::npos);
  nlohmann::ordered_json json = reportJson(report)["attention"];
  EXPECT_EQ(json["fused"][0]["nodes"].size(), 3u);
  EXPECT_EQ(json["near_misses"][0]["node"], "relu");
  EXPECT_EQ(json["weights_elided"][0]["bytes"], 2304);
}

TEST(ReportText, NamesParametersAndReasons) {
  plan::Plan plan = handMadePlan();
  std::string text = reportText(analyzePlan(plan, 0));
  expectLine(text, {"trainable: 1 tensor, 16 elements, 64 B"});
  expectLine(text, {"group \"default\"", "weight decay 0.5"});
  expectLine(text, {"dead", "dead_branch", "its branch is read by nobody"});
  expectLine(text, {"kept: 1 buffer, 64 B"});
  expectLine(text, {"w", "64 B", "scattered into"});
  expectLine(text, {"matmul oneDNN", "1", "1.0 KFLOP", "98.0 %", "192 B", "product"});
  expectLine(text, {"k_same", "2", "20 FLOP", "first, third"});
}

TEST(ReportText, TrainingIsShownBesideALargerProgram) {
  plan::Plan plan = handMadePlan();
  plan::Entry &predict = *plan.add_entries();
  predict.set_name("predict");
  addBuffer(predict, "y", 0, 9000, 0, 1);
  addInstruction(predict, "only", 7, 8).mutable_copy();
  std::string text = reportText(analyzePlan(plan, 0));
  expectLine(text, {"largest of 1 buffer at the peak (predict, instruction 0)"});
  expectLine(text, {"largest of 3 buffers at the peak (step, instruction 1)"});
}

TEST(ReportText, LongListsAreCut) {
  plan::Plan plan = handMadePlan();
  for (int i = 0; i < 40; ++i)
    plan.mutable_decisions()->mutable_groups(0)->add_parameters("w");
  expectLine(reportText(analyzePlan(plan, 0)), {"w, w,", "and 29 more"});
}

TEST(ReportText, LinesHaveNoTrailingSpaces) {
  plan::Plan plan = handMadePlan();
  EXPECT_EQ(reportText(analyzePlan(plan, 0)).find(" \n"), std::string::npos);
}
