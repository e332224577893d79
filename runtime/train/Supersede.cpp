//===- Supersede.cpp - move superseded metrics and checkpoints aside ------===//
//
// A run that is resumed from an earlier checkpoint, or from the last one after a crash, repeats its later updates.
// Their old records move to RUN/superseded/N, so that the run is a single sequence of updates again, and RUN@last and
// the curve in metrics.jsonl belong to one training. If it contains checkpoints, the folder has the form of a run,
// which can be exported and resumed.
//
//===----------------------------------------------------------------------===//
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "runtime/state/SealedJson.h"
#include "runtime/train/RunFolder.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {
/// The lines of updates up to `step`, and the others: later ones, lines that are no metrics, and one cut by a crash.
struct MetricsLines {
  std::string kept, later;
  size_t count = 0;                        ///< of the later ones
  std::vector<BestCheckpoint> evaluations; ///< of those that are kept
};

MetricsLines splitLines(const std::string &text, uint64_t step, const std::string &metric) {
  MetricsLines lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    bool whole = end != std::string::npos;
    std::string line = text.substr(at, whole ? end - at : end) + "\n";
    at = whole ? end + 1 : text.size();
    json entry = parseJsonOrNull(line);
    auto number = entry.is_object() ? entry.find("step") : entry.end();
    bool keep = whole && entry.is_object() && number != entry.end() && number->is_number_unsigned() &&
                number->get<uint64_t>() <= step;
    if (keep && entry.contains(metric) && entry[metric].is_number())
      lines.evaluations.push_back({number->get<uint64_t>(), entry[metric].get<double>(), metric});
    (keep ? lines.kept : lines.later) += line;
    lines.count += !keep;
  }
  return lines;
}

std::string freeFolder(const std::string &run) {
  std::error_code code;
  for (int i = 1;; ++i)
    if (std::string folder = fmt::format("{}/superseded/{}", run, i); !fs::exists(fs::symlink_status(folder, code)))
      return folder;
}

/// Hard-links the run's files into the folder. That is safe because these files are never written in place, only
/// replaced.
Status linkFiles(const std::string &run, const std::string &folder) {
  std::error_code code;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(run, code), end; !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(".tplan") || name == "vocabulary.json" || name == "classes.json" || name == "columns.json" ||
        name == "run.json")
      files.push_back(entry->path());
  }
  for (const fs::path &file : files) {
    fs::path to = fs::path(folder) / file.filename();
    if (Status status = linkOrCopy(file.string(), to.string()); !status.ok())
      return status;
  }
  return copySources(run, folder);
}

Status moveCheckpoints(const std::string &run, const std::string &folder, const std::vector<uint64_t> &steps) {
  if (Status status = makeFolders(folder + "/checkpoints"); !status.ok())
    return status;
  if (Status status = linkFiles(run, folder); !status.ok())
    return status;
  for (uint64_t step : steps) {
    const std::string place = fmt::format("checkpoints/step-{}", step);
    if (Status status = renameNew(fmt::format("{}/{}", run, place), fmt::format("{}/{}", folder, place)); !status.ok())
      return status;
  }
  syncFolder(run + "/checkpoints");
  return Status();
}

/// Sets RUN@best to the best checkpoint up to the position that still exists. A checkpoint is written before its own
/// evaluation and does not contain it; best.json may, and the metrics do.
Status restoreBest(const std::string &run, const std::string &folder, const MetricGoal &goal,
                   std::vector<BestCheckpoint> evaluations, TrainingPosition &position) {
  std::string path = run + "/checkpoints/best.json";
  std::error_code code;
  std::optional<BestCheckpoint> noted;
  if (fs::exists(path, code)) {
    auto best = readBest(run);
    if (!best)
      return best.status();
    noted = *best;
  }
  if (position.bestStep != 0)
    evaluations.push_back({position.bestStep, position.bestValue, position.bestMetric});
  if (noted)
    evaluations.push_back(*noted);
  std::vector<uint64_t> left = checkpointSteps(run);
  position.bestStep = 0;
  position.bestMetric = goal.name;
  for (const BestCheckpoint &one : evaluations)
    if (one.metric == goal.name && one.step != 0 && one.step <= position.step &&
        std::find(left.begin(), left.end(), one.step) != left.end() &&
        (position.bestStep == 0 || goal.isBetter(one.value, position.bestValue))) {
      position.bestStep = one.step;
      position.bestValue = one.value;
    }
  if (noted && noted->step > position.step && fs::exists(folder + "/checkpoints", code))
    if (Status status = markBest(folder, *noted); !status.ok())
      return status;
  if (position.bestStep != 0)
    return markBest(run, {position.bestStep, position.bestValue, position.bestMetric});
  return removeOwnFile(path, OwnFile::OfRun);
}
} // namespace

Status tcc::runtime::inheritEvaluations(const std::string &from, const std::string &to, uint64_t step) {
  std::string metrics = from + "/metrics.jsonl", lines;
  std::error_code code;
  if (!fs::exists(metrics, code))
    return Status();
  auto text = readFile(metrics);
  if (!text)
    return text.status();
  std::istringstream kept(splitLines(*text, step, "eval_loss").kept);
  for (std::string line; std::getline(kept, line);)
    if (json entry = parseJsonOrNull(line); entry.contains("eval_loss"))
      lines += line + "\n";
  return lines.empty() ? Status() : writeFileAtomically(to + "/metrics.jsonl", lines, OwnFile::OfRun);
}

Expected<std::optional<Message>> tcc::runtime::supersedeAfter(const std::string &run, const MetricGoal &best,
                                                    TrainingPosition &position) {
  std::string metrics = run + "/metrics.jsonl";
  std::error_code code;
  MetricsLines lines;
  if (fs::exists(metrics, code)) {
    auto text = readFile(metrics);
    if (!text)
      return text.status();
    lines = splitLines(*text, position.step, best.name);
  }
  std::vector<uint64_t> later = checkpointSteps(run);
  std::erase_if(later, [&](uint64_t step) { return step <= position.step; });
  std::string folder = freeFolder(run);
  // Copy first, then remove: a crash in between can duplicate a line, but never lose one.
  Status status;
  if (!lines.later.empty() || !later.empty())
    status = makeFolders(folder);
  if (status.ok() && !lines.later.empty())
    status = writeFileAtomically(folder + "/metrics.jsonl", lines.later, OwnFile::OfRun);
  if (status.ok() && !later.empty())
    status = moveCheckpoints(run, folder, later);
  if (status.ok())
    status = restoreBest(run, folder, best, lines.evaluations, position);
  if (status.ok() && !lines.later.empty())
    status = writeFileAtomically(metrics, lines.kept, OwnFile::OfRun);
  if (!status.ok())
    return status;
  if (lines.later.empty() && later.empty())
    return std::optional<Message>();
  std::string what;
  if (lines.count != 0)
    what = fmt::format("{} line{} of metrics.jsonl", lines.count, lines.count == 1 ? "" : "s");
  if (!later.empty())
    what += fmt::format("{}{} checkpoint{}", what.empty() ? "" : " and ", later.size(), later.size() == 1 ? "" : "s");
  return std::optional(
      Message::note("the run goes on after update {}; {} of later updates moved to {}", position.step, what, folder));
}
