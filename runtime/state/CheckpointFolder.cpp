//===- CheckpointFolder.cpp - find the checkpoints that a run wrote -------===//
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/Checkpoint.h"
#include "support/Advice.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;

namespace {
/// The files listed by a valid checkpoint for that step.
std::optional<std::set<std::string>> listedIn(const std::string &folder, uint64_t step) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(folder, code)))
    return std::nullopt;
  auto manifest = readManifest(folder);
  if (!manifest || manifest->position.step != step)
    return std::nullopt;
  std::set<std::string> listed = {"manifest.json"};
  for (const auto &shard : manifest->shards)
    listed.insert(shard.file);
  return listed;
}

/// A shard that the manifest lists counts as trun's own file.
KindOfName kindsOf(const std::set<std::string> &listed) {
  return [&listed](const std::string &name) {
    return listed.contains(name) ? std::optional(OwnFile::OfRun) : std::nullopt;
  };
}

/// Removes leading digits; false if there are none.
bool skipNumber(std::string_view &text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(end);
  return end != 0;
}
} // namespace

bool tcc::runtime::isOwnCheckpoint(const std::string &folder, uint64_t step) {
  auto listed = listedIn(folder, step);
  return listed && foreignEntry(folder, kindsOf(*listed)).empty();
}

Status tcc::runtime::removeCheckpointFolder(const std::string &folder, uint64_t step) {
  auto listed = listedIn(folder, step);
  return listed ? removeOwnFolder(folder, kindsOf(*listed))
                : error("{}: it is no checkpoint of step {} that the run wrote, so it is not removed", folder, step);
}

std::optional<OwnFile> tcc::runtime::kindInUnfinished(const std::string &name) {
  if (name == "manifest.json")
    return OwnFile::Sealed;
  constexpr std::string_view kRank = "state.rank-", kEnd = ".safetensors";
  std::string_view rest = name;
  if (rest.starts_with(kRank))
    rest.remove_prefix(kRank.size());
  else
    return name == "state.safetensors" ? std::optional(OwnFile::Checkpoint) : std::nullopt;
  return skipNumber(rest) && rest == kEnd ? std::optional(OwnFile::Checkpoint) : std::nullopt;
}

bool tcc::runtime::isRunFolder(const std::string &folder) {
  // Of the files that a new run makes, the lock is the first and run.json the last.
  return isOwnFile(folder + "/run.json", OwnFile::Sealed) || isOwnFile(folder + "/lock", OwnFile::Lock);
}

Status tcc::runtime::noRunFolder(const std::string &path) {
  std::error_code code;
  if (!fs::exists(path, code))
    return error("{}: no such run folder", path);
  if (fs::exists(fs::path(path) / "sweep.json", code))
    return error("{}: it is the folder of a sweep, not of one run; give one of its runs, such as {}/1", path, path);
  const fs::path place = fs::absolute(path, code).lexically_normal();
  const fs::path entry = place.has_filename() ? place : place.parent_path();
  constexpr int kMostParents = 3;
  fs::path run = entry.parent_path();
  for (int i = 0; i < kMostParents && run.has_relative_path(); ++i, run = run.parent_path()) {
    if (!isRunFolder(run.string()))
      continue;
    const std::string name = entry.filename().string();
    std::string_view step = name;
    const bool isStep = name.starts_with("step-") && (step.remove_prefix(5), skipNumber(step)) && step.empty();
    return error("{}: it is a part of the run {}; give {}{}", path, run.string(), run.string(),
                 isStep ? "@" + name.substr(5) : "");
  }
  return error("{}: it is no run folder: it has neither run.json nor a lock that trun wrote; give the folder that {} "
               "named",
               path, advice::run("out"));
}

bool tcc::runtime::isHiddenName(const std::string &name) {
  constexpr std::string_view kBegin = ".step-";
  std::string_view rest = name;
  if (!rest.starts_with(kBegin))
    return false;
  rest.remove_prefix(kBegin.size());
  if (!skipNumber(rest) || !rest.starts_with('.'))
    return false;
  rest.remove_prefix(1);
  return skipNumber(rest) && (rest == ".tmp" || rest == ".removed");
}

std::vector<uint64_t> tcc::runtime::ownCheckpointSteps(const std::string &run) {
  std::vector<uint64_t> steps = checkpointSteps(run);
  std::erase_if(
      steps, [&](uint64_t step) { return !isOwnCheckpoint(fmt::format("{}/checkpoints/step-{}", run, step), step); });
  return steps;
}
