//===- RunFolder.cpp - the folder that a training run leaves -------------===//
#include "runtime/train/RunFolder.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Verifier.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/RunLock.h"
#include "runtime/state/SealedJson.h"
#include "runtime/train/RunOptions.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {
constexpr const char *kPlan = "plan.tplan", *kVocabulary = "vocabulary.json", *kClasses = "classes.json",
                     *kColumns = "columns.json";

std::string planPathOf(const std::string &run) { return fmt::format("{}/{}", run, kPlan); }
std::string olderPlanPathOf(const std::string &run, uint64_t checksum) {
  return fmt::format("{}/plan-{}.tplan", run, checksumText(checksum));
}
/// Each plan of the run has a source file: "plan.tplan" → "source.json", "plan-X.tplan" → "source-X.json".
std::string sourcePathOf(const std::string &run, const std::string &planPath) {
  return fmt::format("{}/source{}.json", run, fs::path(planPath).stem().string().substr(4));
}

Status writeSource(const std::string &run, const std::string &path, const std::string &folder,
                         const std::string &plan) {
  std::error_code code;
  return writeFileAtomically(
      path, sealObject({{"plan_folder", folder},
                        {"plan_folder_relative", fs::proximate(folder, fs::absolute(run), code).string()},
                        {"plan", plan}}),
      OwnFile::Sealed);
}

/// The text of a file that a checkpoint names with its checksum; nothing if it names none and there is none.
Expected<std::optional<std::string>> readNamed(const std::string &run, const char *name,
                                                     const std::map<std::string, uint64_t> &files) {
  std::string path = fmt::format("{}/{}", run, name);
  auto wanted = files.find(name);
  std::error_code code;
  if (wanted == files.end() && !fs::exists(path, code))
    return std::optional<std::string>();
  auto text = readJsonText(path);
  if (!text)
    return text.status();
  if (wanted != files.end() && plan::hashBytes(text->data(), text->size()) != wanted->second)
    return error("{}: damaged or edited: its checksum is not the checkpoint's; bring the run's file back", path);
  return std::optional<std::string>(text.take());
}
} // namespace

/// The files that createRunFolder makes before it renames the folder.
static std::optional<OwnFile> kindsOfNewRun(const std::string &name) {
  return name == "lock"          ? std::optional(OwnFile::Lock)
         : name == "checkpoints" ? std::optional(OwnFile::Folder)
                                 : std::nullopt;
}

/// Removes temporary folders next to this one, left by processes that ended while they made it.
static void removeAbandoned(const fs::path &folder) {
  const std::string prefix = temporaryPrefix(folder.filename().string());
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  std::error_code code;
  std::vector<std::string> left;
  for (fs::directory_iterator entry(parent, code), end; !code && entry != end; entry.increment(code))
    if (const std::string name = entry->path().filename().string();
        name.starts_with(prefix) && ownerOfTemporary(name) &&
        entry->symlink_status(code).type() == fs::file_type::directory)
      left.push_back(name);
  for (const std::string &name : left)
    // The process number is valid only on this machine; the lock, on all machines that share the folder.
    if (const std::string path = (parent / name).string();
        ::kill(*ownerOfTemporary(name), 0) != 0 && errno == ESRCH && !RunLock::isHeld(path))
      (void)removeOwnFolder(path, kindsOfNewRun);
}

Expected<RunLock> tcc::runtime::createRunFolder(const std::string &run) {
  fs::path folder(run);
  if (!folder.has_filename())
    folder = folder.parent_path();
  if (folder.has_parent_path())
    if (Status status = makeFolders(folder.parent_path().string()); !status.ok())
      return status.withContext(run);
  std::error_code code;
  if (fs::exists(fs::symlink_status(folder, code)))
    return runExists(run);
  removeAbandoned(folder);
  const std::string prefix = (folder.parent_path() / temporaryPrefix(folder.filename().string())).string();
  std::string made;
  for (int i = 0; made.empty(); ++i) { // an earlier process of the same number may have left such a folder
    const std::string name = fmt::format("{}{}-{}.tmp", prefix, ::getpid(), i);
    auto isNew = makeNewFolder(name);
    if (!isNew)
      return isNew.status().withContext(run);
    if (*isNew)
      made = name;
  }
  auto lock = RunLock::acquire(made);
  Status status = lock ? makeFolders(made + "/checkpoints") : lock.status();
  // The rename decides between two processes that make the same run.
  if (status.ok())
    status = renameNew(made, folder.string());
  if (status.ok())
    return lock;
  (void)removeOwnFolder(made, kindsOfNewRun);
  return fs::exists(fs::symlink_status(folder, code)) ? runExists(run) : status.withContext(run);
}

Status tcc::runtime::runExists(const std::string &run) {
  std::error_code code;
  if (fs::is_directory(fs::symlink_status(run, code)) && fs::is_empty(run, code))
    return error("{}: exists already, and is empty: remove it (rmdir), since a run makes its folder itself, or give "
                 "another {}",
                 run, advice::option("out"));
  return error("{}: exists already; give another {}, or go on with it by {}", run, advice::option("out"),
               advice::option("resume", run));
}

/// True if the run's metrics record its end: then it had checkpoints.
static bool hasEnded(const std::string &run) {
  auto text = readFile(run + "/metrics.jsonl");
  bool ended = false;
  std::istringstream lines(text ? *text : "");
  for (std::string line; std::getline(lines, line);) {
    const json entry = parseJsonOrNull(line);
    if (auto end = entry.is_object() ? entry.find("end") : entry.end(); end != entry.end())
      ended = end->is_string() && !end->get<std::string>().starts_with("error: ");
    else if (entry.is_object() && entry.contains("loss"))
      ended = false;
  }
  return ended;
}

/// True for a folder as createRunFolder makes it, but with an empty lock file, as on a full disk.
static bool isBare(const std::string &run) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(run, code)))
    return false;
  for (fs::directory_iterator entry(run, code), end; !code && entry != end; entry.increment(code))
    if (const fs::path name = entry->path().filename();
        (name != "checkpoints" && name != "lock") || entry->is_symlink(code) ||
        entry->is_directory(code) == (name == "lock") ||
        (!entry->is_directory(code) && !entry->is_regular_file(code)) || !fs::is_empty(entry->path(), code))
      return false;
  return !code && fs::exists(run + "/lock", code);
}

Expected<bool> tcc::runtime::removeUnbegun(const std::string &run, const std::vector<std::string> &inputs) {
  auto options = readRunOptions(run);
  const bool begun = options && (*options || isRunFolder(run) || isBare(run));
  if (!begun || !checkpointSteps(run).empty() || hasEnded(run))
    return false;
  Status status = removeUnfinishedRun(run, inputs);
  return status.ok() ? Expected<bool>(true) : status;
}

Status tcc::runtime::keepPlan(const std::string &run, const plan::PlanReader &reader) {
  std::string path = planPathOf(run);
  std::error_code code;
  if (fs::exists(path, code)) {
    auto old = plan::PlanReader::open(path);
    if (old && old->checksum() == reader.checksum())
      return Status();
    if (old) {
      std::string older = olderPlanPathOf(run, old->checksum());
      if (std::string source = sourcePathOf(run, path); fs::exists(source, code))
        if (Status status = takeName(source, sourcePathOf(run, older), OwnFile::Sealed); !status.ok())
          return status;
      if (Status status = takeName(path, older, OwnFile::Plan); !status.ok())
        return status;
    }
  }
  auto isCopy = [&] {
    auto copy = plan::PlanReader::open(path);
    return copy && copy->checksum() == reader.checksum();
  };
  // The plan may be in memory alone, and a file may have been replaced since it was opened: then the opened bytes are
  // written.
  if (!copyFile(reader.path(), path, OwnFile::Plan).ok() || !isCopy()) {
    std::span<const std::byte> bytes = reader.bytes();
    if (Status status = writeFileAtomically(path, {reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                                            OwnFile::Plan);
        !status.ok())
      return status;
  }
  return writeSource(run, sourcePathOf(run, path), fs::absolute(reader.folder()).lexically_normal().string(),
                     fs::path(reader.path()).filename().string());
}

Expected<plan::PlanReader> tcc::runtime::openPlanOf(const std::string &run, const Manifest &manifest) {
  std::string path = planPathOf(run);
  // An export reads variables and the model, which are the same for every target.
  auto selected = [&](Expected<plan::PlanReader> reader) {
    if (!reader || reader->plan().targets().empty())
      return reader;
    Expected<uint32_t> target = plan::findTarget(*reader, manifest.run.target);
    reader->selectTarget(target ? *target : 0);
    return reader;
  };
  auto reader = plan::PlanReader::open(path);
  if (!manifest.run.plan || (reader && reader->checksum() == *manifest.run.plan))
    return selected(std::move(reader));
  auto older = plan::PlanReader::open(olderPlanPathOf(run, *manifest.run.plan));
  if (older && older->checksum() == *manifest.run.plan)
    return selected(std::move(older));
  if (!reader)
    return error("{}; put the run's plan back: tcc makes the same one from the same model, recipe and options",
                 reader.message());
  return error("{}: it is not the plan that the checkpoint of step {} was made with (its checksum is {}, the "
                     "checkpoint says {}); bring that plan back",
                     path, manifest.position.step, checksumText(reader->checksum()), checksumText(*manifest.run.plan));
}

Expected<std::map<std::string, uint64_t>> tcc::runtime::writeDataNotes(const std::string &run,
                                                                             const Dataset &dataset) {
  std::map<std::string, uint64_t> checksums;
  auto keep = [&](const char *name, const std::string &text) {
    checksums[name] = plan::hashBytes(text.data(), text.size());
    return writeFileAtomically(fmt::format("{}/{}", run, name), text, OwnFile::OfRun);
  };
  if (!dataset.vocabulary.empty()) {
    json characters = json::array();
    for (uint32_t point : dataset.vocabulary)
      characters.push_back(encodeUtf8(point));
    json notes = {{"tokens", "chars"}, {"characters", characters}, {"code_points", dataset.vocabulary}};
    if (Status status = keep(kVocabulary, jsonText(notes) + "\n");
        !status.ok())
      return status;
  }
  if (!dataset.classes.empty())
    if (Status status =
            keep(kClasses, jsonText(json(dataset.classes), 1) + "\n");
        !status.ok())
      return status;
  if (!dataset.facts.empty())
    if (Status status = keep(kColumns, factsText(dataset.facts)); !status.ok())
      return status;
  return checksums;
}

Expected<DataNotes> tcc::runtime::readDataNotes(const std::string &run,
                                                      const std::map<std::string, uint64_t> &files) {
  DataNotes notes;
  auto vocabulary = readNamed(run, kVocabulary, files);
  if (!vocabulary)
    return vocabulary.status();
  if (*vocabulary) {
    std::string path = fmt::format("{}/{}", run, kVocabulary);
    auto parsed = parseObject(**vocabulary, path);
    if (!parsed)
      return parsed.status();
    auto points = parsed->find("code_points");
    bool good = points != parsed->end() && points->is_array() && !points->empty();
    notes.vocabulary.emplace();
    for (size_t i = 0; good && i < points->size(); ++i) {
      constexpr uint64_t kLastCodePoint = 0x10ffff;
      const json &point = (*points)[i];
      good = point.is_number_unsigned() && point.get<uint64_t>() <= kLastCodePoint &&
             (i == 0 || point.get<uint64_t>() > notes.vocabulary->back());
      if (good)
        notes.vocabulary->push_back(point.get<uint32_t>());
    }
    if (!good)
      return error("{}: damaged: code_points is no ascending list of code points", path);
  }
  auto classes = readNamed(run, kClasses, files);
  if (!classes)
    return classes.status();
  if (*classes) {
    const json parsed = parseJsonOrNull(**classes);
    notes.classes.emplace();
    if (parsed.is_array())
      for (const json &name : parsed)
        if (name.is_string())
          notes.classes->push_back(name.get<std::string>());
    if (!parsed.is_array() || notes.classes->size() != parsed.size())
      return error("{}/{}: damaged: no list of class names", run, kClasses);
  }
  auto columns = readNamed(run, kColumns, files);
  if (!columns)
    return columns.status();
  if (*columns) {
    auto facts = parseFacts(**columns);
    if (!facts)
      return facts.status().withContext(fmt::format("{}/{}", run, kColumns));
    notes.facts = facts.take();
  }
  return notes;
}

Expected<DataNotes> tcc::runtime::readDataNotesOf(const std::string &from) {
  RunReference reference = parseRunReference(from);
  std::error_code code;
  if (from.empty() || !fs::is_directory(reference.run, code))
    return DataNotes();
  auto folder = findCheckpoint(reference);
  if (!folder)
    return folder.status();
  auto manifest = readManifest(*folder);
  if (!manifest)
    return manifest.status();
  return readDataNotes(reference.run, manifest->run.files);
}

std::string tcc::runtime::averagesText(const std::string &reference) {
  return fmt::format("{}: its averaged weights: the run's evaluate.best is a metric of these", reference);
}

Status tcc::runtime::checkClasses(const DataNotes &notes, const Dataset &dataset, const std::string &run) {
  if (!notes.classes || dataset.classes.empty() || *notes.classes == dataset.classes)
    return Status();
  NameList missing, unexpected;
  auto in = [](const std::vector<std::string> &names, const std::string &name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string &name : *notes.classes)
    if (!in(dataset.classes, name))
      missing.add(name);
  for (const std::string &name : dataset.classes)
    if (!in(*notes.classes, name))
      unexpected.add(name);
  return error("{}: its class folders are not those of {} ({} there, {} here){}{}, so labels would mean other "
                     "things; give it the same folders, empty ones where there are no images",
                     dataset.path, run, notes.classes->size(), dataset.classes.size(),
                     missing.empty() ? "" : "; missing are " + missing.text(),
                     unexpected.empty() ? "" : "; the run has no " + unexpected.text());
}

Expected<std::string> tcc::runtime::planFolderOf(const std::string &run, const std::string &planPath) {
  std::string path = sourcePathOf(run, planPath);
  std::error_code code;
  if (!fs::exists(path, code))
    return run;
  auto source = readSealed(path, /*allowUnsealed=*/true);
  if (!source)
    return source.status();
  auto text = [&](const char *key) {
    auto found = source->find(key);
    return found != source->end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string relative = run + "/" + text("plan_folder_relative"), absolute = text("plan_folder");
  // A run moved together with its model is found by the relative path, a run moved alone by the absolute one.
  if (fs::exists(relative, code))
    return relative;
  return absolute.empty() ? run : absolute;
}

Status tcc::runtime::copySources(const std::string &run, const std::string &folder) {
  std::error_code code;
  for (fs::directory_iterator entry(run, code), end; !code && entry != end; entry.increment(code)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with("plan") || !name.ends_with(".tplan"))
      continue;
    auto planFolder = planFolderOf(run, name);
    if (!planFolder)
      return planFolder.status();
    std::string absolute = fs::absolute(*planFolder).lexically_normal().string();
    if (Status status = writeSource(folder, sourcePathOf(folder, name), absolute, name); !status.ok())
      return status;
  }
  return Status();
}

Status tcc::runtime::exportRun(const std::string &text, const std::string &path, ExportOptions options, WeightSet set) {
  RunReference reference = parseRunReference(text);
  auto folder = findCheckpoint(reference);
  if (!folder)
    return folder.status();
  auto checkpoint = Checkpoint::open(*folder);
  if (!checkpoint)
    return checkpoint.status();
  auto reader = openPlanOf(reference.run, checkpoint->manifest());
  if (!reader)
    return reader.status();
  if (auto problems = plan::verifyPlan(reader->plan(), 1); !problems.empty())
    return error("{}: the plan is not sound: {}", reader->path(), problems.front());
  reader->joinShards();
  auto planFolder = planFolderOf(reference.run, reader->path());
  if (!planFolder)
    return planFolder.status();
  options.planFolder = *planFolder;
  if (auto meant = weightSetOf(reference); !meant)
    return meant.status();
  else if (*meant == WeightSet::Averages && set != WeightSet::Averages) {
    set = WeightSet::Averages;
    if (options.note)
      options.note(averagesText(text));
  }
  if (set == WeightSet::Averages)
    if (Status status = requireAverages(*checkpoint); !status.ok())
      return status;
  for (const plan::Variable &variable : reader->plan().variables()) {
    const ManifestTensor *tensor = checkpoint->find(variable.name());
    if (variable.role() == plan::PARAMETER && !tensor)
      return error("{}: damaged: parameter '{}' is missing", *folder, variable.name());
    if (tensor && plan::typeName(tensor->type) != plan::typeName(variable.type()))
      return error("{}: '{}' is {}, the run's plan says {}", *folder, variable.name(),
                         plan::typeName(tensor->type), plan::typeName(variable.type()));
  }
  TrainedValues trained;
  trained.has = [&](const plan::Variable &variable) { return checkpoint->find(variable.name()) != nullptr; };
  trained.stream = [&](const plan::Variable &variable, const ByteSink &sink) {
    const ManifestTensor &tensor = *findValue(*checkpoint, variable.name(), set);
    if (tensor.type.dtype() != variable.type().dtype())
      return sink(roundedBytes(*checkpoint, tensor, variable.type().dtype()));
    return checkpoint->stream(tensor, sink);
  };
  return exportWeights(*reader, trained, path, options);
}

std::string tcc::runtime::freeRunName(const std::string &planPath) {
  std::string base = fs::path(planPath).stem().string() + ".run", name = base;
  for (int i = 2; fs::exists(name); ++i)
    name = fmt::format("{}-{}", base, i);
  return name;
}

namespace {
constexpr const char *kCategories = "categories", *kMissing = "missing", *kStandardise = "standardise", *kMean = "mean",
                     *kDeviation = "std";

/// False: `list` is not a list of finite numbers.
bool readNumbers(const json &list, std::vector<double> &numbers) {
  if (!list.is_array())
    return false;
  for (const json &number : list) {
    if (!number.is_number() || !std::isfinite(number.get<double>()))
      return false;
    numbers.push_back(number.get<double>());
  }
  return true;
}

bool readNames(const json &list, std::vector<std::string> &names) {
  if (!list.is_array())
    return false;
  for (const json &name : list) {
    if (!name.is_string())
      return false;
    names.push_back(name.get<std::string>());
  }
  return true;
}
} // namespace

std::string tcc::runtime::factsText(const ColumnFacts &facts) {
  json whole = json::object();
  if (!facts.categories.empty())
    whole[kCategories] = facts.categories;
  if (!facts.fills.empty())
    whole[kMissing] = facts.fills;
  for (const auto &[name, standard] : facts.standards)
    whole[kStandardise][name] = {{kMean, standard.mean}, {kDeviation, standard.deviation}};
  return jsonText(whole, 1) + "\n";
}

Expected<ColumnFacts> tcc::runtime::parseFacts(const std::string &text) {
  const json whole = parseJsonOrNull(text);
  bool good = whole.is_object();
  ColumnFacts facts;
  auto tableOf = [&](const char *name) {
    auto found = good ? whole.find(name) : whole.end();
    if (!good || found == whole.end())
      return json::object();
    good = found->is_object();
    return good ? *found : json::object();
  };
  const json categories = tableOf(kCategories), missing = tableOf(kMissing), standards = tableOf(kStandardise);
  for (const auto &[name, list] : categories.items())
    good = good && readNames(list, facts.categories[name]);
  for (const auto &[name, list] : missing.items())
    good = good && readNumbers(list, facts.fills[name]);
  for (const auto &[name, one] : standards.items()) {
    ColumnFacts::Standard &standard = facts.standards[name];
    good = good && one.is_object() && one.contains(kMean) && one.contains(kDeviation) &&
           readNumbers(one[kMean], standard.mean) && readNumbers(one[kDeviation], standard.deviation) &&
           standard.mean.size() == standard.deviation.size();
    for (double deviation : standard.deviation)
      good = good && deviation > 0;
  }
  if (!good)
    return error("damaged: no facts of columns");
  return facts;
}

namespace {
/// The files of a run without checkpoints. `marked`: the folder has a file with trun's mark, so files of known names
/// without a mark count as trun's, too.
KindOfName kindsInRun(bool marked) {
  return [marked](const std::string &name) -> std::optional<OwnFile> {
    const std::optional<OwnFile> unmarked = marked ? std::optional(OwnFile::OfRun) : std::nullopt;
    if (name == "checkpoints" || name == "ranks")
      return OwnFile::Folder;
    if (name == "lock")
      return OwnFile::Lock;
    if (name.starts_with("plan") && name.ends_with(".tplan"))
      return OwnFile::Plan;
    if (name == "run.json" || name == "algorithms.json" || (name.starts_with("source") && name.ends_with(".json")))
      return OwnFile::Sealed;
    if (name == "metrics.jsonl" || name == "log.txt" || name == "vocabulary.json" || name == "classes.json" ||
        name == "columns.json" ||
        (name.starts_with("events.out.tfevents.") && name.ends_with(".tcc")))
      return unmarked;
    return std::nullopt;
  };
}
} // namespace

Status tcc::runtime::removeUnfinishedRun(const std::string &run, const std::vector<std::string> &inputs) {
  std::error_code code;
  const fs::path folder = fs::canonical(run, code);
  for (const std::string &input : inputs)
    for (fs::path path = fs::weakly_canonical(input, code); !path.empty() && path != path.root_path();
         path = path.parent_path())
      if (path == folder)
        return error("{}: it holds {}, which this command reads; give another {}", run, input,
                     advice::option("out"));
  const bool marked = isRunFolder(run); // checked before this process adds its lock file
  auto lock = RunLock::acquire(run);
  if (!lock)
    return lock.status();
  if (!checkpointSteps(run).empty()) // written by a process that has just ended
    return error("{}: another process has written a checkpoint; give the command again", run);
  const KindOfName kinds = kindsInRun(marked);
  removeUnfinished(run);
  auto inside = [marked](const std::string &name) {
    return marked && (name == "best.json" || (name.starts_with("rank-") && name.ends_with(".log")))
               ? std::optional(OwnFile::OfRun)
               : std::nullopt;
  };
  auto refuse = [&](const std::string &entry) {
    return error("{}: it has no checkpoint to go on from, and holds {}, which trun did not write; move it elsewhere",
                 run, entry);
  };
  for (const char *folder : {"checkpoints", "ranks"})
    if (const std::string path = fmt::format("{}/{}", run, folder); fs::exists(fs::symlink_status(path, code)))
      if (std::string entry = foreignEntry(path, inside); !entry.empty())
        return refuse(fmt::format("{}/{}", folder, entry));
  if (std::string entry = foreignEntry(run, kinds); !entry.empty())
    return refuse(entry);
  for (const char *folder : {"checkpoints", "ranks"})
    if (const std::string path = fmt::format("{}/{}", run, folder); fs::exists(fs::symlink_status(path, code)))
      if (Status status = removeOwnFolder(path, inside); !status.ok())
        return status;
  return removeOwnFolder(run, kinds);
}

// A run that is resumed from an earlier checkpoint, or from the last one after a crash, repeats its later updates.
// Their old records move to RUN/superseded/N, so that the run is a single sequence of updates again, and RUN@last and
// the curve in metrics.jsonl belong to one training. If it contains checkpoints, the folder has the form of a run,
// which can be exported and resumed.

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
