//===- ProfileTest.cpp - profiles of a hand-made plan --------------------===//
#include "runtime/train/Profile.h"
#include "runtime/train/EntryRunner.h"
#include "test/unit/train/TrainFixture.h"
#include "tools/trun/Commands.h"
#include "tools/trun/ProfileReport.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;
using namespace tcc::tools;

namespace {
class Profiling : public TrainTest {
protected:
  /// 1000 FLOPs and 400 bytes an instruction.
  std::string plan(int64_t accumulate) {
    return writeRegressionPlan(at("p.tplan"), accumulate, [](plan::Plan &plan) {
      for (plan::Entry &entry : *plan.mutable_entries())
        for (plan::Instruction &instruction : *entry.mutable_instructions()) {
          instruction.set_flops(1000);
          instruction.set_bytes(400);
        }
    });
  }
  std::string data() { return writeRegressionData(at("d.safetensors"), 12); }

  Session open(const std::string &path) {
    auto session = openSession({path, "cpu", 1, {}});
    EXPECT_TRUE(session.ok()) << session.message();
    return session.take();
  }

  Status command(Options options, std::string &out) {
    options.command = Options::Command::Profile;
    options.session.threads = 1;
    ::testing::internal::CaptureStdout();
    Status status = runCommand(options);
    out = ::testing::internal::GetCapturedStdout();
    return status;
  }
};

const ProfiledKernel *kernelOf(const ProfileReport &report, const std::string &node) {
  for (const ProfiledKernel &kernel : report.kernels)
    if (kernel.nodes.front() == node)
      return &kernel;
  return nullptr;
}
} // namespace

TEST_F(Profiling, AWindowRunsEveryEntryAsOftenAsAnUpdateDoes) {
  Session session = open(plan(3));
  auto measured = profile(session, {data(), "", 1, 4});
  ASSERT_TRUE(measured.ok()) << measured.message();
  ASSERT_EQ(measured->steps.size(), 4u);
  EXPECT_EQ(measured->samples, 12u); // three batches of four
  for (const StepTimes &step : measured->steps) {
    ASSERT_EQ(step.runs.size(), 4u);
    double last = step.begin;
    for (const EntryTimes &run : step.runs) {
      ASSERT_EQ(run.pieces.size(), 1u);
      EXPECT_LE(last, run.begin);
      EXPECT_LE(run.begin, run.pieces[0].end);
      last = run.pieces[0].end;
    }
    EXPECT_LE(last, step.end);
  }
  ProfileReport report = makeProfileReport(session, *measured, std::nullopt);
  EXPECT_EQ(kernelOf(report, "node_accumulate_first")->calls, 1u);
  EXPECT_EQ(kernelOf(report, "node_accumulate_next")->calls, 2u);
  EXPECT_EQ(kernelOf(report, "node_update")->calls, 1u);
  EXPECT_EQ(kernelOf(report, "node_accumulate_next")->flops, 2000);
  EXPECT_GT(report.instructionSeconds(), 0);
  // The weights moved as training moves them: the profile ran real updates.
  std::vector<float> w = valuesAt<float>(*session.device, Place::variable(kWeight));
  EXPECT_TRUE(w[0] != 0 && w[1] != 0 && w[2] != 0);
}

TEST_F(Profiling, SharesFollowFromTimesAndRates) {
  Session session = open(plan(3));
  Profile times;
  for (const char *name : {"accumulate_first", "accumulate_next", "update"})
    times.entries.push_back(findEntry(session.plan(), name));
  // Two steps of 10 us. The first kernel takes 2 us, the second runs twice for 1 us (once 3, which the median ignores),
  // the third takes 4 us.
  for (int step = 0; step < 2; ++step)
    times.steps.push_back({0,
                           10e-6,
                           {{0, 0, {{0, 2e-6}}},
                            {1, 3e-6, {{0, 4e-6}}},
                            {1, 4e-6, {{0, 5e-6}, {0, step ? 7e-6 : 5e-6}}},
                            {2, 5e-6, {{0, 9e-6}}}}});
  Roofline roofline;
  roofline.matmul.push_back({plan::F32, 1, 1, 1, false, 1e9}); // 1000 FLOP: 1 us
  roofline.bytesPerSecond = 100e6;                             // 400 bytes: 4 us
  ProfileReport report = makeProfileReport(session, times, roofline);
  EXPECT_DOUBLE_EQ(report.stepSeconds, 10e-6);
  EXPECT_NEAR(report.instructionSeconds(), 8e-6, 1e-12);
  ASSERT_EQ(report.kernels.front().nodes.front(), "node_update");
  EXPECT_NEAR(report.kernels.front().rooflineShare(), 1, 1e-6);
  EXPECT_NEAR(kernelOf(report, "node_accumulate_next")->seconds, 2e-6, 1e-12);
  EXPECT_NEAR(kernelOf(report, "node_accumulate_first")->trafficSeconds, 4e-6, 1e-12);
  nlohmann::json json = nlohmann::json::parse(profileJson(report));
  EXPECT_EQ(json["kernels"][0]["limit"], "memory");
  EXPECT_NEAR(json["at_roofline_share"].get<double>(), 0.8, 1e-9); // all kernels reach the measured bandwidth
  roofline.bytesPerSecond = 1e9; // 0.4 us: arithmetic limits, and only the second kernel runs at its rate
  json = nlohmann::json::parse(profileJson(makeProfileReport(session, times, roofline)));
  EXPECT_EQ(json["kernels"][0]["limit"], "arithmetic");
  EXPECT_NEAR(json["kernels"][0]["roofline_share"].get<double>(), 0.25, 1e-6);
  EXPECT_NEAR(json["at_roofline_share"].get<double>(), 0.2, 1e-9);
}

TEST_F(Profiling, TimesOfACardAreHeldAgainstItsDataSheet) {
  Session session = open(plan(3));
  Profile times;
  for (const char *name : {"accumulate_first", "accumulate_next", "update"})
    times.entries.push_back(findEntry(session.plan(), name));
  // One step of 10 us: 2 us, twice 1 us, 4 us.
  times.steps.push_back(
      {0, 10e-6, {{0, 0, {{0, 2e-6}}}, {1, 3e-6, {{0, 4e-6}}}, {1, 4e-6, {{0, 5e-6}}}, {2, 5e-6, {{0, 9e-6}}}}});
  report::Card card = *report::findCard("h200");
  card.f32 = 1.4e9;           // 1000 FLOP: 0.714 us
  card.bytesPerSecond = 1e12; // 400 bytes: next to nothing
  ProfileReport report = makeProfileReport(session, times, std::nullopt, {&card, report::ChosenCard::From::Plan});
  nlohmann::json json = nlohmann::json::parse(profileJson(report));
  EXPECT_EQ(json["roofline"]["card"], "h200");
  EXPECT_EQ(json["roofline"]["from"], "plan");
  EXPECT_EQ(json["roofline"]["f32_flops_per_s"], 1.4e9);
  EXPECT_NEAR(json["roofline_seconds"].get<double>(), 4 / 1.4 * 1e-6, 1e-12);
  // The two calls of 1 us take 1.4 times their roofline time, the others more than 1.5 times.
  EXPECT_NEAR(json["at_roofline"].get<double>(), 1 / 1.5, 1e-12);
  EXPECT_NEAR(json["at_roofline_share"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(json["kernels"][0]["limit"], "arithmetic");
  EXPECT_NEAR(json["kernels"][0]["roofline_share"].get<double>(), 1 / 1.4 / 4, 1e-9);
  uint64_t launches = 0;
  for (const nlohmann::json &kernel : json["kernels"])
    launches += kernel["launches"].get<uint64_t>();
  EXPECT_EQ(launches, 4u);
  const std::string text = profileText(report, true);
  for (const char *part : {"roofline, by data sheet: H200 SXM, for which the plan was made",
                           "4 launches; by the data sheet they take "
                           "at least 0.003 ms, 28.6 % of the step",
                           "20.0 % of the step in kernels that take at most 1.5 times"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST_F(Profiling, TheCommandWritesJsonAndATrace) {
  Options options;
  options.session.planPath = plan(1);
  options.profile.data = data();
  options.json = true;
  options.noRoofline = true;
  options.trace = at("trace.json");
  std::string out;
  Status status = command(options, out);
  ASSERT_TRUE(status.ok()) << status.message();
  nlohmann::json json = nlohmann::json::parse(out);
  EXPECT_TRUE(json["roofline"].is_null());
  EXPECT_EQ(json["kernels"][0]["nodes"], nlohmann::json::array({"node_step"}));
  EXPECT_EQ(json["instructions"].size(), 1u);
  EXPECT_GT(json["step_seconds"], 0);
  auto text = readFile(options.trace);
  ASSERT_TRUE(text.ok()) << text.message();
  std::map<std::string, nlohmann::json> events;
  nlohmann::json trace = nlohmann::json::parse(*text);
  for (const nlohmann::json &event : trace["traceEvents"])
    if (event["ph"] == "X")
      events[event["cat"]] = event;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events["generated"]["args"]["node"], "node_step");
  double begin = events["generated"]["ts"], took = events["generated"]["dur"];
  EXPECT_GE(begin, events["step"]["ts"].get<double>());
  EXPECT_LE(begin + took, events["step"]["dur"].get<double>() + 1e-3);
  options.json = false;
  ASSERT_TRUE(command(options, out).ok());
  for (const char *word : {"node_step", "ms a step", "a step takes", "generated"})
    EXPECT_NE(out.find(word), std::string::npos) << word << "\n" << out;
}

TEST_F(Profiling, WhatIsWrongIsNamed) {
  Options options;
  options.session.planPath = plan(1);
  options.profile.data = data();
  options.noRoofline = true;
  std::string out;
  options.profile.entry = "train";
  Status status = command(options, out);
  EXPECT_EQ(status.code(), StatusCode::Usage);
  expectError(status, {"--entry train", "step, evaluate, predict, gradients"});
  options.profile.entry = "evaluate";
  EXPECT_TRUE(command(options, out).ok());
  EXPECT_NE(out.find("node_evaluate"), std::string::npos);
  options.trace = at("none/trace.json");
  expectError(command(options, out), {"none/trace.json"});
  options.trace.clear();
  options.profile.data = writeRegressionData(at("few.safetensors"), 3);
  expectError(command(options, out), {"few.safetensors", "3", "4"});
  options.profile.data = at("nothing.safetensors");
  expectError(command(options, out), {"nothing.safetensors"});
}

TEST(InstructionText, SaysWhatDiffers) {
  plan::Entry entry;
  plan::Instruction instruction;
  plan::MatmulCall &matmul = *instruction.mutable_matmul();
  matmul.set_dtype(plan::F32);
  matmul.set_batch(1);
  matmul.set_m(256);
  matmul.set_n(768);
  matmul.set_k(3072);
  matmul.set_trans_b(true);
  matmul.set_tile_m(64);
  EXPECT_EQ(report::instructionText(entry, instruction), "matmul 256x768x3072 NT by oneDNN");
  EXPECT_EQ(report::instructionKind(instruction), report::InstructionKind::Library);
  plan::Instruction other = instruction;
  other.mutable_matmul()->set_tile_m(32);
  EXPECT_NE(report::instructionKey(entry, instruction), report::instructionKey(entry, other));
  other.mutable_matmul()->set_dtype(plan::BF16);
  other.set_recompute(true);
  EXPECT_EQ(report::instructionText(entry, other), "matmul bf16 256x768x3072 NT by oneDNN of bf16 again");
  EXPECT_EQ(report::arithmeticType(other), plan::BF16);
  other.mutable_matmul()->set_result_dtype(plan::F32);
  other.mutable_matmul()->set_accumulate(true);
  other.set_recompute(false);
  EXPECT_EQ(report::instructionText(entry, other), "matmul bf16 256x768x3072 NT -> f32 accumulate by oneDNN of bf16");
  // Two regions with the same kernel share a line, whatever their numbers of nodes.
  plan::Instruction kernel;
  kernel.mutable_kernel()->set_symbol("k0123456789abcdef");
  kernel.add_nodes("a");
  plan::Instruction again = kernel;
  again.add_nodes("b");
  EXPECT_EQ(report::instructionText(entry, again), "kernel k012345678 of 2 nodes");
  EXPECT_EQ(report::instructionKey(entry, kernel), report::instructionKey(entry, again));
  // Kernels with loops of their own may multiply in another type than f32; the rate of that type bounds them.
  EXPECT_EQ(report::arithmeticType(kernel), plan::F32);
  again.mutable_kernel()->set_dtype(plan::BF16);
  EXPECT_EQ(report::arithmeticType(again), plan::BF16);
  plan::Instruction convolution;
  plan::ConvolutionCall &call = *convolution.mutable_convolution();
  call.set_kind(plan::ConvolutionCall::WEIGHT_GRADIENT);
  call.set_dtype(plan::F32);
  for (int64_t value : {8, 64, 28, 28})
    call.add_x_dims(value);
  for (int64_t value : {128, 32, 3, 3})
    call.add_w_dims(value);
  for (int64_t value : {8, 128, 14, 14})
    call.add_y_dims(value);
  for (int i = 0; i < 2; ++i) {
    call.add_strides(2);
    call.add_dilations(1);
  }
  call.set_groups(2);
  EXPECT_EQ(report::instructionText(entry, convolution),
            "conv 3x3 64->128 8x14x14 stride 2x2 groups 2 weight gradient");
}
