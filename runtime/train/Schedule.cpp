//===- Schedule.cpp - the learning rate as a function of the update ------===//
#include "runtime/train/Schedule.h"
#include "runtime/plan/SettingFields.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

using namespace tcc;
using namespace tcc::runtime;

Expected<LearningSchedule> LearningSchedule::create(const plan::Schedule &schedule, double runTotal) {
  LearningSchedule result;
  // A plan that trains nothing names no kind.
  const ScheduleKind *kind = schedule.kind().empty() ? &scheduleKinds().front() : findScheduleKind(schedule.kind());
  if (!kind)
    return error("schedule.kind = \"{}\" is unknown; known are {}", schedule.kind(),
                 fmt::join(scheduleKindNames(), ", "));
  result.kind = static_cast<Kind>(kind - scheduleKinds().data());
  const auto &numbers = schedule.numbers();
  auto number = [&](const char *name) { return plan::numberOr(numbers, "schedule", name); };
  auto numberIfGiven = [&](const char *name, double fallback) {
    auto entry = numbers.find(name);
    return entry == numbers.end() ? fallback : entry->second;
  };
  result.epochs = schedule.per() == "epoch";
  result.warmupFromZero = schedule.warmup_from() == "zero";
  result.clamp = numberIfGiven("floor_clamp", 0) != 0;
  result.total = numberIfGiven("total_steps", runTotal);
  result.warmup = number("warmup_steps");
  result.least = number("min_lr_scale");
  result.power = number("power");
  result.gamma = number("gamma");
  result.stepSize = numberIfGiven("step_size", NAN);
  result.percentStart = number("pct_start");
  result.divide = number("div_factor");
  result.divideFinal = number("final_div_factor");
  result.baseMomentum = number("base_momentum");
  result.mostMomentum = number("max_momentum");
  result.cycleMomentum = number("cycle_momentum") != 0;
  result.firstCycle = numberIfGiven("t_0", NAN);
  result.cycleGrowth = number("t_mult");
  result.leastRate = number(result.kind == Kind::Plateau ? "min_lr" : "eta_min");
  result.reduction = number("factor");
  result.leastChange = number("eps");
  for (int i = 0; numbers.contains(fmt::format("milestone.{}", i)); ++i)
    result.milestones.push_back(numbers.at(fmt::format("milestone.{}", i)));
  if (const std::string &needed = kind->needs;
      !needed.empty() && !numbers.contains(needed) && (needed != "milestones" || result.milestones.empty()))
    return error("schedule.kind = \"{}\" needs schedule.{}", kind->name, needed);
  if (result.kind == Kind::Step && !(result.stepSize >= 1))
    return error("schedule.step_size is {}, which is less than an update; use 1 or more", result.stepSize);
  if (result.kind == Kind::WarmRestarts && !(result.firstCycle >= 1))
    return error("schedule.t_0 is {}, which is less than an update; use 1 or more", result.firstCycle);
  if (result.kind == Kind::WarmRestarts && !(result.cycleGrowth >= 1))
    return error("schedule.t_mult is {}: cycles do not become shorter; use 1 or more", result.cycleGrowth);
  if (result.kind == Kind::Plateau && !(result.reduction < 1))
    return error("schedule.factor is {}, which does not reduce a rate; use less than 1", result.reduction);
  if (result.kind == Kind::OneCycle && result.warmup != 0)
    return error("schedule.kind = \"one_cycle\" warms up by itself; remove schedule.warmup_steps");
  if (!(result.warmup >= 0) || !(result.total >= 0))
    return error("schedule: warmup_steps and total_steps must not be negative");
  return result;
}

/// PyTorch's two cosine phases, with its end points, including the -1.
double LearningSchedule::oneCycle(double t, double initial, double peak, double last) const {
  auto anneal = [](double from, double to, double part) {
    return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * part) + 1);
  };
  double top = percentStart * total - 1, end = total - 1;
  t = std::min(t, end);
  if (t <= top)
    return top > 0 ? anneal(initial, peak, t / top) : peak;
  return end > top ? anneal(peak, last, (t - top) / (end - top)) : last;
}

/// The factor after warm-up; u is counted from the end of the warm-up.
double LearningSchedule::decayed(double u) const {
  double span = total - warmup, part = span > 0 ? std::min(u, span) / span : 1;
  switch (kind) {
  case Kind::Linear:
    return 1 + (least - 1) * part;
  case Kind::Cosine:
    return least + (1 - least) * (1 + std::cos(std::numbers::pi * part)) / 2;
  case Kind::Polynomial:
    return least + (1 - least) * std::pow(1 - part, power);
  case Kind::Step:
    return std::pow(gamma, std::floor(u / stepSize));
  case Kind::MultiStep:
    return std::pow(gamma, static_cast<double>(std::count_if(milestones.begin(), milestones.end(),
                                                             [&](double milestone) { return milestone <= u; })));
  case Kind::Exponential:
    return std::pow(gamma, u);
  case Kind::InverseSqrt: {
    double v = std::max(1.0, warmup);
    return std::sqrt(v / (v + u));
  }
  default:
    return 1;
  }
}

double LearningSchedule::factor(uint64_t count) const {
  auto t = static_cast<double>(count);
  if (kind == Kind::OneCycle) {
    double initial = 1 / divide;
    return oneCycle(t, initial, 1, initial / divideFinal);
  }
  if (t < warmup)
    return (warmupFromZero ? t : t + 1) / warmup;
  if (!clamp)
    return decayed(t - warmup);
  LearningSchedule toZero = *this;
  toZero.least = 0;
  return std::max(least, toZero.decayed(t - warmup));
}

/// In each cycle the rate falls from the base to the least one along half a cosine, in PyTorch's order of operations.
double LearningSchedule::restarted(double base, double u) const {
  double length = firstCycle;
  if (cycleGrowth == 1)
    u = std::fmod(u, length);
  for (; u >= length; length *= cycleGrowth)
    u -= length;
  return leastRate + (base - leastRate) * (1 + std::cos(std::numbers::pi * u / length)) / 2;
}

/// The rate after `reductions` reductions, applied one after the other as in PyTorch. A reduction that would change the
/// rate by less than `eps` is skipped, and so are all later ones, which would change it by as little.
double LearningSchedule::reduced(double base, uint64_t reductions) const {
  for (; reductions > 0; --reductions) {
    double next = std::max(base * reduction, leastRate);
    if (!(base - next > leastChange))
      break;
    base = next;
  }
  return base;
}

double LearningSchedule::rate(double base, SchedulePoint at) const {
  const auto t = static_cast<double>(at.count);
  if (kind == Kind::WarmRestarts && t >= warmup)
    return restarted(base, t - warmup);
  return (kind == Kind::Plateau ? reduced(base, at.reductions) : base) * factor(at.count);
}

std::optional<double> LearningSchedule::momentum(uint64_t count) const {
  if (kind != Kind::OneCycle || !cycleMomentum)
    return std::nullopt;
  return oneCycle(static_cast<double>(count), mostMomentum, baseMomentum, mostMomentum);
}
