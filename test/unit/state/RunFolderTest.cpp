//===- RunFolderTest.cpp - locks, plans, files that a resume replaces ----===//
#include "runtime/train/RunFolder.h"
#include "runtime/state/RunLock.h"
#include "support/AtomicFile.h"
#include "test/unit/train/TrainFixture.h"

#include <sys/wait.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// The messages of runs.
class Heard : public RunEvents {
public:
  void message(const Message &message) override { lines += message.line() + "\n"; }
  std::string take() { return std::exchange(lines, std::string()); }

private:
  std::string lines;
};

class RunFolder : public TrainTest {
protected:
  void SetUp() override {
    TrainTest::SetUp();
    plan = writeRegressionPlan(at("p.tplan"));
    data = writeRegressionData(at("d.safetensors"), 16);
  }
  void makeRun(uint64_t steps = 6) {
    TrainOptions every = options(data, steps, "run");
    every.checkpointEvery = 2;
    ASSERT_TRUE(train(plan, every).ok());
  }
  TrainOptions resume(uint64_t steps, const std::string &reference = "run") {
    TrainOptions more = options(data, steps, "");
    more.events = &heard;
    more.out.clear();
    more.resume = at(reference);
    return more;
  }
  std::string said() { return heard.take(); }
  Heard heard;
  std::string plan, data;
};
} // namespace

TEST_F(RunFolder, OneProcessWritesARun) {
  makeRun();
  {
    auto lock = RunLock::acquire(at("run"));
    ASSERT_TRUE(lock.ok()) << lock.message();
    EXPECT_TRUE(lock->held());
    expectError(train(plan, resume(8)), {"run", "process " + std::to_string(::getpid()), "--out"});
    std::filesystem::rename(at("run/checkpoints"), at("aside"));
    expectError(findCheckpoint({at("run"), "last"}), {"is training in this run", "no checkpoint yet"});
    std::filesystem::rename(at("aside"), at("run/checkpoints"));
    EXPECT_EQ(metrics("run").size(), 6u);
    TrainOptions elsewhere = resume(8);
    elsewhere.out = at("elsewhere");
    EXPECT_TRUE(train(plan, elsewhere).ok()) << "reading takes no lock";
  }
  EXPECT_TRUE(train(plan, resume(8)).ok());
  if (pid_t child = ::fork(); child == 0) {
    auto lock = RunLock::acquire(at("run"));
    ::_exit(lock ? 0 : 1);
  } else {
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }
  EXPECT_TRUE(RunLock::acquire(at("run")).ok()) << "the lock of a process that ended";
  std::filesystem::remove(at("run/lock"));
  std::filesystem::create_symlink(at("elsewhere.txt"), at("run/lock"));
  expectError(RunLock::acquire(at("run")), {"run/lock"});
  EXPECT_FALSE(std::filesystem::exists(at("elsewhere.txt")));
}

TEST_F(RunFolder, TheRunsPlanIsACopy) {
  makeRun();
  std::string bytes = *readFile(plan), kept = at("run/plan.tplan");
  EXPECT_EQ(*readFile(kept), bytes);
  EXPECT_FALSE(std::filesystem::equivalent(plan, kept));
  {
    std::ofstream file(plan, std::ios::in | std::ios::out); // the same inode, other bytes
    file << "overwritten";
  }
  EXPECT_EQ(*readFile(kept), bytes);
  EXPECT_TRUE(exportRun(at("run"), at("m.onnx")).ok());
  EXPECT_TRUE(train(kept, resume(8)).ok());
}

/// A resume with another plan keeps both: each checkpoint finds its own.
TEST_F(RunFolder, EachCheckpointFindsItsPlan) {
  makeRun(4);
  std::string other =
      writeRegressionPlan(at("other.tplan"), 1, [](plan::Plan &changed) { changed.set_producer("newer"); });
  said();
  ASSERT_TRUE(train(other, resume(6)).ok());
  EXPECT_NE(said().find("the plan is not the one in"), std::string::npos);
  for (const char *reference : {"run@4", "run@6"}) {
    auto manifest = readManifest(at("run/checkpoints/step-") + std::string(reference).substr(4));
    ASSERT_TRUE(manifest.ok()) << manifest.message();
    auto reader = openPlanOf(at("run"), *manifest);
    ASSERT_TRUE(reader.ok()) << reader.message();
    EXPECT_EQ(reader->plan().producer(), reference == std::string("run@4") ? "test" : "newer");
    EXPECT_EQ(*planFolderOf(at("run"), reader->path()), at("run") + "/..");
    EXPECT_TRUE(exportRun(at(reference), at("m.onnx")).ok());
  }
  std::filesystem::copy_file(plan, at("run/plan.tplan"), std::filesystem::copy_options::overwrite_existing);
  expectError(exportRun(at("run@6"), at("m.onnx")), {"plan.tplan", "step 6", "bring that plan back"});
  std::string source = *readFile(at("run/source.json"));
  source[10] ^= 1;
  write("run/source.json", source);
  expectError(exportRun(at("run@6"), at("m.onnx")), {"run"});
}

TEST_F(RunFolder, WhatAResumeReplacesStays) {
  makeRun(6);
  said();
  Status status = train(plan, resume(5, "run@4"));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(said().find("4 lines of metrics.jsonl and 1 checkpoint of later updates moved to"), std::string::npos);
  EXPECT_EQ(metrics("run").size(), 5u);
  EXPECT_EQ(checkpointSteps(at("run")), (std::vector<uint64_t>{2, 4, 5})) << "RUN@last is what was trained last";
  EXPECT_EQ(metrics("run/superseded/1").size(), 2u);
  EXPECT_EQ(metrics("run/superseded/1")[1]["step"], 6);
  auto others = metrics("run/superseded/1", /*withEpoch=*/false);
  ASSERT_EQ(others.size(), 2u) << "the line of the checkpoint, and that of the end";
  EXPECT_GT(others[0]["checkpoint_bytes"], 0);
  EXPECT_EQ(others[1]["end"], "finished");
  EXPECT_TRUE(exportRun(at("run/superseded/1@6"), at("old.safetensors")).ok());
  TrainOptions onward = resume(8, "run/superseded/1");
  status = train(plan, onward);
  EXPECT_TRUE(status.ok()) << status.message();
  // Lines of a process that died after its last checkpoint; the last line is truncated.
  write("run/metrics.jsonl", *readFile(at("run/metrics.jsonl")) + "{\"step\":6,\"loss\":1}\n{\"step\":7,\"lo");
  ASSERT_TRUE(train(plan, resume(6)).ok());
  EXPECT_EQ(metrics("run").size(), 6u);
  EXPECT_EQ(*readFile(at("run/superseded/2/metrics.jsonl")), "{\"step\":6,\"loss\":1}\n{\"step\":7,\"lo\n");
  EXPECT_FALSE(std::filesystem::exists(at("run/superseded/2/plan.tplan")));
  write("run/metrics.jsonl", "{\"step\":\"x\"}\n[]\nnull\n{\"step\":-1}\n{\"step\":2}\n");
  ASSERT_TRUE(train(plan, resume(7)).ok()) << "lines that are none of ours are no crash";
  EXPECT_EQ(metrics("run").size(), 1u);
}

TEST_F(RunFolder, TheBestGoesWithItsCheckpoint) {
  TrainOptions evaluated = options(data, 6, "run");
  evaluated.evalData = data;
  evaluated.evalEvery = 2;
  evaluated.checkpointEvery = 2;
  evaluated.settings = {"optimizer.lr=0.01", "optimizer.momentum=0"};
  ASSERT_TRUE(train(plan, evaluated).ok());
  ASSERT_TRUE(findCheckpoint({at("run"), "best"})->ends_with("step-6")) << "it learns";
  TrainOptions back = resume(5, "run@4");
  ASSERT_TRUE(train(plan, back).ok());
  // The checkpoint of step 4 was written before its evaluation, so that only the line in the metrics has the result.
  EXPECT_TRUE(findCheckpoint({at("run"), "best"})->ends_with("step-4")) << *findCheckpoint({at("run"), "best"});
  EXPECT_TRUE(findCheckpoint({at("run/superseded/1"), "best"})->ends_with("step-6"));
}

TEST_F(RunFolder, DifferencesAreNamedOrRefused) {
  makeRun(5);
  said();
  TrainOptions rate = resume(6);
  rate.settings = {"optimizer.lr=0.05", "schedule.kind=cosine"};
  ASSERT_TRUE(train(plan, rate).ok());
  std::string text = said();
  EXPECT_NE(text.find("optimizer.lr 0.1 → 0.05"), std::string::npos) << text;
  EXPECT_NE(text.find("schedule.kind constant → cosine"), std::string::npos) << text;
  ASSERT_TRUE(train(plan, resume(6, "run@4")).ok());
  EXPECT_EQ(said().find("differ"), std::string::npos) << "nothing differs, nothing is said";

  auto refused = [&](const std::string &name, const std::function<void(plan::Plan &)> &change,
                     std::initializer_list<std::string> texts) {
    expectError(train(writeRegressionPlan(at(name), 1, change), resume(8)), texts);
  };
  refused("kind.tplan", [](plan::Plan &p) { p.mutable_training()->mutable_optimizer()->set_kind("adamw"); },
          {"optimizer.kind sgd → adamw", "--init " + at("run@6")});
  refused("loss.tplan", [](plan::Plan &p) { p.mutable_training()->set_loss_kind("l1"); }, {"loss.kind mse → l1"});
  refused("frozen.tplan", [](plan::Plan &p) { p.mutable_variables(kFrozen)->set_fill(6); },
          {"frozen values", "'frozen'"});
  TrainOptions seed = resume(8);
  seed.settings = {"train.seed=4"};
  expectError(train(plan, seed), {"train.seed 0 → 4"});
  said();
  std::string windows =
      writeRegressionPlan(at("two.tplan"), 2, [](plan::Plan &p) { p.set_recipe("[loss]\nlabel_smoothing = 0.1\n"); });
  Status status = train(windows, resume(8));
  ASSERT_TRUE(status.ok()) << status.message();
  text = said();
  EXPECT_NE(text.find("train.accumulate 1 → 2"), std::string::npos) << text;
  EXPECT_NE(text.find("loss.label_smoothing unset → 0.1"), std::string::npos) << text;
}

TEST_F(RunFolder, OtherDataIsNamed) {
  makeRun(5); // four batches an epoch: ends after the first batch of the second epoch
  said();
  std::string bytes = *readFile(data);
  bytes.back() ^= 1;
  write("other.safetensors", bytes);
  TrainOptions other = resume(6);
  other.data = at("other.safetensors");
  ASSERT_TRUE(train(plan, other).ok());
  EXPECT_NE(said().find("as many samples, but other values"), std::string::npos);
  other = resume(7);
  other.data = writeRegressionData(at("more.safetensors"), 40);
  ASSERT_TRUE(train(plan, other).ok());
  EXPECT_NE(said().find("16 → 40 samples; the rest of epoch 2"), std::string::npos);
  // Epochs are counted from the run's position: 3 of the 10 batches of the second epoch are done.
  other.steps.reset();
  other.epochs = 2;
  ASSERT_TRUE(train(plan, other).ok());
  EXPECT_EQ(metrics("run").size(), 14u);
}

TEST_F(RunFolder, ALongerRunKeepsItsSchedule) {
  TrainOptions decayed = options(data, 4, "run");
  decayed.settings = {"schedule.kind=linear"};
  ASSERT_TRUE(train(plan, decayed).ok());
  said();
  TrainOptions longer = resume(8);
  longer.settings = decayed.settings;
  ASSERT_TRUE(train(plan, longer).ok());
  EXPECT_NE(said().find("the schedule keeps the length 4"), std::string::npos);
  EXPECT_EQ(metrics("run")[6]["lr"], 0.0);
}

/// Vocabulary and classes are read from the files that the checkpoint names, and checked against its checksums.
TEST_F(RunFolder, DataNotesAreChecked) {
  std::filesystem::create_directory(at("run"));
  Dataset dataset{"text", "text"};
  dataset.vocabulary = {'a', 'b', 0x10ffff};
  dataset.classes = {"cat", "dog"};
  auto files = writeDataNotes(at("run"), dataset);
  ASSERT_TRUE(files.ok()) << files.message();
  auto notes = readDataNotes(at("run"), *files);
  ASSERT_TRUE(notes.ok()) << notes.message();
  EXPECT_EQ(*notes->vocabulary, dataset.vocabulary);
  EXPECT_TRUE(checkClasses(*notes, dataset, "run").ok());
  Dataset other{"images", "images"};
  other.classes = {"cat", "fox"};
  expectError(checkClasses(*notes, other, "run"), {"images", "missing are 'dog'", "no 'fox'"});
  for (const char *name : {"run/vocabulary.json", "run/classes.json"}) {
    std::string good = *readFile(at(name)), bad = good;
    bad[bad.size() / 2] ^= 1;
    write(name, bad);
    expectError(readDataNotes(at("run"), *files), {name, "checksum"});
    std::filesystem::remove(at(name));
    expectError(readDataNotes(at("run"), *files), {name});
    write(name, good);
  }
  // Without a checksum, as in runs of earlier versions, the content is checked.
  for (const char *text :
       {"{}", "[]", "{\"code_points\":[2,1]}", "{\"code_points\":[-1]}", "{\"code_points\":[1114112]}",
        "{\"code_points\":[1.5]}", "{\"code_points\":\"ab\"}", "{\"code_points\":[4294967297]}"}) {
    write("run/vocabulary.json", text);
    expectError(readDataNotes(at("run"), {}), {"vocabulary.json", "damaged"});
  }
  std::filesystem::remove(at("run/vocabulary.json"));
  for (const char *text : {"{}", "[1]", "x"}) {
    write("run/classes.json", text);
    expectError(readDataNotes(at("run"), {}), {"classes.json", "damaged"});
  }
}

TEST_F(RunFolder, CopiesShareNothing) {
  std::string bytes(3 << 20, 'x');
  write("a", bytes);
  ASSERT_TRUE(copyFile(at("a"), at("b"), OwnFile::OfRun).ok());
  write("a", "short");
  EXPECT_EQ(*readFile(at("b")), bytes);
  expectError(copyFile(at("nowhere"), at("c"), OwnFile::OfRun), {"nowhere"});
  expectError(copyFile(at("."), at("c"), OwnFile::OfRun), {"not a regular file"});
  expectError(copyFile(at("b"), at("nowhere/c"), OwnFile::OfRun), {"nowhere/c"});
  EXPECT_FALSE(std::filesystem::exists(at("c")));
}
