//===- ScheduleTest.cpp - schedules against independent values -----------===//
//
// Expected numbers were computed by PyTorch 2 (OneCycleLR, StepLR, MultiStepLR, ExponentialLR, PolynomialLR,
// CosineAnnealingLR) or by hand where it has no such schedule.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Schedule.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
LearningSchedule make(const std::string &kind, std::map<std::string, double> numbers, double total = 10,
                      const std::string &from = "") {
  plan::Schedule schedule;
  schedule.set_kind(kind);
  schedule.set_warmup_from(from);
  for (const auto &[name, value] : numbers)
    (*schedule.mutable_numbers())[name] = value;
  auto made = LearningSchedule::create(schedule, total);
  EXPECT_TRUE(made.ok()) << made.message();
  return made ? made.take() : *LearningSchedule::create(plan::Schedule(), 1);
}

void expectFactors(const LearningSchedule &schedule, std::vector<double> expected) {
  for (size_t t = 0; t < expected.size(); ++t)
    EXPECT_NEAR(schedule.factor(t), expected[t], 1e-12) << "at " << t;
}
} // namespace

TEST(Schedule, ConstantAfterWarmUp) {
  expectFactors(make("constant", {{"warmup_steps", 4}}), {0.25, 0.5, 0.75, 1, 1, 1});
  expectFactors(make("constant", {{"warmup_steps", 4}}, 10, "zero"), {0, 0.25, 0.5, 0.75, 1, 1});
  expectFactors(make("", {}), {1, 1});
}

TEST(Schedule, Linear) {
  expectFactors(make("linear", {{"min_lr_scale", 0.2}}, 4), {1, 0.8, 0.6, 0.4, 0.2, 0.2});
  expectFactors(make("linear", {{"warmup_steps", 2}, {"total_steps", 6}}, 100), {0.5, 1, 1, 0.75, 0.5, 0.25, 0});
}

TEST(Schedule, Cosine) {
  // CosineAnnealingLR(T_max = 4, eta_min = 0.1) from rate 1.
  expectFactors(make("cosine", {{"min_lr_scale", 0.1}}, 4),
                {1, 0.8681980515339464, 0.55, 0.2318019484660536, 0.1, 0.1});
  expectFactors(make("cosine", {{"warmup_steps", 5}}, 5), {0.2, 0.4, 0.6, 0.8, 1, 0}); // no steps left after warm-up
}

TEST(Schedule, FloorByClamping) {
  expectFactors(make("linear", {{"min_lr_scale", 0.3}, {"floor_clamp", 1}}, 4), {1, 0.75, 0.5, 0.3, 0.3});
}

TEST(Schedule, OneCycleIsPyTorchs) {
  // OneCycleLR(SGD(momentum = 0.9), max_lr = 1, total_steps = 10): rate and momentum.
  LearningSchedule schedule = make("one_cycle", {}, 10);
  expectFactors(schedule, {0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
                           0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06});
  std::vector<double> momenta = {0.95,
                                 0.8999999999999999,
                                 0.85,
                                 0.854951556604879,
                                 0.8688255099070633,
                                 0.8888739533021842,
                                 0.9111260466978157,
                                 0.9311744900929366,
                                 0.945048443395121,
                                 0.95};
  for (size_t t = 0; t < momenta.size(); ++t)
    EXPECT_NEAR(*schedule.momentum(t), momenta[t], 1e-12) << "at " << t;
  EXPECT_NEAR(schedule.factor(50), schedule.factor(9), 1e-15);
  EXPECT_FALSE(make("cosine", {}).momentum(3).has_value());
}

TEST(Schedule, Steps) {
  expectFactors(make("step", {{"step_size", 2}, {"gamma", 0.5}}), {1, 1, 0.5, 0.5, 0.25});
  expectFactors(make("multi_step", {{"milestone.0", 1}, {"milestone.1", 3}}), {1, 0.1, 0.1, 0.01, 0.01});
  expectFactors(make("exponential", {{"gamma", 0.9}}), {1, 0.9, 0.81, 0.729});
  expectFactors(make("exponential", {{"gamma", 0.9}, {"warmup_steps", 2}}), {0.5, 1, 1, 0.9});
}

TEST(Schedule, PolynomialAndInverseSquareRoot) {
  expectFactors(make("polynomial", {{"power", 2}}, 4), {1, 0.5625, 0.25, 0.0625, 0, 0});
  expectFactors(make("inverse_sqrt", {{"warmup_steps", 4}}),
                {0.25, 0.5, 0.75, 1, 1, std::sqrt(4 / 5.), std::sqrt(4 / 6.)});
  expectFactors(make("inverse_sqrt", {}), {1, std::sqrt(1 / 2.), std::sqrt(1 / 3.)});
}

TEST(Schedule, WarmRestartsArePyTorchs) {
  // CosineAnnealingWarmRestarts of two groups with the rates 0.1 and 0.05, to the last bit.
  auto expectRates = [](const LearningSchedule &schedule, double base, std::vector<double> expected) {
    for (size_t t = 0; t < expected.size(); ++t)
      EXPECT_EQ(schedule.rate(base, t), expected[t]) << "at " << t;
  };
  LearningSchedule equal = make("cosine_warm_restarts", {{"t_0", 3}, {"eta_min", 0.01}});
  expectRates(equal, 0.1, {0.1, 0.0775, 0.032500000000000015, 0.1, 0.0775, 0.032500000000000015, 0.1, 0.0775});
  expectRates(equal, 0.05, {0.05, 0.04, 0.020000000000000004, 0.05, 0.04, 0.020000000000000004, 0.05, 0.04});
  LearningSchedule longer = make("cosine_warm_restarts", {{"t_0", 2}, {"t_mult", 3}, {"eta_min", 0.001}});
  expectRates(longer, 0.1,
              {0.1, 0.0505, 0.1, 0.09336825748732973, 0.07525000000000001, 0.0505, 0.025750000000000012,
               0.007631742512670284, 0.1, 0.0992479837741043, 0.09701478472890247, 0.09336825748732973});
  expectRates(longer, 0.05,
              {0.05, 0.025500000000000002, 0.05, 0.046717622392718754, 0.037750000000000006, 0.025500000000000002,
               0.013250000000000005, 0.004282377607281252, 0.05, 0.0496277899487991, 0.04852246920925476,
               0.046717622392718754});
  // A warm-up comes before the first cycle.
  LearningSchedule warm = make("cosine_warm_restarts", {{"t_0", 3}, {"eta_min", 0.01}, {"warmup_steps", 2}});
  expectRates(warm, 0.1, {0.05, 0.1, 0.1, 0.0775, 0.032500000000000015, 0.1});
}

TEST(Schedule, Faults) {
  auto refuse = [](const std::string &kind, std::map<std::string, double> numbers, const std::string &says) {
    plan::Schedule schedule;
    schedule.set_kind(kind);
    for (const auto &[name, value] : numbers)
      (*schedule.mutable_numbers())[name] = value;
    auto made = LearningSchedule::create(schedule, 10);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.message().find(says), std::string::npos) << made.message();
  };
  refuse("sine", {}, "\"sine\" is unknown");
  refuse("step", {}, "step_size");
  refuse("multi_step", {}, "milestones");
  refuse("exponential", {}, "gamma");
  refuse("one_cycle", {{"warmup_steps", 3}}, "warmup_steps");
  refuse("cosine_warm_restarts", {}, "t_0");
  refuse("cosine_warm_restarts", {{"t_0", 2}, {"t_mult", 0.5}}, "t_mult");
  refuse("plateau", {{"factor", 1}}, "factor is 1");
  refuse("linear", {{"warmup_steps", -3}}, "negative");
}
