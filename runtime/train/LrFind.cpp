//===- LrFind.cpp - search for a learning rate ----------------------------===//
#include "runtime/train/LrFind.h"
#include "runtime/data/Sampler.h"
#include "runtime/state/Weights.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Settings.h"
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/UpdateRunner.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

static constexpr double kKept = 0.98, kDiverged = 4;

std::vector<std::string> tcc::runtime::lrFindSettings(const LrFindOptions &options) {
  const double factor = std::pow(options.end / options.start, 1 / static_cast<double>(options.steps - 1));
  return {fmt::format("optimizer.lr={}", options.start), "schedule.kind=exponential", "schedule.per=step",
          "schedule.warmup_steps=0",
          fmt::format("schedule.gamma={}", factor)};
}

/// Sets `steepest` and `tenthOfLeast`. The first tenth of the points is skipped as noise of the first batches.
static void suggest(LrFindResult &result) {
  const std::vector<LrPoint> &points = result.points;
  double fastest = 0, least = HUGE_VAL;
  for (size_t i = points.size() / 10 + 1; i + 1 < points.size(); ++i) {
    double slope = (points[i + 1].smoothed - points[i - 1].smoothed) /
                   (std::log(points[i + 1].rate) - std::log(points[i - 1].rate));
    if (slope < fastest) {
      fastest = slope;
      result.steepest = points[i].rate;
    }
    if (points[i].smoothed < least) {
      least = points[i].smoothed;
      result.tenthOfLeast = points[i].rate / 10;
    }
  }
}

Expected<LrFindResult> tcc::runtime::findLearningRate(Session &session, const LrFindOptions &options) {
  if (!session.training.phases().empty())
    return error(
        "{}: the plan has several optimizers ([[phase]]), whose rates cannot be told apart by one loss; try rates with "
        "`tcc` and recipes of their own",
        session.reader.path());
  if (!session.training.stages().empty())
    return error(
        "{}: the plan has stages ([[stage]]), whose rates follow one another; find a rate with a recipe without "
        "them, and with model.trainable",
        session.reader.path());
  if (Status status = requireRanks(session); !status.ok())
    return status;
  auto updates = UpdateRunner::create(session);
  if (!updates)
    return updates.status();
  auto known = readDataNotesOf(options.init);
  if (!known)
    return known.status();
  auto data = openEntryData(session, (*updates)->dataEntries(), options.data,
                            {DatasetOptions::Part::All, true, known->vocabulary, {}, options.note,
                             known->facts, true});
  if (!data)
    return data.status();
  if (Status status = checkClasses(*known, *data->dataset, options.init); !status.ok())
    return status;
  if (!options.init.empty()) {
    auto fit = loadWeights(session.plan(), *session.device, options.init, WeightsRule::Strict);
    if (!fit)
      return fit.status();
    if (fit->averages && options.note)
      options.note({Message::Tone::Note, averagesText(options.init)});
  }
  uint64_t samples = data->reader().samples(), batch = data->reader().batch(), drawn = data->dataset->epochSamples;
  TrainingPosition position;
  position.seed = session.training.seed();
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  std::vector<double> weights;
  if (std::string kind = settingText(settings, "sampler"); !drawn && (kind == "balanced" || kind == "weighted")) {
    auto read = sampleWeights(*data->dataset, kind == "balanced", settingText(settings, "weights"));
    if (!read)
      return read.status();
    weights = read.take();
  }
  Sampler sampler(samples, drawn ? drawn : samples, batch,
                  drawn || !weights.empty() ? SampleOrder::Random : SampleOrder::Shuffled, position.seed,
                  LastBatch::Drop, std::move(weights));
  if (Status status = gatherByShape(*data, sampler.repeats(), sampler); !status.ok())
    return status;
  const plan::VirtualRanks share = session.virtualRanks();
  sampler.setRanks(share.first, share.all);
  sampler.setShare(share.count, (*updates)->window());
  if (sampler.batchesPerEpoch() == 0)
    return error("{}: too few samples: {}, but a batch takes {}; give more data, or compile with a smaller batch",
                 options.data, samples, batch);
  const unsigned workers = workersOf(session, *data);
  TrainingBatches batches(data.take(), std::move(sampler), maxBadOf(session), workers);
  auto schedule = LearningSchedule::create(session.training.schedule(), static_cast<double>(options.steps));
  if (!schedule)
    return schedule.status();
  if (Status status = (*updates)->setSchedule(schedule.take()); !status.ok())
    return status;
  (*updates)->setSeed(position.seed);
  LrFindResult result;
  double average = 0, least = HUGE_VAL;
  while (position.step < options.steps && !result.diverged) {
    if (position.batch >= batches.perEpoch()) {
      position.batch = 0;
      ++position.epoch;
    }
    UpdateMetrics metrics;
    bool finite = true;
    if (Status status = (*updates)->run(position, batches, metrics, finite); !status.ok())
      return status.withContext(fmt::format("step {}", metrics.step));
    ++position.step;
    position.batch += (*updates)->taken();
    if (!finite) {
      result.diverged = true;
      break;
    }
    if (metrics.skipped) // the loss scale is still shrinking
      continue;
    average = kKept * average + (1 - kKept) * metrics.loss;
    double smoothed = average / (1 - std::pow(kKept, static_cast<double>(position.step)));
    result.points.push_back({metrics.learningRate, metrics.loss, smoothed});
    least = std::min(least, smoothed);
    // A multiple of the least loss is meaningful only if that is positive.
    result.diverged = position.step > options.steps / 10 && least > 0 && smoothed > kDiverged * least;
  }
  suggest(result);
  return result;
}
