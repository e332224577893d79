//===- ScalarsTest.cpp - run-time scalars and --set ----------------------===//
#include "runtime/train/Scalars.h"
#include "runtime/plan/SettingFields.h"
#include "runtime/train/Checkpointer.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Settings.h"
#include "support/recipe/Keys.h"
#include "support/recipe/Kinds.h"
#include "test/support/Shown.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
plan::Training training(std::vector<std::string> scalars) {
  plan::Training result;
  plan::Optimizer &optimizer = *result.mutable_optimizer();
  for (auto [name, value] :
       {std::pair("lr", 3e-4), std::pair("beta1", 0.9), std::pair("beta2", 0.999), std::pair("eps", 1e-8),
        std::pair("weight_decay", 0.1), std::pair("momentum", 0.8), std::pair("dampening", 0.25)})
    (*optimizer.mutable_numbers())[name] = value;
  for (auto [name, scale, decay] : {std::tuple("default", 1.0, 0.1), std::tuple("no decay", 0.5, 0.0)}) {
    plan::OptimizerGroup &group = *optimizer.add_groups();
    group.set_name(name);
    group.set_lr_scale(scale);
    group.set_weight_decay(decay);
  }
  for (const std::string &name : scalars)
    result.add_scalars(name);
  result.set_clip_norm(1.5);
  return result;
}

std::vector<float> compute(const plan::Training &settings, uint64_t update, const plan::Schedule &schedule = {}) {
  auto made = LearningSchedule::create(schedule, 10);
  EXPECT_TRUE(made.ok()) << made.message();
  auto block = ScalarBlock::create(settings, made.take());
  EXPECT_TRUE(block.ok()) << block.message();
  std::vector<float> values(block->size());
  block->compute(update, update - 1, values);
  return values;
}

Status apply(const std::vector<std::string> &settings, plan::Training &target) {
  plan::DataSettings data;
  return applySettings(settings, target, data);
}

void expectUsage(const Status &status, std::initializer_list<std::string> texts) {
  EXPECT_EQ(status.code(), StatusCode::Usage);
  const std::string message = test::shown(status);
  for (const std::string &text : texts)
    EXPECT_NE(message.find(text), std::string::npos) << message;
}
} // namespace

TEST(Scalars, GroupsAndBetas) {
  std::vector<float> values =
      compute(training({"g0.lr", "g1.lr", "g0.weight_decay", "g0.decay", "g1.decay", "beta1", "one_minus_beta1",
                        "beta2", "one_minus_beta2", "eps", "momentum", "one_minus_dampening", "clip_norm"}),
              3);
  std::vector<double> expected = {3e-4,      1.5e-4, 0.1, 1 - 3e-4 * 0.1, 1,  0.9, 1 - 0.9, 0.999,
                                  1 - 0.999, 1e-8,   0.8, 0.75,           1.5};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values[i], static_cast<float>(expected[i])) << i;
}

TEST(Scalars, BiasCorrectionsCountFromOne) {
  plan::Training settings = training({"g1.step_size", "bias_correction2_sqrt", "first_update"});
  std::vector<float> first = compute(settings, 1), tenth = compute(settings, 10);
  EXPECT_EQ(first[0], static_cast<float>(1.5e-4 / (1 - 0.9)));
  EXPECT_EQ(first[1], static_cast<float>(std::sqrt(1 - 0.999)));
  EXPECT_EQ(first[2], 1.0f);
  EXPECT_EQ(tenth[0], static_cast<float>(1.5e-4 / (1 - std::pow(0.9, 10))));
  EXPECT_EQ(tenth[1], static_cast<float>(std::sqrt(1 - std::pow(0.999, 10))));
  EXPECT_EQ(tenth[2], 0.0f);
}

TEST(Scalars, OfTheOtherOptimizers) {
  plan::Training settings =
      training({"alpha", "one_minus_alpha", "one_minus_momentum", "bias_correction1", "g1.decayed_lr"});
  (*settings.mutable_optimizer()->mutable_numbers())["alpha"] = 0.99;
  (*settings.mutable_optimizer()->mutable_numbers())["lr_decay"] = 0.5;
  std::vector<float> values = compute(settings, 3);
  EXPECT_EQ(values[0], 0.99f);
  EXPECT_EQ(values[1], static_cast<float>(1 - 0.99));
  EXPECT_EQ(values[2], static_cast<float>(1 - 0.8));
  EXPECT_EQ(values[3], static_cast<float>(1 - std::pow(0.9, 3)));
  EXPECT_EQ(values[4], static_cast<float>(1.5e-4 / (1 + 2 * 0.5)));
}

TEST(Scalars, OneCycleMovesMomentumAndBeta) {
  plan::Schedule schedule;
  schedule.set_kind("one_cycle");
  std::vector<float> values = compute(training({"momentum", "beta1", "one_minus_beta1", "g0.step_size"}), 3, schedule);
  EXPECT_FLOAT_EQ(values[0], 0.85f);
  EXPECT_FLOAT_EQ(values[1], 0.85f);
  EXPECT_FLOAT_EQ(values[2], 0.15f);
  EXPECT_FLOAT_EQ(values[3], static_cast<float>(3e-4 / (1 - std::pow(0.85, 3))));
}

TEST(Scalars, UnknownNamesAreRefused) {
  for (const char *name : {"warp", "g0.warp", "g2.lr", "g.lr", "gx.lr"}) {
    auto block = ScalarBlock::create(training({name}), *LearningSchedule::create({}, 1));
    ASSERT_FALSE(block.ok()) << name;
    EXPECT_NE(block.message().find(name), std::string::npos);
  }
}

TEST(Settings, OptimizerNumbers) {
  plan::Training settings = training({"g0.lr", "g0.decay", "beta1", "eps"});
  ASSERT_TRUE(
      apply({"optimizer.lr=1e-2", "optimizer.betas=[0.8, 0.95]", "optimizer.weight_decay = 0.3"}, settings).ok());
  EXPECT_EQ(settings.optimizer().numbers().at("lr"), 1e-2);
  EXPECT_EQ(settings.optimizer().numbers().at("beta2"), 0.95);
  EXPECT_EQ(settings.optimizer().groups(0).weight_decay(), 0.3);
  EXPECT_EQ(settings.optimizer().groups(1).weight_decay(), 0) << "an exempt group stays exempt";
}

TEST(Settings, WhatIsCompiledInIsRefused) {
  plan::Training settings = training({"g0.lr"});
  expectUsage(apply({"loss.kind=l1"}, settings), {"loss.kind", "recompile with tcc --set loss.kind=l1"});
  expectUsage(apply({"model.dims.batch=8"}, settings), {"recompile"});
  expectUsage(apply({"train.accumulate=4"}, settings), {"recompile"});
  expectUsage(apply({"train.clip_norm=1"}, settings), {"without clipping", "recompile"});
  expectUsage(apply({"optimizer.weight_decay=0.5"}, settings), {"without weight decay", "recompile"});
  expectUsage(apply({"optimizer.momentum=0.5"}, settings), {"without momentum", "recompile"});
  expectUsage(apply({"optimizer.betas=[0.9,0.9]"}, settings), {"without betas", "recompile"});
  expectUsage(apply({"schedule.kind=one_cycle"}, settings), {"momentum", "recompile"});
}

/// Every key that is compiled into the plan is recognised. A wrong value is reported instead of the advice to
/// recompile.
TEST(Settings, EveryCompiledKeySaysHowToRecompile) {
  plan::Training settings = training({"g0.lr"});
  size_t tried = 0;
  for (const recipe::Key &key : recipe::allKeys()) {
    if (key.change != recipe::Change::Recompile || key.preset.empty() || !parseToml("v = " + key.preset).ok())
      continue;
    const std::string setting = key.name + "=" + key.preset;
    expectUsage(apply({setting}, settings),
                {"--set " + setting, "is compiled into the plan", "recompile with tcc --set " + setting});
    ++tried;
  }
  EXPECT_GT(tried, 30u);
  expectUsage(apply({"compiler.fuse_updates=perhaps"}, settings), {"expected true or false, found a string"});
  expectUsage(apply({"data.batch_axis.input.1=0"}, settings), {"recompile with tcc --set data.batch_axis.input.1=0"});
}

/// A default that is set is the same as one that is left out.
TEST(Settings, PresetsAreTheDefaults) {
  for (const std::string &kind : scheduleKindNames()) {
    plan::Schedule plain;
    plain.set_kind(kind);
    for (auto [name, value] : {std::pair("gamma", 0.1), std::pair("step_size", 3.0), std::pair("milestone.0", 4.0),
                               std::pair("t_0", 5.0)})
      (*plain.mutable_numbers())[name] = value;
    plan::Training given;
    *given.mutable_schedule() = plain;
    for (const recipe::Key &key : recipe::allKeys())
      if (key.name.starts_with("schedule.") && key.name != "schedule.kind" && key.change == recipe::Change::RunTime &&
          !key.preset.empty() && parseToml("v = " + key.preset).ok()) {
        ASSERT_TRUE(apply({key.name + "=" + key.preset}, given).ok()) << key.name;
      }
    auto without = LearningSchedule::create(plain, 20), with = LearningSchedule::create(given.schedule(), 20);
    ASSERT_TRUE(without.ok() && with.ok()) << kind << ": " << with.message();
    for (uint64_t t = 0; t < 25; ++t) {
      EXPECT_EQ(without->factor(t), with->factor(t)) << kind << " at " << t;
      EXPECT_EQ(without->momentum(t), with->momentum(t)) << kind << " at " << t;
    }
  }
}

TEST(Settings, WrongWords) {
  plan::Training settings = training({"g0.lr"});
  expectUsage(apply({"optimizer.lrr=1"}, settings),
              {"unknown key optimizer.lrr", "the nearest known one is optimizer.lr"});
  expectUsage(apply({"zzz=1"}, settings), {"unknown key zzz", "a recipe has the tables"});
  expectUsage(apply({"optimizer.lr"}, settings), {"KEY=VALUE"});
  expectUsage(apply({"optimizer.lr=fast"}, settings), {"--set optimizer.lr=fast: expected a number, found a string"});
  expectUsage(apply({"schedule.kind=sine"}, settings), {"\"sine\" is unknown", "cosine"});
  expectUsage(apply({"train.seed=-1"}, settings), {"train.seed=-1", "out of range", "at least 0"});
  expectUsage(apply({"data.last=half"}, settings), {"drop", "pad", "exact"});
  expectUsage(apply({"data.eval_split=2"}, settings), {"2 is out of range", "from 0 (excluded) to 1 (excluded)"});
  expectUsage(apply({"train.ema={decay=0.9, everi=2}"}, settings), {"unknown key train.ema.everi", "train.ema.every"});
  expectUsage(apply({"train.ema=0.9"}, settings), {"train.ema is a table"});
  expectUsage(apply({"train.ema.on=device"}, settings), {"recompile with tcc --set train.ema.on=device"});
}

TEST(Settings, AveragesKeepEveryTableTheyAreSetBy) {
  plan::Training settings = training({"g0.lr"});
  ASSERT_TRUE(apply({"train.ema={decay=0.9, every=2}", "train.ema.warmup=10"}, settings).ok());
  EXPECT_EQ(settings.ema().decay(), 0.9);
  EXPECT_EQ(settings.ema().every(), 2u);
  EXPECT_EQ(settings.ema().warmup(), 10u);
  plan::Training without = training({"g0.lr"});
  expectUsage(apply({"train.ema.every=2"}, without), {"train.ema.decay"});
}

TEST(Scalars, TheDecayOfAveragesWarmsUpAndSkipsUpdates) {
  plan::Ema ema;
  ema.set_decay(0.9);
  EXPECT_EQ(AverageRule(ema).decayAt(1), 0.9);
  ema.set_warmup(10);
  EXPECT_EQ(AverageRule(ema).decayAt(1), 2.0 / 11);  // TensorFlow's (1 + n)/(10 + n)
  EXPECT_EQ(AverageRule(ema).decayAt(80), 81.0 / 90); // the warm-up reaches 0.9 here
  EXPECT_EQ(AverageRule(ema).decayAt(1000), 0.9);
  ema.set_every(3);
  EXPECT_EQ(AverageRule(ema).decayAt(2), std::nullopt);
  EXPECT_EQ(AverageRule(ema).decayAt(6), 3.0 / 12);
}

namespace {
plan::LossScale scaleRule(double init = 64, uint64_t interval = 2) {
  plan::LossScale rule;
  rule.set_dynamic(true);
  rule.set_init_scale(init);
  rule.set_growth_factor(2);
  rule.set_backoff_factor(0.5);
  rule.set_growth_interval(interval);
  return rule;
}
} // namespace

TEST(LossScale, GrowsAndBacksOffAsGradScaler) {
  const plan::LossScale rule = scaleRule();
  LossScaleState state = firstLossScale(rule);
  std::vector<double> scales;
  for (bool finite : {false, true, true, true, false, true, true}) {
    if (finite)
      noteApplied(rule, state);
    else
      EXPECT_TRUE(noteSkipped(rule, state));
    scales.push_back(state.scale);
  }
  EXPECT_EQ(scales, (std::vector<double>{32, 32, 64, 64, 32, 32, 64}));
  EXPECT_EQ(state.skipped, 2u);
  EXPECT_EQ(appliedUpdates(7, state), 5u);
  EXPECT_EQ(appliedUpdates(7, std::nullopt), 7u);
}

/// torch keeps the factor in f32, and does not let it grow to infinity.
TEST(LossScale, IsAnF32) {
  const plan::LossScale rule = scaleRule(0x1p127, 1);
  LossScaleState state = firstLossScale(rule);
  noteApplied(rule, state);
  EXPECT_EQ(state.scale, 0x1p127);
  EXPECT_EQ(firstLossScale(scaleRule(0.1)).scale, static_cast<double>(0.1f));
}

/// From 64 down, a smaller factor may help. At 1 and below, kMostHopelessUpdates skipped updates in a row end the run;
/// the last one is not counted.
TEST(LossScale, HopelessRunsEnd) {
  const plan::LossScale rule = scaleRule();
  LossScaleState state = firstLossScale(rule);
  uint64_t skipped = 0;
  while (noteSkipped(rule, state))
    ++skipped;
  EXPECT_EQ(skipped, 6 + kMostHopelessUpdates - 1);
  EXPECT_EQ(state.skipped, skipped);
  noteApplied(rule, state);
  EXPECT_TRUE(noteSkipped(rule, state)) << "an applied update begins the count anew";
  plan::LossScale fixed = scaleRule(1024);
  fixed.set_dynamic(false);
  state = firstLossScale(fixed);
  for (uint64_t i = 1; i < kMostHopelessUpdates; ++i)
    EXPECT_TRUE(noteSkipped(fixed, state));
  EXPECT_FALSE(noteSkipped(fixed, state));
  EXPECT_EQ(state.scale, 1024);
}

TEST(LossScale, IsAScalarOfThePlan) {
  plan::Training settings = training({"g0.lr", "loss_scale"});
  *settings.mutable_loss_scale() = scaleRule();
  EXPECT_EQ(compute(settings, 1)[1], 64) << "the first factor, unless one is given";
  ASSERT_TRUE(apply({"train.loss_scale={init_scale=8, growth_interval=5}", "train.loss_scale.backoff_factor=0.25"}, settings).ok());
  EXPECT_EQ(compute(settings, 1)[1], 8);
  EXPECT_EQ(settings.loss_scale().growth_interval(), 5u);
  EXPECT_EQ(settings.loss_scale().backoff_factor(), 0.25);
  settings.mutable_loss_scale()->set_dynamic(false);
  expectUsage(apply({"train.loss_scale.growth_factor=4"}, settings), {"is fixed", "kind=dynamic"});
  settings.clear_loss_scale();
  expectUsage(apply({"train.loss_scale.init_scale=4"}, settings), {"without loss scaling", "recompile with tcc"});
}

TEST(Scalars, CountTheUpdatesOfTheStagesThatTrain) {
  plan::Training settings =
      training({"g0.step_size", "g0.step_size@1", "bias_correction2_sqrt@2", "first_update@3", "first_update@1"});
  for (uint64_t until : {4, 8, 0})
    settings.add_stages()->set_until(until);
  auto expect = [&](uint64_t update, std::vector<double> counts) {
    const std::vector<float> values = compute(settings, update);
    EXPECT_FLOAT_EQ(values[0], 3e-4 / (1 - std::pow(0.9, counts[0]))) << update;
    EXPECT_FLOAT_EQ(values[1], 3e-4 / (1 - std::pow(0.9, counts[1]))) << update;
    EXPECT_FLOAT_EQ(values[2], std::sqrt(1 - std::pow(0.999, counts[2]))) << update;
    EXPECT_EQ(values[3], counts[3] == 1) << update;
    EXPECT_EQ(values[4], counts[1] == 1) << update;
  };
  expect(5, {5, 1, 4, 0}); // the first update of stage 2
  expect(8, {8, 4, 4, 0});
  expect(9, {9, 5, 5, 1}); // the first update of stage 3
  expect(20, {20, 16, 16, 12});
  settings.add_scalars("beta1@4"); // skips the last stage, which lasts until the end of the run
  EXPECT_FALSE(ScalarBlock::create(settings, *LearningSchedule::create({}, 1)).ok());
}

TEST(Settings, AreThoseOfEveryStage) {
  plan::Training settings = training({});
  for (int i = 0; i < 2; ++i)
    *settings.add_stages()->mutable_training() = training({"g0.lr", "g0.decay"});
  ASSERT_TRUE(apply({"optimizer.lr=0.5", "optimizer.weight_decay=0.2"}, settings).ok());
  EXPECT_EQ(settings.optimizer().numbers().at("lr"), 0.5);
  for (const plan::Stage &stage : settings.stages()) {
    EXPECT_EQ(stage.training().optimizer().numbers().at("lr"), 0.5);
    EXPECT_EQ(stage.training().optimizer().groups(0).weight_decay(), 0.2);
  }
  EXPECT_EQ(settings.scalars_size(), 0);
  expectUsage(apply({"optimizer.eps=1e-3"}, settings), {"without an eps that can change", "recompile with tcc"});
}

TEST(Settings, ScheduleAndData) {
  plan::Training settings = training({"g0.lr", "clip_norm"});
  plan::DataSettings data;
  Status status = applySettings(
      {"schedule.kind=\"multi_step\"", "schedule.milestones=[2, 5]", "schedule.floor=clamp", "schedule.per=epoch",
       "train.seed=7", "train.clip_norm=0.5", "data.tokens=bytes", "data.map.x=picture", "data.eval_split=0.25"},
      settings, data);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(settings.schedule().numbers().at("milestone.1"), 5);
  EXPECT_EQ(settings.schedule().numbers().at("floor_clamp"), 1);
  EXPECT_EQ(settings.schedule().per(), "epoch");
  EXPECT_EQ(settings.seed(), 7u);
  EXPECT_EQ(settings.clip_norm(), 0.5);
  EXPECT_EQ(data.settings().at("tokens"), "bytes");
  EXPECT_EQ(data.map().at("x"), "picture");
  EXPECT_EQ(data.settings().at("eval_split"), "0.25");
}

/// A key that no field of the plan keeps is there by its name, and its reader finds it, or its default.
TEST(Settings, AKeyWithoutAFieldIsKeptByName) {
  plan::Training settings = training({"g0.lr"});
  EXPECT_EQ(plan::numberSetting(settings, "checkpoint.keep"), 3);
  (*settings.mutable_settings())["checkpoint.keep"] = "5";
  (*settings.mutable_settings())["checkpoint.keep_best"] = "false";
  EXPECT_EQ(plan::numberSetting(settings, "checkpoint.keep"), 5);
  EXPECT_EQ(plan::numberSetting(settings, "checkpoint.keep_best"), 0);
}
