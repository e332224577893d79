//===- ScalarsTest.cpp - run-time scalars and --set ----------------------===//
#include "runtime/train/Scalars.h"
#include "runtime/train/Settings.h"

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

plan::Status apply(const std::vector<std::string> &settings, plan::Training &target) {
  plan::DataSettings data;
  return applySettings(settings, target, data);
}

void expectUsage(const plan::Status &status, std::initializer_list<std::string> texts) {
  EXPECT_EQ(status.exitCode(), plan::kExitUsage);
  for (const std::string &text : texts)
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
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
  expectUsage(apply({"optimizer.betas=[0.9,0.9]"}, settings), {"no betas", "recompile"});
  expectUsage(apply({"schedule.kind=one_cycle"}, settings), {"momentum", "recompile"});
}

TEST(Settings, WrongWords) {
  plan::Training settings = training({"g0.lr"});
  expectUsage(apply({"optimizer.lrr=1"}, settings), {"'optimizer.lrr'", "did you mean 'optimizer.lr'?"});
  expectUsage(apply({"zzz=1"}, settings), {"unknown key 'zzz'"});
  expectUsage(apply({"optimizer.lr"}, settings), {"KEY=VALUE"});
  expectUsage(apply({"optimizer.lr=fast"}, settings), {"a number is needed"});
  expectUsage(apply({"schedule.kind=sine"}, settings), {"one of", "cosine"});
  expectUsage(apply({"train.seed=-1"}, settings), {"seed"});
  expectUsage(apply({"data.last=half"}, settings), {"drop", "pad"});
  expectUsage(apply({"data.eval_split=2"}, settings), {"between 0 and 1"});
}

TEST(Settings, ScheduleAndData) {
  plan::Training settings = training({"g0.lr", "clip_norm"});
  plan::DataSettings data;
  plan::Status status = applySettings(
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

TEST(Settings, ClassificationsKnowWhatIsNotCounted) {
  plan::Plan plan;
  EXPECT_FALSE(ignoreIndexOf(plan).has_value());
  plan.mutable_training()->set_loss_kind("cross_entropy");
  EXPECT_EQ(ignoreIndexOf(plan), -100);
  plan.set_recipe("[loss]\nignore_index = 0\nof = \"logits\"\nclass_axis = -1\n");
  EXPECT_EQ(ignoreIndexOf(plan), 0);
  EXPECT_FALSE(classesOf(plan).has_value());
  plan::Entry &entry = *plan.add_entries();
  entry.set_name("predict");
  entry.add_outputs()->set_name("logits");
  for (int64_t dim : {4, 32, 65})
    (entry.buffers_size() ? entry.mutable_buffers(0) : entry.add_buffers())->mutable_type()->add_dims(dim);
  EXPECT_FALSE(classesOf(plan).has_value()) << "there is no target of that shape";
  plan.mutable_training()->set_target("labels");
  plan::Entry &step = *plan.add_entries();
  step.add_inputs()->set_name("labels");
  step.add_buffers()->mutable_type()->add_dims(4);
  step.mutable_buffers(0)->mutable_type()->add_dims(32);
  EXPECT_EQ(classesOf(plan), 65);
}
