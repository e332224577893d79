//===- Scalars.cpp - the numbers that change from update to update -------===//
#include "runtime/train/Scalars.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

using namespace tcc;
using namespace tcc::runtime;

Expected<ScalarBlock> ScalarBlock::create(const plan::Training &training, LearningSchedule schedule) {
  ScalarBlock block(std::move(schedule));
  const auto &numbers = training.optimizer().numbers();
  auto number = [&](const char *name) {
    auto found = numbers.find(name);
    return found == numbers.end() ? 0.0 : found->second;
  };
  block.rate = number("lr");
  block.beta1 = number("beta1");
  block.beta2 = number("beta2");
  block.eps = number("eps");
  block.momentum = number("momentum");
  block.dampening = number("dampening");
  block.alpha = number("alpha");
  block.rateDecay = number("lr_decay");
  block.clipNorm = training.clip_norm();
  block.average = AverageRule(training.ema());
  for (const plan::Stage &stage : training.stages())
    if (stage.until() != 0)
      block.stageEnds.push_back(stage.until());
  if (training.has_loss_scale())
    block.firstScale = training.loss_scale().init_scale();
  static constexpr std::pair<std::string_view, Name> kGlobal[] = {{"beta1", Name::Beta1},
                                                                  {"one_minus_beta1", Name::OneMinusBeta1},
                                                                  {"beta2", Name::Beta2},
                                                                  {"one_minus_beta2", Name::OneMinusBeta2},
                                                                  {"eps", Name::Eps},
                                                                  {"bias_correction2_sqrt", Name::BiasCorrection2Sqrt},
                                                                  {"momentum", Name::Momentum},
                                                                  {"one_minus_dampening", Name::OneMinusDampening},
                                                                  {"first_update", Name::FirstUpdate},
                                                                  {scalars::kClipNorm, Name::ClipNorm},
                                                                  {"alpha", Name::Alpha},
                                                                  {"one_minus_alpha", Name::OneMinusAlpha},
                                                                  {"one_minus_momentum", Name::OneMinusMomentum},
                                                                  {"bias_correction1", Name::BiasCorrection1},
                                                                  {"ema_decay", Name::EmaDecay},
                                                                  {"ema_rest", Name::EmaRest},
                                                                  {scalars::kLossScale, Name::LossScale}};
  static constexpr std::pair<std::string_view, Name> kGroup[] = {{"lr", Name::GroupRate},
                                                                 {"weight_decay", Name::GroupWeightDecay},
                                                                 {"decay", Name::GroupDecay},
                                                                 {"step_size", Name::GroupStepSize},
                                                                 {"decayed_lr", Name::GroupDecayedRate}};
  for (const std::string &given : training.scalars()) {
    Item item{};
    bool known = false;
    const size_t at = given.find('@');
    const std::string text = given.substr(0, at);
    uint64_t skipped = 0;
    if (at != std::string::npos && (std::from_chars(given.data() + at + 1, given.data() + given.size(), skipped).ptr !=
                                        given.data() + given.size() ||
                                    training.stages().empty()))
      skipped = ~uint64_t(0);
    for (const auto &[name, value] : kGlobal)
      if (text == name) {
        item.name = value;
        known = true;
      }
    size_t dot = text.find('.');
    int group = -1;
    if (!known && text.starts_with('g') && dot != std::string::npos &&
        std::from_chars(text.data() + 1, text.data() + dot, group).ptr == text.data() + dot)
      for (const auto &[name, value] : kGroup)
        if (std::string_view(text).substr(dot + 1) == name && group >= 0 &&
            group < training.optimizer().groups_size()) {
          item = {value, training.optimizer().groups(group).lr_scale(),
                  training.optimizer().groups(group).weight_decay()};
          known = true;
        }
    if (!known || skipped >> std::min<size_t>(block.stageEnds.size(), 63))
      return error("the plan reads a run-time scalar '{}' that this program does not know; use the trun that came "
                   "with the compiler, or compile the model again",
                   given);
    item.skipped = skipped;
    block.items.push_back(item);
  }
  return block;
}

uint64_t ScalarBlock::updatesIn(uint64_t stages, uint64_t update) const {
  uint64_t count = 0, begin = 0;
  for (size_t i = 0; i < stageEnds.size() && begin < update; begin = stageEnds[i++])
    if (stages >> i & 1)
      count += std::min(stageEnds[i], update) - begin;
  return count;
}

void ScalarBlock::compute(uint64_t update, SchedulePoint at, std::span<float> out,
                          std::optional<double> lossScale) const {
  double scheduled = learningRate(at), firstBeta = beta1, velocity = momentum;
  if (auto cycled = schedule.momentum(at.count))
    firstBeta = velocity = *cycled;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item &item = items[i];
    const uint64_t own = item.skipped ? update - updatesIn(item.skipped, update) : update;
    const auto t = static_cast<double>(own);
    double groupRate = schedule.isFactor() ? scheduled * item.scale : schedule.rate(rate * item.scale, at), value = 0;
    switch (item.name) {
    case Name::GroupRate:
      value = groupRate;
      break;
    case Name::GroupWeightDecay:
      value = item.decay;
      break;
    case Name::GroupDecay:
      value = 1 - groupRate * item.decay;
      break;
    case Name::GroupStepSize:
      value = groupRate / (1 - std::pow(firstBeta, t));
      break;
    case Name::Beta1:
      value = firstBeta;
      break;
    case Name::OneMinusBeta1:
      value = 1 - firstBeta;
      break;
    case Name::Beta2:
      value = beta2;
      break;
    case Name::OneMinusBeta2:
      value = 1 - beta2;
      break;
    case Name::Eps:
      value = eps;
      break;
    case Name::BiasCorrection2Sqrt:
      value = std::sqrt(1 - std::pow(beta2, t));
      break;
    case Name::Momentum:
      value = velocity;
      break;
    case Name::OneMinusDampening:
      value = 1 - dampening;
      break;
    case Name::FirstUpdate:
      value = own == 1 ? 1 : 0;
      break;
    case Name::ClipNorm:
      value = clipNorm;
      break;
    case Name::GroupDecayedRate:
      value = groupRate / (1 + (t - 1) * rateDecay);
      break;
    case Name::Alpha:
      value = alpha;
      break;
    case Name::OneMinusAlpha:
      value = 1 - alpha;
      break;
    case Name::OneMinusMomentum:
      value = 1 - velocity;
      break;
    case Name::BiasCorrection1:
      value = 1 - std::pow(firstBeta, t);
      break;
    case Name::EmaDecay:
      value = average.decayAt(update).value_or(1);
      break;
    case Name::EmaRest:
      value = 1 - average.decayAt(update).value_or(1);
      break;
    case Name::LossScale:
      value = lossScale.value_or(firstScale);
      break;
    }
    out[i] = static_cast<float>(value);
  }
}
