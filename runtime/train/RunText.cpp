//===- RunText.cpp - the events of a run in words --------------------------===//
#include "runtime/train/RunText.h"
#include "support/Advice.h"

#include <fmt/ranges.h>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

/// 3:07, 1:02:03.
static void addDuration(TextLine &line, double seconds) {
  auto whole = static_cast<uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole >= 3600)
    line.add("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  else
    line.add("{}:{:02}", whole / 60, whole % 60);
}

TextLine tcc::runtime::progressLine(const UpdateMetrics &metrics, uint64_t totalSteps, double secondsLeft,
                                    Detail most) {
  TextLine line;
  line.add("step {}/{}", metrics.step, totalSteps);
  for (const PhaseMetrics &phase : metrics.phases)
    if (phase.ran)
      line.add("  loss.{} {:.5g}", phase.name, phase.loss);
  if (metrics.phases.empty())
    line.add("  loss {:.5g}", metrics.loss);
  if (most == Detail::All)
    line.add("  lr {:.3g}", metrics.learningRate);
  if (most >= Detail::Speed)
    line.add("  {:.0f} {}/s", static_cast<double>(metrics.tokens ? metrics.tokens : metrics.samples) / metrics.seconds,
             metrics.tokens ? "tokens" : "samples");
  if (most == Detail::All && metrics.skippedUpdates)
    line.add("  {} skipped, loss scale {}", metrics.skippedUpdates, metrics.lossScale);
  if (most >= Detail::Time) {
    line.add("  ");
    addDuration(line, secondsLeft);
    line.add(" left");
  }
  return line;
}

ProgressPace::ProgressPace(const RunFacts &facts, uint64_t every)
    : total(facts.totalSteps), first(facts.doneSteps), every(every), begun(monotonicSeconds()) {
  if (every == 0)
    this->every = std::max<uint64_t>(1, (total - std::min(first, total)) / 20);
}

double ProgressPace::secondsLeft(uint64_t step) const {
  const double perStep = (monotonicSeconds() - begun) / static_cast<double>(std::max<uint64_t>(step - first, 1));
  return perStep * static_cast<double>(total - std::min(step, total));
}

/// The number of ranks, by which the batch is multiplied.
static std::string ranksText(const RunFacts &facts) {
  if (facts.virtualRanks != 0)
    return fmt::format(" x {} virtual ranks on {}", facts.virtualRanks, facts.ranks);
  return facts.ranks > 1 ? fmt::format(" x {} ranks", facts.ranks) : "";
}

std::vector<std::string> tcc::runtime::linesOf(const RunFacts &facts) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}: {} samples, {} a batch{}{}, {} updates{}, seed {}{}", facts.model, facts.samples,
                              fmt::join(std::set<uint64_t>(facts.batches.begin(), facts.batches.end()), " or "),
                              ranksText(facts), facts.window > 1 ? fmt::format(" x {} accumulated", facts.window) : "",
                              facts.totalSteps,
                              facts.resumed ? fmt::format(" of which {} are done", facts.doneSteps) : "", facts.seed,
                              facts.shuffle ? "" : ", not shuffled"));
  if (facts.vocabulary != 0)
    lines.push_back(fmt::format("vocabulary: {} characters", facts.vocabulary));
  if (facts.classes != 0)
    lines.push_back(fmt::format("classes: {}", facts.classes));
  for (const auto &[column, count] : facts.categories)
    lines.push_back(fmt::format("column '{}': {} categories", column, count));
  lines.insert(lines.end(), facts.selected.begin(), facts.selected.end());
  lines.push_back(fmt::format(
      "memory: resident {}, transient {}, together {} on the device with {} worker{}{}; host: data {}, plan {} "
      "(mapped){}{}{}",
      formatBytes(facts.resident), formatBytes(facts.transient), formatBytes(facts.resident + facts.transient),
      facts.workers, facts.workers == 1 ? "" : "s",
      facts.libraries ? fmt::format(", and {} of libraries", formatBytes(*facts.libraries)) : "",
      formatBytes(facts.data), formatBytes(facts.plan),
      facts.kept ? ", kept for the device " + formatBytes(facts.kept) : "",
      facts.averages ? ", averages " + formatBytes(facts.averages) : "",
      facts.staging ? ", checkpoints " + formatBytes(facts.staging) : ""));
  return lines;
}

std::string tcc::runtime::lineOf(const EvaluatedStep &evaluated) {
  std::string text = fmt::format("step {}/{}", evaluated.step, evaluated.totalSteps);
  for (const auto &[key, value] : evaluated.record.values)
    text += key.ends_with("eval_accuracy") ? fmt::format("  {} {:.4f}", key, value)
                                           : fmt::format("  {} {:.6g}", key, value);
  return text;
}

std::string tcc::runtime::lineOf(const WrittenCheckpoint &checkpoint) {
  return fmt::format("checkpoint of update {}: {}, training waited {:.3f} s, durable after {:.3f} s", checkpoint.step,
                     formatBytes(checkpoint.bytes), checkpoint.waitedSeconds, checkpoint.writingSeconds);
}

std::vector<std::string> tcc::runtime::linesOf(const RunEnd &end, const std::string &folder) {
  std::vector<std::string> lines;
  switch (end.kind) {
  case RunEnd::Kind::Failed: // the caller has the error
    return lines;
  case RunEnd::Kind::Stopped:
    lines.push_back(fmt::format("stopped by {} after update {}{}", end.reason, end.step,
                                end.kept.empty() ? "" : "; " + end.kept));
    return lines;
  case RunEnd::Kind::Early:
    lines.push_back(fmt::format("stopped early after update {}: {}; {} goes on", end.step, end.reason,
                                advice::set("evaluate.stop.patience", "N")));
    break;
  case RunEnd::Kind::Done:
    break;
  }
  lines.push_back(fmt::format("{} updates in {:.1f} s{}{}", end.step, end.seconds,
                              end.waitedForData >= 0.1
                                  ? fmt::format(", {:.1f} s of them waiting for data", end.waitedForData)
                                  : "",
                              folder.empty() ? "" : "; " + folder));
  return lines;
}
