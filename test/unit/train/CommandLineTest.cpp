//===- CommandLineTest.cpp - trun's arguments, and how it refuses them ---===//
#include "runtime/state/Checkpoint.h"
#include "test/unit/train/TrainFixture.h"
#include "tools/common/ExitStatus.h"
#include "tools/trun/Commands.h"
#include "runtime/plan/Spaces.h"

using namespace tcc;
using namespace tcc::test;
using namespace tcc::tools;

namespace {
struct Outcome {
  Parsed parsed;
  std::string err;
};

Outcome parse(std::vector<std::string> words) {
  words.insert(words.begin(), "trun");
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  Parsed parsed = parseCommandLine(static_cast<int>(pointers.size()), pointers.data());
  std::string out = ::testing::internal::GetCapturedStdout();
  return {parsed, ::testing::internal::GetCapturedStderr() + out};
}

void expectUsage(std::vector<std::string> words, std::initializer_list<std::string> texts) {
  Outcome outcome = parse(std::move(words));
  EXPECT_EQ(outcome.parsed.exitStatus, kExitUsage);
  for (const std::string &text : texts)
    EXPECT_NE(outcome.err.find(text), std::string::npos) << "no '" << text << "' in: " << outcome.err;
}
} // namespace

TEST(CommandLine, Training) {
  Outcome outcome = parse({"p.tplan", "--data", "d", "--steps", "7", "--no-shuffle", "--set", "optimizer.lr=1", "--set",
                           "train.seed=2", "--out", "run", "--no-release", "--seed", "3"});
  ASSERT_FALSE(outcome.parsed.exitStatus.has_value()) << outcome.err;
  const Options &options = outcome.parsed.options;
  EXPECT_EQ(options.command, Options::Command::Train);
  EXPECT_EQ(options.session.planPath, "p.tplan");
  EXPECT_EQ(options.train.steps, 7u);
  EXPECT_FALSE(options.train.epochs.has_value());
  EXPECT_EQ(options.train.shuffle, false);
  EXPECT_EQ(options.train.seed, 3u);
  EXPECT_EQ(options.train.release, false);
  EXPECT_EQ(options.session.settings, (std::vector<std::string>{"optimizer.lr=1", "train.seed=2"}));
  EXPECT_FALSE(parse({"p.tplan", "--data", "d"}).parsed.options.train.shuffle.has_value());
}

TEST(CommandLine, OtherCommands) {
  Options options =
      parse({"predict", "p.tplan", "--inputs", "i", "--outputs", "o", "--from", "run@best"}).parsed.options;
  EXPECT_EQ(options.command, Options::Command::Predict);
  EXPECT_EQ(options.from, "run@best");
  options = parse({"export", "run@3", "-o", "m.onnx", "--keep-mode"}).parsed.options;
  EXPECT_EQ(options.run, "run@3");
  EXPECT_TRUE(options.exporting.keepMode);
}

TEST(CommandLine, HelpAndVersion) {
  for (const char *command : {"train", "eval", "predict", "gradients", "export", "verify", "profile"}) {
    Outcome help = parse({command, "--help"});
    EXPECT_EQ(help.parsed.exitStatus, kExitDone);
    EXPECT_NE(help.err.find("--help"), std::string::npos);
    EXPECT_EQ(parse({command, "--version"}).parsed.exitStatus, kExitDone);
  }
  EXPECT_NE(parse({"--help"}).err.find("--no-shuffle"), std::string::npos);
  EXPECT_NE(parse({"--version"}).err.find("trun "), std::string::npos);
}

TEST(CommandLine, WrongUsage) {
  expectUsage({"p.tplan"}, {"--data"});
  expectUsage({}, {"PLAN"});
  expectUsage({"p.tplan", "--data", "d", "--stepz", "3"}, {"'--stepz'", "'--steps'"});
  expectUsage({"p.tplan", "--dat", "d"}, {"'--dat'", "'--data'"});
  expectUsage({"p.tplan", "--data", "d", "--steps", "3", "--epochs", "1"}, {"--epochs", "--steps"});
  expectUsage({"p.tplan", "--data", "d", "--steps", "three"}, {"--steps", "three"});
  expectUsage({"p.tplan", "--data", "d", "--shuffle", "--no-shuffle"}, {"shuffle"});
  expectUsage({"p.tplan", "--data", "d", "--nproc", "0"}, {"--nproc"});
  expectUsage({"sweep", "p.tplan", "--data", "d", "--out", "s", "--nproc", "2"}, {"--nproc", "sweep"});
  expectUsage({"p.tplan", "--data", "d", "--workers", "-2"}, {"--workers"});
  expectUsage({"p.tplan", "q.tplan", "--data", "d"}, {"'q.tplan'"});
  expectUsage({"p.tplan", "--data", "d", "--init", "w", "--resume", "r"}, {"--init", "--resume"});
  expectUsage({"export", "run"}, {"output"});
}

namespace {
class Commands : public TrainTest {};
} // namespace

TEST_F(Commands, FromTrainingToExport) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  std::string out;
  auto run = [&](std::vector<std::string> words) {
    Outcome outcome = parse(std::move(words));
    EXPECT_FALSE(outcome.parsed.exitStatus.has_value()) << outcome.err;
    outcome.parsed.options.screen.out = nullptr;
    ::testing::internal::CaptureStdout();
    Status status = runCommand(outcome.parsed.options);
    out = ::testing::internal::GetCapturedStdout();
    return status;
  };
  Status status = run({plan, "--data", data, "--steps", "3", "--out", at("run")});
  ASSERT_TRUE(status.ok()) << status.message();
  expectError(run({plan, "--data", data, "--steps", "3", "--out", at("run")}), {"exists", "--resume"});
  status = run({plan, "--data", data, "--steps", "5", "--resume", at("run")});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(runtime::checkpointSteps(at("run")), (std::vector<uint64_t>{3, 5}));
  status = run({"eval", plan, "--data", data, "--from", at("run") + "@3"});
  ASSERT_TRUE(status.ok()) << status.message();
  nlohmann::json line = nlohmann::json::parse(out);
  EXPECT_EQ(line["samples"], 8);
  EXPECT_GT(line["eval_loss"].get<double>(), 0);
  // Data settings of the run also apply to its evaluation.
  ASSERT_TRUE(run({plan, "--data", data, "--steps", "1", "--out", at("mapped"), "--set", "data.map.y=y", "--set",
                   "data.last=drop"})
                  .ok());
  auto manifest = runtime::readManifest(at("mapped/checkpoints/step-1"));
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  manifest->position.settings[0] = "data.map.y=nothing";
  write("mapped/checkpoints/step-1/manifest.json", runtime::manifestText(*manifest));
  expectError(run({"eval", plan, "--data", data, "--from", at("mapped")}), {"'nothing'"});
  EXPECT_TRUE(run({"eval", plan, "--data", data, "--from", at("mapped"), "--set", "data.map.y=y"}).ok());
  ASSERT_TRUE(run({"export", at("run"), "-o", at("w.safetensors")}).ok());
  ASSERT_TRUE(
      run({"predict", plan, "--inputs", data, "--outputs", at("o.safetensors"), "--from", at("w.safetensors")}).ok());
  expectError(run({"predict", plan, "--inputs", data, "--outputs", at("o.safetensors"), "--ema"}), {"--ema"});
  expectError(run({"predict", plan, "--inputs", at("none.safetensors"), "--outputs", at("o.safetensors")}), {"none"});
  expectError(run({"eval", at("none.tplan"), "--data", data}), {"none.tplan"});
  EXPECT_TRUE(run({"verify", plan}).ok());
  EXPECT_NE(out.find("good"), std::string::npos);
  std::string bad = writeRegressionPlan(at("bad.tplan"), 1, [](plan::Plan &changed) { plan::setSpaceBytes(changed, plan::RESIDENT, 8); });
  expectError(run({"verify", bad}), {"bad.tplan"});
}
