//===- RunFilesTest.cpp - full disks, broken pipes, old checkpoints ------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/train/RecordFile.h"
#include "test/unit/train/TrainFixture.h"
#include "tools/trun/Screen.h"

#include <cmath>
#include <csignal>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;
using testing::ElementsAre;
namespace fs = std::filesystem;

namespace {
class RunFiles : public TrainTest {};

/// While an object exists, no file can grow beyond `bytes`, as on a full disk.
class FullDisk {
public:
  explicit FullDisk(rlim_t bytes) : before(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old);
    rlimit limit{bytes, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, before);
  }

private:
  rlimit old{};
  void (*before)(int);
};
} // namespace

TEST_F(RunFiles, RecordsWaitForSpace) {
  auto file = RecordFile::open(at("r"), /*append=*/true, 64);
  ASSERT_TRUE(file.ok()) << file.message();
  {
    FullDisk full(10);
    file->add("0123456\n");
    file->add("abcdefg\n");
    EXPECT_FALSE(file->flush().ok());
    EXPECT_EQ(*readFile(at("r")), "0123456\nab") << "as much as there was space for";
    file->add("ABCDEFG\n");
    EXPECT_FALSE(file->flush().ok());
  }
  EXPECT_TRUE(file->flush().ok());
  EXPECT_EQ(*readFile(at("r")), "0123456\nabcdefg\nABCDEFG\n") << "no record is torn or written twice";
  EXPECT_EQ(file->lost(), 0u);
}

TEST_F(RunFiles, RecordsThatFindNoRoomAreCountedWhole) {
  auto file = RecordFile::open(at("r"), /*append=*/true, 16);
  ASSERT_TRUE(file.ok());
  {
    FullDisk full(0);
    for (const char *record : {"0123456\n", "abcdefg\n", "ABCDEFG\n"})
      file->add(record);
    EXPECT_EQ(file->lost(), 1u);
  }
  EXPECT_TRUE(file->flush().ok());
  EXPECT_EQ(*readFile(at("r")), "0123456\nabcdefg\n");
}

/// If the reader of the output exits (`| head`), printing ends, but the run goes on.
TEST_F(RunFiles, BrokenPipeStopsPrintingAlone) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  TrainOptions broken = options(data, 30, "run");
  broken.logEvery = 1;
  std::FILE *pipe = fdopen(ends[1], "w");
  Status status;
  {
    tools::TrainScreen screen({.out = pipe, .logEvery = 1});
    screen.tellTo(broken);
    status = train(plan, broken);
  }
  std::fclose(pipe);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(metrics("run").size(), 30u);
  std::string log = *readFile(at("run/log.txt"));
  EXPECT_NE(log.find("step 30/30"), std::string::npos) << "the log goes on: " << log;
}

TEST_F(RunFiles, TheProgressLineFitsTheTerminal) {
  UpdateMetrics update;
  update.step = 123456;
  update.loss = 0.123456;
  update.learningRate = 3.33e-4;
  update.samples = 512;
  update.tokens = 1 << 20;
  update.seconds = 0.01;
  for (size_t columns : {120u, 60u, 40u, 20u}) {
    ASSERT_EQ(::setenv("COLUMNS", std::to_string(columns).c_str(), 1), 0);
    std::FILE *screen = std::fopen(at("screen").c_str(), "w+");
    {
      tools::Screen shown({.out = screen, .terminal = true, .logEvery = 1});
      RunFacts facts;
      facts.totalSteps = 1000000;
      shown.begins(facts);
      shown.update(update);
    }
    std::fclose(screen);
    auto text = readFile(at("screen"));
    ASSERT_TRUE(text.ok());
    const std::string line = text->substr(text->find("\033[K") + 3, text->rfind("\r") - text->find("\033[K") - 3);
    EXPECT_LT(line.size(), columns) << line;
    EXPECT_NE(line.find("step 123456/100"), std::string::npos) << line;
    EXPECT_EQ(line.find("loss 0.12346") != std::string::npos, columns >= 40) << line;
    EXPECT_EQ(line.find("lr 0.000333") != std::string::npos, columns == 120) << line;
  }
  ::unsetenv("COLUMNS");
}

TEST_F(RunFiles, TheLineOfAScanIsWiped) {
  std::FILE *terminal = std::tmpfile();
  ASSERT_NE(terminal, nullptr);
  {
    tools::Screen screen({.out = terminal, .terminal = true});
    screen.scanning(3, 10, 1234);
    screen.scanning(4, 10, 2000); // too soon
    screen.scanned();
    tools::Screen silent({.out = nullptr, .terminal = true});
    silent.scanning(1, 2, 3);
  }
  std::rewind(terminal);
  char text[200] = {};
  const size_t count = std::fread(text, 1, sizeof(text) - 1, terminal);
  std::fclose(terminal);
  EXPECT_EQ(std::string(text, count), "\r\033[Kreading data: 3 of 10, 1234 samples\r\033[K");
}

TEST_F(RunFiles, CheckpointsAreKeptByRule) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  auto stepsOf = [&](const std::string &run, std::vector<std::string> settings, uint64_t every) {
    TrainOptions chosen = options(data, 20, run);
    chosen.checkpointEvery = every;
    chosen.settings = std::move(settings);
    Status status = train(plan, chosen);
    EXPECT_TRUE(status.ok()) << status.message();
    return checkpointSteps(at(run));
  };
  EXPECT_THAT(stepsOf("default", {}, 4), ElementsAre(12, 16, 20));
  EXPECT_THAT(stepsOf("two", {"checkpoint.keep=2"}, 4), ElementsAre(16, 20));
  EXPECT_THAT(stepsOf("all", {"checkpoint.keep=0"}, 4), ElementsAre(4, 8, 12, 16, 20));
  EXPECT_THAT(stepsOf("end", {"checkpoint.every_minutes=0.0000001"}, 0), ElementsAre(20)) << "0: by neither";
  TrainOptions clock = options(data, 20, "clock");
  clock.settings = {"checkpoint.every_minutes=0.0000001"};
  ASSERT_TRUE(train(plan, clock).ok());
  EXPECT_THAT(checkpointSteps(at("clock")), ElementsAre(18, 19, 20)) << "6 microseconds are over after each update";
  for (const char *setting : {"checkpoint.keep=1.5", "checkpoint.keep=-1", "checkpoint.every_minutes=soon",
                              "checkpoint.keep_best=3", "checkpoint.kep=3"}) {
    TrainOptions wrong = options(data, 1, "wrong");
    wrong.settings = {setting};
    EXPECT_EQ(train(plan, wrong).code(), StatusCode::Usage) << setting;
  }
}

/// The recipe's keys reach the run through the plan.
TEST_F(RunFiles, RulesComeFromThePlan) {
  std::string data = writeRegressionData(at("d.safetensors"), 8);
  std::string plan = writeRegressionPlan(at("p.tplan"), 1, [](plan::Plan &plan) {
    plan.mutable_training()->mutable_checkpoints()->set_keep(1);
    plan.mutable_training()->mutable_checkpoints()->set_every_minutes(1e-7);
  });
  ASSERT_TRUE(train(plan, options(data, 5, "run")).ok());
  EXPECT_THAT(checkpointSteps(at("run")), ElementsAre(5));
}

TEST_F(RunFiles, TheBestStaysBesidesTheNewest) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  for (bool keepBest : {true, false}) {
    TrainOptions chosen = options(data, 12, keepBest ? "best" : "newest");
    chosen.evalData = data;
    chosen.evalEvery = 2;
    // At this rate the loss soon diverges, so that an early evaluation is the best.
    chosen.settings = {"optimizer.lr=3", "checkpoint.keep=2",
                       keepBest ? "checkpoint.keep_best=true" : "checkpoint.keep_best=false"};
    Status status = train(plan, chosen);
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<uint64_t> steps = checkpointSteps(chosen.out);
    if (keepBest) {
      uint64_t best = 0;
      double least = INFINITY;
      for (const nlohmann::json &line : metrics("best"))
        if (line.contains("eval_loss") && line["eval_loss"] < least) {
          best = line["step"];
          least = line["eval_loss"];
        }
      EXPECT_LT(best, 10u);
      EXPECT_THAT(steps, ElementsAre(best, 10, 12));
      auto found = findCheckpoint(parseRunReference(chosen.out + "@best"));
      ASSERT_TRUE(found.ok()) << found.message();
      EXPECT_TRUE(found->ends_with(fmt::format("step-{}", best)));
    } else {
      EXPECT_THAT(steps, ElementsAre(10, 12));
    }
  }
}

/// Folders that the run did not write are not removed, and do not count as checkpoints to keep.
TEST_F(RunFiles, ForeignCheckpointsStay) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  TrainOptions begin = options(data, 6, "run");
  begin.checkpointEvery = 1;
  begin.settings = {"checkpoint.keep=0"};
  ASSERT_TRUE(train(plan, begin).ok());
  fs::path folder = at("run/checkpoints");
  write("run/checkpoints/step-1/notes.txt", "the good one"); // a user's file beside ours
  fs::rename(folder / "step-2", at("elsewhere"));            // a link to a checkpoint elsewhere
  fs::create_directory_symlink(at("elsewhere"), folder / "step-2");
  fs::remove_all(folder / "step-3"); // a copy under another number
  fs::copy(folder / "step-4", folder / "step-3", fs::copy_options::recursive);
  fs::copy(folder / "step-4", folder / "step-4-copy", fs::copy_options::recursive);
  fs::remove(folder / "step-5/manifest.json"); // no checkpoint any more
  EXPECT_THAT(ownCheckpointSteps(at("run")), ElementsAre(4, 6));
  TrainOptions rest = options(data, 10, "run");
  rest.resume = rest.out;
  rest.out.clear();
  rest.checkpointEvery = 1;
  rest.settings = {"checkpoint.keep=2"};
  Status status = train(plan, rest);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(checkpointSteps(at("run")), ElementsAre(1, 2, 3, 9, 10)) << "5 has no manifest";
  EXPECT_TRUE(fs::exists(folder / "step-1/notes.txt") && fs::exists(folder / "step-1/state.safetensors"));
  EXPECT_TRUE(fs::exists(fs::path(at("elsewhere")) / "state.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "step-4-copy/state.safetensors"));
}

/// If the disk is full for a while, only the checkpoints of that time are lost.
TEST_F(RunFiles, CheckpointsThatFailLeaveTheEarlierOnes) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  ASSERT_TRUE(train(plan, options(data, 1, "run")).ok());
  TrainOptions rest = options(data, 6, "run");
  rest.resume = rest.out;
  rest.out.clear();
  rest.checkpointEvery = 1;
  auto session = openSession({plan, "cpu", 1, {}});
  ASSERT_TRUE(session.ok()) << session.message();
  Status status;
  {
    FullDisk full(160); // enough for a line of metrics, but not for a state
    status = runtime::train(*session, rest);
  }
  EXPECT_EQ(status.code(), StatusCode::Fault);
  for (const char *text : {"step-1 holds the state after update 1", "--resume"})
    EXPECT_NE(shown(status).find(text), std::string::npos) << shown(status);
  EXPECT_THAT(checkpointSteps(at("run")), ElementsAre(1));
  status = train(plan, rest);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(train(plan, options(data, 6, "whole")).ok());
  EXPECT_EQ(weights("run/checkpoints/step-6"), weights("whole/checkpoints/step-6"));
}
