//===- PlateauTest.cpp - the learning rate on a plateau ------------------===//
//
// Expected rates were computed by PyTorch 2.15 (ReduceLROnPlateau over SGD with two groups, rates 0.1 and 0.05), one
// after each of the metrics below.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Goal.h"
#include "runtime/train/Scalars.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
const std::vector<double> kMetrics = {1.0,  0.9, 0.89995, 0.8999, 0.91, 0.95, NAN, 0.89, 0.8899, 0.88, 0.87999,
                                      0.88, 0.9, 0.9,     0.9,    0.9,  0.5,  0.6, 0.6,  0.6,    0.6,  0.6};

plan::Schedule scheduleOf(std::map<std::string, double> numbers) {
  plan::Schedule schedule;
  schedule.set_kind("plateau");
  for (const auto &[name, value] : numbers)
    (*schedule.mutable_numbers())[name] = value;
  return schedule;
}

/// Evaluations come after updates 10, 20, …; after each, the state is written to a checkpoint's manifest and read back.
void expectRates(std::map<std::string, double> numbers, std::vector<double> first, std::vector<double> second) {
  plan::Schedule schedule = scheduleOf(std::move(numbers));
  const Plateau plateau(schedule, {});
  auto rates = LearningSchedule::create(schedule, 100);
  ASSERT_TRUE(rates.ok()) << rates.message();
  Manifest manifest;
  manifest.position.plateau = plateau.begin({}, 0);
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    manifest.position.step = 10 * (i + 1);
    plateau.hear(manifest.position.step, {{{"eval_loss", kMetrics[i]}}}, *manifest.position.plateau);
    auto read = parseManifest(manifestText(manifest), "manifest.json");
    ASSERT_TRUE(read.ok()) << read.message();
    manifest.position = read->position;
    const SchedulePoint at(manifest.position.step, manifest.position.plateau->reductions);
    EXPECT_EQ(rates->rate(0.1, at), first[i]) << "after evaluation " << i;
    EXPECT_EQ(rates->rate(0.05, at), second[i]) << "after evaluation " << i;
  }
}
} // namespace

TEST(Plateau, RelativeThreshold) {
  expectRates({{"patience", 1}, {"factor", 0.3}},
              {0.1,
               0.1,
               0.1,
               0.1,
               0.1,
               0.03,
               0.03,
               0.03,
               0.03,
               0.03,
               0.03,
               0.009,
               0.009,
               0.0026999999999999997,
               0.0026999999999999997,
               0.0008099999999999998,
               0.0008099999999999998,
               0.0008099999999999998,
               0.00024299999999999994,
               0.00024299999999999994,
               7.289999999999998e-05,
               7.289999999999998e-05},
              {0.05,
               0.05,
               0.05,
               0.05,
               0.05,
               0.015,
               0.015,
               0.015,
               0.015,
               0.015,
               0.015,
               0.0045,
               0.0045,
               0.0013499999999999999,
               0.0013499999999999999,
               0.0004049999999999999,
               0.0004049999999999999,
               0.0004049999999999999,
               0.00012149999999999997,
               0.00012149999999999997,
               3.644999999999999e-05,
               3.644999999999999e-05});
}

TEST(Plateau, CooldownAndLeastRate) {
  expectRates({{"patience", 1}, {"factor", 0.5}, {"cooldown", 2}, {"min_lr", 0.02}},
              {0.1,   0.1,   0.1,   0.1,   0.1,  0.05, 0.05, 0.05, 0.05, 0.05, 0.05,
               0.025, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02},
              {0.05, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.025, 0.025,
               0.02, 0.02, 0.02, 0.02, 0.02, 0.02,  0.02,  0.02,  0.02,  0.02,  0.02});
}

TEST(Plateau, AbsoluteThresholdAndLeastChange) {
  std::vector<double> first = {0.1,
                               0.010000000000000002,
                               0.0010000000000000002,
                               0.00010000000000000003,
                               1.0000000000000004e-05,
                               1.0000000000000004e-06,
                               1.0000000000000005e-07},
                      second = {0.05,
                                0.005000000000000001,
                                0.0005000000000000001,
                                5.0000000000000016e-05,
                                5.000000000000002e-06,
                                5.000000000000002e-07,
                                5.0000000000000024e-08};
  first.resize(kMetrics.size(), 1.0000000000000005e-08);
  second.resize(kMetrics.size(), 5.0000000000000026e-09);
  expectRates({{"mode_max", 1}, {"patience", 0}, {"threshold", 0.01}, {"threshold_abs", 1}}, first, second);
  first = {0.1, 0.1, 0.010000000000000002, 0.0010000000000000002};
  second = {0.05, 0.05, 0.005000000000000001, 0.0005000000000000001};
  first.resize(kMetrics.size(), 0.00010000000000000003);
  second.resize(kMetrics.size(), 5.0000000000000016e-05);
  expectRates({{"patience", 0}, {"threshold", 1e-3}, {"threshold_abs", 1}, {"eps", 1e-4}}, first, second);
}

TEST(Plateau, LargerValuesOfSomeMetricsAreBetter) {
  auto isReduced = [](const Plateau &plateau) { // whether a rise of the metric reduces the rate
    PlateauState state = plateau.begin({}, 0);
    plateau.hear(1, {{{"eval_f1", 0.5}}}, state);
    return plateau.hear(2, {{{"eval_f1", 0.6}}}, state);
  };
  EXPECT_FALSE(isReduced(Plateau(scheduleOf({{"patience", 0}}), {"eval_f1", true})));
  EXPECT_TRUE(isReduced(Plateau(scheduleOf({{"patience", 0}, {"mode_max", 0}}), {"eval_f1", true})));
  EXPECT_TRUE(isReduced(Plateau(scheduleOf({{"patience", 0}}), {"eval_f1", false})));
  EXPECT_FALSE(isReduced(Plateau(scheduleOf({{"patience", 0}, {"mode_max", 1}}), {"eval_f1", false})));
}

TEST(Plateau, HearsOfAnEvaluationOnce) {
  const Plateau plateau(scheduleOf({{"patience", 0}}), {});
  PlateauState state = plateau.begin({}, 0);
  EXPECT_FALSE(plateau.hear(4, {{{"eval_loss", 1.0}}}, state));
  EXPECT_TRUE(plateau.hear(8, {{{"eval_loss", 2.0}}}, state));
  EXPECT_FALSE(plateau.hear(8, {{{"eval_loss", 2.0}}}, state)) << "from the record of a run that goes on";
  EXPECT_EQ(state.reductions, 1u);
  // With another metric the best value is reset, but the rate stays reduced.
  PlateauState other = Plateau(scheduleOf({}), {"eval_accuracy", true}).begin(state, 8);
  EXPECT_EQ(other.reductions, 1u);
  EXPECT_FALSE(other.best.has_value());
}

TEST(Plateau, ScalesTheRateOfEachGroup) {
  plan::Training training;
  (*training.mutable_optimizer()->mutable_numbers())["lr"] = 0.1;
  for (double scale : {1.0, 0.5})
    training.mutable_optimizer()->add_groups()->set_lr_scale(scale);
  training.add_scalars("g0.lr");
  training.add_scalars("g1.lr");
  auto block = ScalarBlock::create(training, *LearningSchedule::create(scheduleOf({{"min_lr", 0.02}}), 10));
  ASSERT_TRUE(block.ok()) << block.message();
  std::vector<float> values(2);
  block->compute(1, {0, 0}, values);
  EXPECT_EQ(values, (std::vector<float>{0.1f, 0.05f}));
  block->compute(1, {0, 1}, values);
  EXPECT_EQ(values, (std::vector<float>{0.02f, 0.02f})) << "the least rate is that of every group";
  EXPECT_EQ(block->learningRate({0, 1}), 0.02);
}
