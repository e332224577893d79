//===- ReportTest.cpp - the report's numbers, and its keys ----------------===//
#include "tools/tcc/Report.h"
#include "test/unit/report/HandMadePlan.h"

#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::report;
using namespace tcc::test;

namespace {

std::vector<uint64_t> liveOf(const ProgramMemory &program) {
  std::vector<uint64_t> live;
  for (const TimelineRow &row : program.timeline)
    live.push_back(row.liveBytes);
  return live;
}

/// Adds a second program, the entry predict, with one instruction and `bytes` live.
void addPredict(plan::Plan &plan, uint64_t bytes) {
  plan::Entry &predict = *plan.add_entries();
  predict.set_name("predict");
  predict.set_transient_bytes(bytes);
  predict.set_scalars(-1);
  addBuffer(predict, "y", 0, bytes, 0, 1);
  addInstruction(predict, "only", 7, 8).mutable_copy();
}

} // namespace

TEST(Report, TheTimelineCountsEveryByteOnce) {
  plan::Plan plan = handMadePlan();
  Report report = analyzePlan(plan, 0);
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].name, "train");
  const ProgramMemory &step = report.entries[0].programs.at(0);
  EXPECT_EQ(liveOf(step), (std::vector<uint64_t>{192 + 128, 192 + 1192, 192 + 128, 192 + 128}));
  EXPECT_EQ(report.peakBytes(), 192u + 1192);
  EXPECT_EQ(report.lowerBoundBytes(), report.peakBytes());
  EXPECT_EQ(step.timeline[1].node, "product");
  EXPECT_EQ(step.timeline[1].instruction, "matmul oneDNN");
}

TEST(Report, InputsThatNobodyReadsCountAtTheStart) {
  plan::Plan plan = handMadePlan();
  addBuffer(*plan.mutable_entries(0), "unread", 4096, 32, -1, -1);
  EXPECT_EQ(liveOf(analyzePlan(plan, 0).entries[0].programs[0])[0], 192u + 128); // x and unread: 96, then x and a: 128
  addBuffer(*plan.mutable_entries(0), "large", 8192, 100, -1, -1);
  EXPECT_EQ(liveOf(analyzePlan(plan, 0).entries[0].programs[0])[0], 192u + 64 + 32 + 100);
}

TEST(Report, TheLargestProgramIsTheOneInDetail) {
  plan::Plan plan = handMadePlan();
  addPredict(plan, 5000);
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.peakBytes(), 192u + 5000);
  nlohmann::ordered_json json = reportJson(report);
  EXPECT_EQ(json["entries"], (nlohmann::ordered_json{"train", "predict"}));
  EXPECT_EQ(json["memory"]["program"], "predict");
  EXPECT_EQ(json["memory"]["timeline"].size(), 1u);
  EXPECT_EQ(json["memory"]["entries"]["train"]["peak_bytes"], 192 + 1192);
  EXPECT_EQ(json["memory"]["entries"]["train"]["programs"]["step"]["batch"], 8);
  EXPECT_EQ(json["memory"]["entries"]["train"]["programs"]["step"]["timeline"].size(), 4u);
  EXPECT_EQ(json["memory"]["entries"]["train"]["programs"]["step"]["buffers"].size(), 6u);
  EXPECT_EQ(json["memory"]["entries"]["predict"]["peak_bytes"], 192 + 5000);
}

TEST(Report, KernelsOfOneNameAreOneRow) {
  plan::Plan plan = handMadePlan();
  addPredict(plan, 64); // not part of an update
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.flopsPerStep, 1020);
  ASSERT_EQ(report.kernels.size(), 3u);
  EXPECT_EQ(report.kernels[0].name, "matmul oneDNN"); // most operations first
  const KernelUse &same = report.kernels[1];
  EXPECT_EQ(same.name, "k_same");
  EXPECT_EQ(same.count, 2u);
  EXPECT_EQ(same.flops, 20);
  EXPECT_EQ(same.bytes, 128u + 256);
  EXPECT_EQ(same.nodes, (std::vector<std::string>{"first", "third"}));
  EXPECT_TRUE(same.generated);
  EXPECT_FALSE(report.kernels[0].generated);
}

TEST(Report, SaysWhatRunsBesideWhat) {
  plan::Plan plan = handMadePlan();
  EXPECT_EQ(reportText(analyzePlan(plan, 0)).find("runs beside"), std::string::npos);
  plan::Instruction &update = *plan.mutable_entries(0)->mutable_instructions(0);
  update.set_beside(2);
  plan::Operand &written = *update.add_operands();
  written.set_buffer(4);
  written.set_write(true);
  Report report = analyzePlan(plan, 0);
  const KernelUse &same = report.kernels[1];
  ASSERT_EQ(same.beside.size(), 1u); // the kernel's other instruction must not run beside others
  EXPECT_EQ(same.beside[0].step, 0);
  EXPECT_EQ(same.beside[0].until, 2);
  nlohmann::ordered_json call = reportJson(report)["kernels"][1]["beside"][0];
  EXPECT_EQ(call["program"], "step");
  EXPECT_EQ(call["node"], "first");
  EXPECT_EQ(call["variable"], "w");
  EXPECT_EQ(call["first_node"], "product");
  EXPECT_EQ(call["last_node"], "third");
  std::string text = reportText(report);
  EXPECT_NE(text.find("1 instruction may run concurrently with later instructions"), std::string::npos) << text;
  EXPECT_NE(text.find("product … third"), std::string::npos) << text;
}

TEST(Report, AnUpdateOfSeveralMicroBatchesCountsThemAll) {
  plan::Plan plan = handMadePlan();
  plan.mutable_training()->set_accumulate(4);
  plan.mutable_entries(0)->set_name("accumulate_first");
  *plan.add_entries() = plan.entries(0);
  plan.mutable_entries(1)->set_name("accumulate_next");
  plan::Entry &update = *plan.add_entries();
  update.set_name("update");
  addInstruction(update, "norm", 5, 1).mutable_fill();
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.flopsPerStep, 4 * 1020 + 5);
  EXPECT_EQ(report.kernels[0].count, 4u);
  EXPECT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].programs.size(), 3u);
}

TEST(Report, WithoutTrainingTheKernelsAreAnotherEntrys) {
  plan::Plan plan = handMadePlan();
  plan.clear_entries();
  addPredict(plan, 64);
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(report.flopsPerStep, 0);
  EXPECT_EQ(report.counted, "one call of predict");
  EXPECT_EQ(report.kernels.at(0).name, "copy");
}

/// The arena has 256 bytes below the scratch, which takes 200 bytes and 400 for each worker, at most four since there
/// are four tiles. Costs: 20 ns in each kernel of one tile, 100 ns in the four tiles of the product, 10 ns in a fill of
/// one tile.
TEST(Report, SaysWhatMoreWorkersCostAndGain) {
  plan::Plan plan = handMadePlan();
  plan::Entry &step = *plan.mutable_entries(0);
  for (auto [at, cost] : {std::pair(0, 20), {1, 100}, {2, 20}, {3, 10}})
    step.mutable_instructions(at)->set_cost(uint64_t(cost));
  for (int at : {0, 2})
    step.mutable_instructions(at)->mutable_kernel()->set_tiles(1);
  const nlohmann::ordered_json workers = reportJson(analyzePlan(plan, 0))["workers"];
  EXPECT_EQ(workers["planned"], 2);
  const auto &counts = workers["programs"][0]["counts"];
  ASSERT_EQ(counts.size(), 8u); // 1, 2, 4, … 128
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t count = uint64_t(1) << i;
    EXPECT_EQ(counts[i]["workers"], count);
    EXPECT_EQ(counts[i]["arena_bytes"], 256 + 200 + 400 * std::min<uint64_t>(count, 4));
    EXPECT_DOUBLE_EQ(counts[i]["efficiency"], 150.0 / (double(count) * (50 + 100.0 / double(std::min<uint64_t>(count, 4)))));
  }
  const auto &limiting = workers["programs"][0]["limiting"];
  EXPECT_EQ(limiting[0]["node"], "product"); // 128 workers for 25 ns, with 100 ns of work
  EXPECT_EQ(limiting[0]["tiles"], 4);
  EXPECT_DOUBLE_EQ(limiting[0]["idle_share"], 3100.0 / (3100 + 2 * 127 * 20 + 127 * 10));
  const std::string text = reportText(analyzePlan(plan, 0));
  EXPECT_NE(text.find("workers (step)"), std::string::npos) << text;
}

/// Batches read ahead count as host memory if the settings alone tell that there is a loader.
TEST(Report, BatchesReadAheadAreHostMemory) {
  plan::Plan plan = handMadePlan();
  plan::Entry &step = *plan.mutable_entries(0);
  step.add_inputs()->set_buffer(0);
  step.mutable_buffers(0)->mutable_type()->clear_dims();
  step.mutable_buffers(0)->mutable_type()->set_dtype(plan::F32);
  step.mutable_buffers(0)->mutable_type()->add_dims(16);
  auto &settings = *plan.mutable_data()->mutable_settings();
  auto hostOf = [&] { return reportJson(analyzePlan(plan, 100))["memory"]; };
  EXPECT_EQ(hostOf()["host"]["loader"], 0);
  settings["transform"] = "tables = [{ kind = \"horizontal_flip\", column = \"x\" }]";
  EXPECT_EQ(hostOf()["host"]["loader"], 3 * 64);
  EXPECT_EQ(hostOf()["host_bytes"], 100 + 3 * 64);
  settings["transform"] = "tables = [{ kind = \"horizontal_flip\", column = \"x\", on = \"eval\" }]";
  EXPECT_EQ(hostOf()["host"]["loader"], 0) << "training samples are as they are";
  settings["workers"] = "2";
  EXPECT_EQ(hostOf()["host"]["loader"], 3 * 64);
  EXPECT_NE(reportText(analyzePlan(plan, 100)).find("batches read ahead 192 B"), std::string::npos);
  settings["workers"] = "0";
  EXPECT_EQ(hostOf()["host"]["loader"], 0);
}

TEST(Report, MemoryKeys) {
  plan::Plan plan = handMadePlan();
  nlohmann::ordered_json memory = reportJson(analyzePlan(plan, 100))["memory"];
  EXPECT_EQ(memory["arena_bytes"], 1280);
  EXPECT_EQ(memory["resident_bytes"], 192);
  EXPECT_EQ(memory["peak_bytes"], 192 + 1192);
  EXPECT_EQ(memory["without_recompute_bytes"], memory["peak_bytes"]);
  EXPECT_EQ(memory["host_bytes"], 100);
  EXPECT_EQ(memory["library_bytes"], 0);
  EXPECT_TRUE(memory["budget_bytes"].is_null());
  EXPECT_EQ(memory["resident"]["optimizer"], 64);
  EXPECT_EQ(memory["resident"]["parameters"], 64 + 16);
  const auto &b = memory["buffers"].at(2);
  EXPECT_EQ(b.dump(), R"({"name":"b","node":"node_b","bytes":128,"offset":128,"first":1,"last":2,)"
                      R"("why_alive":"read by node_after_b","arena":"transient",)"
                      R"("purpose":"activation"})");
  EXPECT_EQ(memory["buffers"].at(4)["arena"], "resident");
  // After the plan's own buffers comes the scratch of the two workers that memory was planned for.
  const auto &scratch = memory["buffers"].at(5);
  EXPECT_EQ(scratch["bytes"], 1000);
  EXPECT_EQ(scratch["offset"], 256);
  EXPECT_EQ(scratch["purpose"], "scratch");
  plan.set_budget_bytes(4096);
  EXPECT_EQ(reportJson(analyzePlan(plan, 0))["memory"]["budget_bytes"], 4096);
}

TEST(Report, ParametersAreListedOnce) {
  plan::Plan plan = handMadePlan();
  nlohmann::ordered_json parameters = reportJson(analyzePlan(plan, 0))["parameters"];
  EXPECT_EQ(parameters["trainable"].dump(), R"(["w"])");
  EXPECT_EQ(parameters["frozen"].dump(), R"(["mean"])");
  EXPECT_EQ(parameters["unused"].dump(),
            R"([{"name":"dead","reason":"its branch is read by nobody","node":"dead_branch"}])");
  EXPECT_EQ(parameters["groups"].dump(),
            R"([{"name":"default","lr_scale":1.0,"weight_decay":0.5,"parameters":["w"]}])");
}

TEST(Report, APlanWithoutEntriesHasAReportToo) {
  plan::Plan plan;
  Report report = analyzePlan(plan, 0);
  EXPECT_EQ(reportJson(report)["memory"]["timeline"].size(), 0u);
  EXPECT_NE(reportText(report).find("memory"), std::string::npos);
}
