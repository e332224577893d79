//===- ReportHtmlTest.cpp - the report as one page ------------------------===//
#include "test/unit/report/HandMadePlan.h"
#include "tools/tcc/Report.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {

nlohmann::ordered_json dataOf(const std::string &page) {
  const std::string open = "<script type=\"application/json\" id=\"report\">";
  size_t from = page.find(open) + open.size();
  return nlohmann::ordered_json::parse(page.substr(from, page.find("</script>", from) - from));
}

size_t countOf(const std::string &text, const std::string &part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

} // namespace

TEST(ReportHtml, ColumnsHoldBuffersAndInstructions) {
  plan::Plan plan = handMadePlan();
  nlohmann::ordered_json data = dataOf(reportHtml(analyzePlan(plan, 0)));
  ASSERT_EQ(data["programs"].size(), 1u);
  const auto &step = data["programs"][0];
  EXPECT_EQ(step["live"].dump(), "[320,1384,320,320]");
  EXPECT_EQ(step["peak_step"], 1);
  EXPECT_EQ(step["phase"], "FFFF");
  EXPECT_EQ(step["buffers"]["bytes"].dump(), "[64,64,128,128,64,1000]");
  EXPECT_EQ(step["buffers"]["first"].dump(), "[-1,0,1,2,-1,1]");
  EXPECT_EQ(step["buffers"]["purpose"].dump(), "[4,0,0,5,7,6]"); // input, activations, output, state, scratch
  EXPECT_EQ(data["strings"][step["buffers"]["node"][2].get<size_t>()], "node_b");
  EXPECT_EQ(data["report"]["model"], "hand.onnx");
}

TEST(ReportHtml, NoNameEndsTheElementThatHoldsIt) {
  plan::Plan plain = handMadePlan(), plan = handMadePlan();
  const std::string evil =
      "</script><script>alert(1)</script><!-- @DATA@ \"'\\ \xE2\x80\xA8\xE2\x80\xAE" + std::string(10000, 'x');
  plan.set_model(evil);
  plan.set_recipe(evil);
  plan.mutable_entries(0)->mutable_buffers(1)->set_node(evil);
  plan.mutable_entries(0)->mutable_instructions(1)->set_node(evil);
  plan.mutable_variables(0)->set_name(evil);
  std::string page = reportHtml(analyzePlan(plan, 0)), before = reportHtml(analyzePlan(plain, 0));
  EXPECT_EQ(countOf(page, "<"), countOf(before, "<"));
  nlohmann::ordered_json data = dataOf(page);
  EXPECT_EQ(data["report"]["model"], evil);
  EXPECT_EQ(data["recipe"], evil);
  EXPECT_EQ(data["strings"][data["programs"][0]["buffers"]["node"][1].get<size_t>()], evil);
}

TEST(ReportHtml, TheSamePlanGivesTheSameBytes) {
  plan::Plan plan = handMadePlan();
  EXPECT_EQ(reportHtml(analyzePlan(plan, 7)), reportHtml(analyzePlan(plan, 7)));
}

TEST(ReportHtml, APlanWithoutEntriesHasAPageToo) {
  plan::Plan plan;
  EXPECT_EQ(dataOf(reportHtml(analyzePlan(plan, 0)))["programs"].size(), 0u);
}
