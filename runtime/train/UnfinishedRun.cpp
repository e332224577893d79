//===- UnfinishedRun.cpp - remove a run that has no checkpoint --------------===//
#include "runtime/train/UnfinishedRun.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/RunLock.h"
#include "support/Advice.h"

#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;

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
    return error("{}: it has no checkpoint to go on from, and holds {}, which trun did not write; move it elsewhere", run,
                 entry);
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
