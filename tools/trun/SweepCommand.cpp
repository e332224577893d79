//===- SweepCommand.cpp - trun sweep: runs over lists of settings ---------===//
//
// One run for each combination of values and each seed, one after the other, in SWEEP/1, SWEEP/2, …. SWEEP/sweep.json
// lists the runs of the sweep; a numbered folder that it does not list is foreign. The same command continues a sweep
// that was stopped: an existing run is resumed, if it has the settings of its number. SWEEP/lock is held meanwhile.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/state/RunLock.h"
#include "runtime/state/SealedJson.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/Goal.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Settings.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/TextTable.h"
#include "tools/trun/Commands.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;
namespace fs = std::filesystem;

namespace {
constexpr const char *kFormat = "tcc sweep";

/// The values of "KEY=V1,V2": commas in brackets, braces and quotes belong to a value.
std::vector<std::string> valuesOf(const std::string &setting) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos)
    return {setting}; // refused where it is applied
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (char c : setting.substr(equals + 1)) {
    if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    depth += !quote && (c == '[' || c == '{');
    depth -= !quote && (c == ']' || c == '}');
    if (c == ',' && depth == 0 && !quote)
      values.emplace_back();
    else
      values.back() += c;
  }
  for (std::string &value : values)
    value = setting.substr(0, equals + 1) + value;
  return values;
}

struct Trial {
  std::vector<std::string> settings;
  uint64_t seed = 0;
  std::string run;
  bool listed = false; ///< in sweep.json
  double best = NAN, last = NAN; ///< of the metric
  bool diverged = false, finished = false;
};

/// The last list changes fastest, then the seed.
std::vector<Trial> trialsOf(const std::vector<std::string> &settings, uint64_t firstSeed, uint64_t seeds) {
  std::vector<Trial> trials(1);
  for (const std::string &setting : settings) {
    std::vector<Trial> next;
    for (const Trial &trial : trials)
      for (const std::string &value : valuesOf(setting)) {
        next.push_back(trial);
        next.back().settings.push_back(value);
      }
    trials = std::move(next);
  }
  std::vector<Trial> all;
  for (const Trial &trial : trials)
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      all.push_back(trial);
      all.back().seed = firstSeed + seed;
    }
  return all;
}

bool isFinished(const std::string &end) { return end == "finished" || end.starts_with("evaluate.stop"); }

/// The metric's best and last value in a run's lines; without evaluations its last training loss.
Status readResult(const MetricGoal &goal, bool evaluated, Trial &trial) {
  trial.best = trial.last = NAN;
  auto text = readFile(trial.run + "/metrics.jsonl");
  if (!text)
    return text.status();
  std::istringstream lines(*text);
  const std::string key = evaluated ? goal.name : "loss";
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json entry = parseJsonOrNull(line);
    if (!entry.is_object())
      continue;
    if (auto end = entry.find("end"); end != entry.end())
      trial.finished = end->is_string() && isFinished(end->get<std::string>());
    else if (entry.contains("loss"))
      trial.finished = false; // a line after an end: the run went on
    if (!entry.contains(key) || !entry[key].is_number())
      continue;
    trial.last = entry[key].get<double>();
    if (!(trial.best == trial.best) || goal.isBetter(trial.last, trial.best))
      trial.best = trial.last;
  }
  return Status();
}

class Sweep {
public:
  explicit Sweep(const Options &options) : options(options) {}

  Status run() {
    auto reader = plan::PlanReader::open(options.session.planPath);
    if (!reader)
      return reader.status();
    reader->selectTarget(0); // data and training are those of all targets
    uint64_t first = options.train.seed.value_or(reader->plan().training().seed());
    trials = trialsOf(options.session.settings, first, options.seeds);
    // Every combination is checked before the first run begins.
    for (const Trial &trial : trials) {
      plan::Training training = reader->plan().training();
      plan::DataSettings data = reader->plan().data();
      if (Status status = applySettings(trial.settings, training, data); !status.ok())
        return status;
      auto parsed = parseGoal("evaluate.best", training.evaluation().best());
      if (!parsed)
        return parsed.status();
      goal = parsed.take();
      evaluated = !options.train.evalData.empty() || data.settings().contains("eval_split");
    }
    if (!evaluated)
      goal = {"loss", false};
    if (Status status = makeFolders(options.train.out); !status.ok())
      return status;
    auto lock = RunLock::acquire(options.train.out);
    if (!lock)
      return lock.status();
    if (Status status = noteRuns(); !status.ok())
      return status;
    for (size_t i = 0; i < trials.size(); ++i) {
      printMessage("trun: run {} of {}: {}\n", i + 1, trials.size(), wordsOf(trials[i]));
      bool complete = false;
      Status status = train(trials[i], complete);
      if (status.code() == StatusCode::NonFinite) {
        printMessage("trun: {}: {}\n", trials[i].run, status.message());
        trials[i].diverged = true;
      } else if (!status.ok()) {
        return status.withContext(trials[i].run);
      } else if (!complete) {
        printMessage("trun: the sweep is stopped; the same command goes on with it\n");
        return Status();
      }
      if (status = readResult(goal, evaluated, trials[i]); !status.ok())
        return status;
    }
    return report();
  }

private:
  static std::vector<std::string> wordListOf(const Trial &trial) {
    std::vector<std::string> words = trial.settings;
    words.push_back(fmt::format("seed {}", trial.seed));
    return words;
  }
  static std::string wordsOf(const Trial &trial) { return fmt::format("{}", fmt::join(wordListOf(trial), ", ")); }

  /// Settings that all of several different trials share, which the table need not repeat.
  std::vector<std::string> sharedWords() const {
    std::vector<std::string> shared = wordListOf(trials.front());
    for (const Trial &trial : trials)
      std::erase_if(shared, [words = wordListOf(trial)](const std::string &word) {
        return std::find(words.begin(), words.end(), word) == words.end();
      });
    return shared.size() == wordListOf(trials.front()).size() ? std::vector<std::string>() : shared;
  }

  static bool holdsFoldersAlone(const std::string &folder) {
    std::error_code code;
    for (fs::recursive_directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
      if (!fs::is_directory(entry->symlink_status(code)))
        return false;
    return !code;
  }

  std::string listPath() const { return options.train.out + "/sweep.json"; }

  /// Writes the list of runs. Error: a numbered folder is not of this sweep, or has another run's settings.
  Status noteRuns() {
    auto entry = [](const Trial &trial) { return nlohmann::json{{"settings", trial.settings}, {"seed", trial.seed}}; };
    std::error_code code;
    nlohmann::json before = nlohmann::json::array();
    if (fs::exists(fs::symlink_status(listPath(), code))) {
      auto list = readSealed(listPath());
      if (!list)
        return list.status();
      if (list->value("format", nlohmann::json()) != kFormat || !(*list)["runs"].is_array())
        return error("{}: damaged: it lists no runs of a sweep; give another --out", listPath());
      before = (*list)["runs"];
    }
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (size_t i = 0; i < std::max(trials.size(), before.size()); ++i) {
      const std::string run = fmt::format("{}/{}", options.train.out, i + 1);
      const bool there = fs::exists(fs::symlink_status(run, code));
      if (i >= trials.size()) {
        if (there)
          runs.push_back(nlohmann::ordered_json(before[i])); // of an earlier, longer list
        continue;
      }
      trials[i].run = run;
      trials[i].listed = i < before.size() && before[i] == entry(trials[i]);
      if (there && i < before.size() && !trials[i].listed)
        return error("{}: it was made with {}, and the sweep's run of this number has {}; give another --out", run,
                     wordsOf(before[i]), wordsOf(trials[i]));
      // Older versions kept no list: a checkpoint has the run's settings.
      if (there && !trials[i].listed && checkpointSteps(run).empty() && !holdsFoldersAlone(run))
        return error("{}: it exists, and is no run of this sweep; give another --out", run);
      runs.push_back(nlohmann::ordered_json(entry(trials[i])));
    }
    return writeFileAtomically(listPath(), sealObject({{"format", kFormat}, {"runs", runs}}, {"runs"}),
                               OwnFile::Sealed);
  }

  static std::string wordsOf(const nlohmann::json &entry) {
    Trial trial;
    auto settings = entry.is_object() ? entry.find("settings") : entry.end();
    if (settings != entry.end() && settings->is_array())
      for (const auto &one : *settings)
        trial.settings.push_back(one.is_string() ? one.get<std::string>() : "?");
    auto seed = entry.is_object() ? entry.find("seed") : entry.end();
    if (seed != entry.end() && seed->is_number_unsigned())
      trial.seed = seed->get<uint64_t>();
    return wordsOf(trial);
  }

  Status train(Trial &trial, bool &complete) {
    SessionOptions sessionOptions = options.session;
    TrainOptions trainOptions = options.train;
    trainOptions.seed = trial.seed;
    trainOptions.out = trial.run;
    sessionOptions.settings = trainOptions.settings = trial.settings;
    std::error_code code;
    if (fs::exists(fs::symlink_status(trial.run, code)) && checkpointSteps(trial.run).empty()) {
      // A finished run needs no checkpoints; one that ended before its first begins anew.
      if (fs::exists(trial.run + "/metrics.jsonl", code))
        if (Status status = readResult(goal, evaluated, trial); !status.ok())
          return status;
      complete = trial.finished;
      if (complete)
        return Status();
      if (Status status = removeUnfinishedRun(trial.run, {sessionOptions.planPath, trainOptions.data,
                                                              trainOptions.evalData, trainOptions.init}); !status.ok())
        return status;
    }
    if (fs::exists(trial.run, code)) {
      auto folder = findCheckpoint({trial.run, "last"});
      if (!folder)
        return folder.status();
      auto manifest = readManifest(*folder);
      if (!manifest)
        return manifest.status();
      if (manifest->position.settings != trial.settings || manifest->position.seed != trial.seed)
        return error("it was made with {}, seed {}, and the sweep's run of this number has {}; give another --out",
                     fmt::join(manifest->position.settings, ", "), manifest->position.seed, wordsOf(trial));
      trainOptions.resume = trial.run;
      trainOptions.seed.reset();
    }
    auto session = openSession(sessionOptions);
    if (!session)
      return session.status();
    TrainScreen screen(options.screen);
    screen.tellTo(trainOptions);
    RunResult result;
    Status status = runtime::train(*session, trainOptions, &result);
    complete = result.complete;
    return status;
  }

  /// Best first; also as SWEEP/summary.json.
  Status report() {
    std::stable_sort(trials.begin(), trials.end(), [&](const Trial &a, const Trial &b) {
      bool known = !std::isnan(a.best) && !a.diverged, other = !std::isnan(b.best) && !b.diverged;
      return known != other ? known : known && goal.isBetter(a.best, b.best);
    });
    nlohmann::ordered_json summary = nlohmann::ordered_json::array();
    // The widest column stands last: a narrow terminal breaks it, and no other.
    report::Table table(">><<", {"best " + goal.name, "last", "run", "settings"});
    auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : ""; };
    const std::vector<std::string> shared = sharedWords();
    for (const Trial &trial : trials) {
      std::vector<std::string> own = wordListOf(trial);
      std::erase_if(own, [&](const std::string &word) {
        return std::find(shared.begin(), shared.end(), word) != shared.end();
      });
      table.add({trial.diverged ? "diverged" : number(trial.best), number(trial.last), trial.run,
                 fmt::format("{}", fmt::join(own, ", "))});
      summary.push_back({{"settings", trial.settings},
                         {"seed", trial.seed},
                         {"metric", goal.name},
                         {"best", std::isfinite(trial.best) ? nlohmann::ordered_json(trial.best) : nullptr},
                         {"last", std::isfinite(trial.last) ? nlohmann::ordered_json(trial.last) : nullptr},
                         {"diverged", trial.diverged},
                         {"run", trial.run}});
    }
    printText((shared.empty() ? "" : fmt::format("all runs: {}\n", fmt::join(shared, ", "))) + table.text());
    return writeFileAtomically(options.train.out + "/summary.json", jsonText(summary, 1) + "\n", OwnFile::Summary);
  }

  const Options &options;
  std::vector<Trial> trials;
  MetricGoal goal;
  bool evaluated = false;
};
} // namespace

Status tcc::tools::sweepCommand(const Options &options) { return Sweep(options).run(); }
