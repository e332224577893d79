//===- CheckpointFolder.cpp - find the checkpoints that a run wrote -------===//
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/Checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;

namespace {
/// The files of a sound checkpoint of that step.
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

/// The manifest is the mark of the shards that it lists.
KindOfName kindsOf(const std::set<std::string> &listed) {
  return [&listed](const std::string &name) {
    return listed.contains(name) ? std::optional(OwnFile::OfRun) : std::nullopt;
  };
}

/// Takes digits; false where there is none.
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
  std::erase_if(steps,
                [&](uint64_t step) { return !isOwnCheckpoint(fmt::format("{}/checkpoints/step-{}", run, step), step); });
  return steps;
}
