//===- RunHistory.cpp - the history of a run, read from its folder --------===//
#include "tools/trun/RunHistory.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Targets.h"
#include "runtime/state/RunLock.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/ShortText.h"
#include "tools/common/CommandLineWording.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <string_view>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;
namespace fs = std::filesystem;
using nlohmann::json;

static constexpr size_t kLogLines = 80;
static constexpr size_t kMostPhases = 8, kMostLosses = 16; ///< of a plan; a file may say anything

namespace {
/// The longest line that is read: a file may hold anything, but lines of ours have a few hundred bytes.
constexpr size_t kMostLineBytes = 64 << 10;

/// Calls `take(line, whole)` for each line; the last one is not whole if no line feed ends it.
template <typename Take> void forEachLine(std::string_view text, Take take) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    take(text.substr(0, end), end != text.npos);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

double numberOf(const json &line, const char *key) {
  auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

class Reader {
public:
  explicit Reader(const std::string &run) { history.folder = run; }

  RunHistory read() {
    history.running = RunLock::isHeld(history.folder);
    readMetrics();
    readCheckpoints();
    readOptions();
    readPlan();
    readLog();
    std::error_code code;
    while (fs::exists(fmt::format("{}/superseded/{}", history.folder, history.superseded + 1), code))
      ++history.superseded;
    return std::move(history);
  }

private:
  void problem(const Status &status) { history.problems.push_back(worded(status.message(), commandLineWording())); }

  void readMetrics() {
    const std::string path = history.folder + "/metrics.jsonl";
    auto file = MappedFile::open(path);
    if (!file)
      return history.problems.push_back(file.message() + ": no curves");
    forEachLine((*file)->text(), [&](std::string_view line, bool whole) {
      const json entry = parseJsonOrNull(line.substr(0, kMostLineBytes));
      auto step = entry.is_object() ? entry.find("step") : entry.end();
      if (entry.is_object() && step != entry.end() && step->is_number_unsigned())
        take(entry, step->get<uint64_t>());
      else if (whole || !history.running) // the process that trains may be writing it
        ++history.unreadable;
    });
  }

  void take(const json &line, uint64_t step) {
    if (line.contains("loss"))
      return takeUpdate(line, step);
    if (line.contains("eval_loss")) {
      PastEvaluation one{step, numberOf(line, "seconds"), {}};
      for (const auto &[key, value] : line.items())
        if (key.starts_with("eval_") || key.starts_with("ema_eval_"))
          if (value.is_number())
            one.record.values.emplace_back(key, value.get<double>());
      history.evaluations.push_back(std::move(one));
    } else if (line.contains("checkpoint_bytes")) {
      history.checkpoints.push_back({step, static_cast<uint64_t>(std::max(0.0, numberOf(line, "checkpoint_bytes"))),
                                     numberOf(line, "checkpoint_waited_seconds"), numberOf(line, "checkpoint_seconds"),
                                     false});
    } else if (auto reason = line.find("end"); reason != line.end() && reason->is_string()) {
      history.end = reason->get<std::string>();
    }
  }

  void takeUpdate(const json &line, uint64_t step) {
    PastUpdate update{};
    update.step = step;
    if (auto epoch = line.find("epoch"); epoch != line.end() && epoch->is_number_unsigned())
      update.epoch = epoch->get<uint64_t>();
    update.loss = numberOf(line, "loss");
    update.learningRate = numberOf(line, "lr");
    update.gradientNorm = numberOf(line, "grad_norm");
    update.seconds = numberOf(line, "seconds");
    update.dataSeconds = numberOf(line, "data_seconds");
    update.samples = numberOf(line, "samples_per_s") * update.seconds;
    update.tokens = numberOf(line, "tokens_per_s") * update.seconds;
    update.lossScale = numberOf(line, "loss_scale");
    update.communicationSeconds = numberOf(line, "communication_seconds");
    update.exposedSeconds = numberOf(line, "exposed_seconds");
    if (double skipped = numberOf(line, "skipped_updates"); skipped > 0)
      history.skipped = static_cast<uint64_t>(skipped);
    update.resumed = line.value("resumed", json()) == true;
    if (double damaged = numberOf(line, "damaged_samples"); damaged > 0)
      history.damaged = static_cast<uint64_t>(damaged);
    takePhases(line, update);
    takeLosses(line, update);
    history.end.reset(); // an update after an end: the run went on
    history.updates.push_back(update);
  }

  /// "loss.critic" and the like.
  void takePhases(const json &line, PastUpdate &update) {
    constexpr std::string_view kLoss = "loss.", kSkipped = "skipped_updates.";
    for (const auto &[key, value] : line.items()) {
      if (key.starts_with(kSkipped) && value.is_number_unsigned() && value.get<uint64_t>() > 0)
        history.skippedOf[key.substr(kSkipped.size())] = value.get<uint64_t>();
      if (!key.starts_with(kLoss) || key.size() == kLoss.size())
        continue;
      const std::string name = key.substr(kLoss.size());
      auto known = std::find(history.phases.begin(), history.phases.end(), name);
      const auto at = static_cast<size_t>(known - history.phases.begin());
      if (known == history.phases.end() && at == kMostPhases)
        continue;
      if (known == history.phases.end())
        history.phases.push_back(name);
      update.phases.resize(std::max(update.phases.size(), at + 1), PastPhase{NAN, NAN, NAN});
      update.phases[at] = {numberOf(line, key.c_str()), numberOf(line, ("lr." + name).c_str()),
                           numberOf(line, ("grad_norm." + name).c_str())};
    }
  }

  /// "loss/absolute" and the like.
  void takeLosses(const json &line, PastUpdate &update) {
    constexpr std::string_view kLoss = "loss/";
    for (const auto &[key, value] : line.items()) {
      if (!key.starts_with(kLoss) || key.size() == kLoss.size())
        continue;
      const std::string name = key.substr(kLoss.size());
      auto known = std::find_if(history.losses.begin(), history.losses.end(),
                                [&](const PastLoss &loss) { return loss.name == name; });
      const auto at = static_cast<size_t>(known - history.losses.begin());
      if (known == history.losses.end() && at == kMostLosses)
        continue;
      if (known == history.losses.end())
        history.losses.push_back({name, NAN});
      update.losses.resize(std::max(update.losses.size(), at + 1), NAN);
      update.losses[at] = numberOf(line, key.c_str());
    }
  }

  void readCheckpoints() {
    std::vector<uint64_t> steps = checkpointSteps(history.folder);
    for (uint64_t step : steps) {
      auto known = std::find_if(history.checkpoints.rbegin(), history.checkpoints.rend(),
                                [&](const PastCheckpoint &one) { return one.step == step; });
      if (known != history.checkpoints.rend())
        known->kept = true;
    }
    // A running process replaces its checkpoints: take the newest that still exists.
    for (auto step = steps.rbegin(); step != steps.rend() && !history.manifest; ++step) {
      auto manifest = readManifest(fmt::format("{}/checkpoints/step-{}", history.folder, *step));
      if (manifest)
        history.manifest = manifest.take();
      else if (!history.running)
        problem(manifest.status());
    }
    std::error_code code;
    if (!fs::exists(history.folder + "/checkpoints/best.json", code))
      return;
    auto best = readBest(history.folder);
    if (best)
      history.best = *best;
    else
      problem(best.status());
  }

  void readOptions() {
    auto options = readRunOptions(history.folder);
    if (options)
      history.options = options.take();
    else
      problem(options.status());
  }

  void readPlan() {
    auto reader = plan::PlanReader::open(history.folder + "/plan.tplan");
    if (!reader)
      return problem(reader.status());
    const std::vector<std::string> names = plan::targetNames(reader->plan());
    const std::string wanted = history.manifest ? history.manifest->run.target : "";
    auto found = std::find(names.begin(), names.end(), wanted);
    const plan::Plan one = plan::targetOf(reader->plan(), found == names.end() ? 0 : uint32_t(found - names.begin()));
    history.stages = plan::stagesOf(one);
    for (const plan::LossTerm &loss : one.training().losses())
      for (PastLoss &past : history.losses)
        if (past.name == loss.name())
          past.scale = loss.scale();
    for (const plan::Variable &variable : one.variables())
      if (variable.role() == plan::PARAMETER)
        history.parameters += plan::elementCount(plan::wholeType(variable)).value_or(0);
  }

  void readLog() {
    const std::string path = history.folder + "/log.txt";
    std::error_code code;
    if (!fs::exists(fs::symlink_status(path, code)))
      return;
    auto file = MappedFile::open(path);
    if (!file)
      return problem(file.status());
    std::deque<std::string> last;
    forEachLine((*file)->text(), [&](std::string_view line, bool) {
      // Lines whose content is in curves and tables are left out.
      if ((line.starts_with("step ") &&
           (line.find(" left") != std::string::npos || line.find("eval_loss") != std::string::npos)) ||
          line.starts_with("checkpoint of update"))
        return;
      last.push_back(shortened(line, kMostLineBytes));
      if (last.size() > kLogLines)
        last.pop_front();
    });
    history.log.assign(last.begin(), last.end());
  }

  RunHistory history;
};
} // namespace

const char *RunHistory::state() const {
  if (running)
    return "running";
  if (!end)
    return "broken off";
  if (*end == "finished" || end->starts_with("evaluate.stop"))
    return "finished";
  return end->starts_with("error: ") ? "failed" : "stopped";
}

std::string RunHistory::stateText() const {
  const uint64_t step = updates.empty() ? 0 : updates.back().step;
  const std::string after = fmt::format("after update {}", step);
  if (running)
    return fmt::format("a process trains now; {} {} recorded", step, step == 1 ? "update is" : "updates are");
  if (!end)
    return after + ": the process ended without a word (killed, or the machine went down)" +
           (manifest ? fmt::format("; trun --resume {} goes on after update {}", folder, manifest->position.step) : "");
  if (*end == "finished")
    return after + ", as it was asked to";
  return after + ": " + *end;
}

RunHistory::Times RunHistory::times() const {
  Times sum;
  auto add = [](double &to, double value) {
    if (std::isfinite(value))
      to += value;
  };
  for (const PastUpdate &update : updates) {
    add(sum.compute, update.seconds - (std::isfinite(update.dataSeconds) ? update.dataSeconds : 0) -
                         (std::isfinite(update.exposedSeconds) ? update.exposedSeconds : 0));
    add(sum.data, update.dataSeconds);
    add(sum.ranks, update.exposedSeconds);
  }
  for (const PastCheckpoint &checkpoint : checkpoints)
    add(sum.checkpoints, checkpoint.waitedSeconds);
  for (const PastEvaluation &evaluation : evaluations)
    add(sum.evaluations, evaluation.seconds);
  return sum;
}

Expected<RunHistory> tcc::tools::readRunHistory(const std::string &run) {
  std::error_code code;
  if (!fs::is_directory(run, code))
    return error("{}: no folder of a run; give the folder that trun --out named", run);
  bool any = false;
  for (const char *name : {"metrics.jsonl", "run.json", "plan.tplan", "checkpoints"})
    any |= fs::exists(fmt::format("{}/{}", run, name), code);
  if (!any)
    return error("{}: no folder of a run: it holds neither metrics.jsonl nor checkpoints", run);
  return Reader(run).read();
}
