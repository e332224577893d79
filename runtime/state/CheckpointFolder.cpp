//===- CheckpointFolder.cpp - find the checkpoints that a run wrote -------===//
#include "runtime/state/CheckpointFolder.h"
#include "runtime/state/Checkpoint.h"

#include <filesystem>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
namespace fs = std::filesystem;

static bool isOwn(const std::string &folder, uint64_t step) {
  std::error_code code;
  if (!fs::is_directory(fs::symlink_status(folder, code)))
    return false;
  auto manifest = readManifest(folder);
  if (!manifest || manifest->position.step != step)
    return false;
  std::set<std::string> listed = {"manifest.json"};
  for (const auto &shard : manifest->shards)
    listed.insert(shard.file);
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    std::error_code ignored;
    if (!listed.contains(entry->path().filename().string()) || !fs::is_regular_file(entry->symlink_status(ignored)))
      return false;
  }
  return !code;
}

std::vector<uint64_t> tcc::runtime::ownCheckpointSteps(const std::string &run) {
  std::vector<uint64_t> steps = checkpointSteps(run);
  std::erase_if(steps,
                [&](uint64_t step) { return !isOwn(fmt::format("{}/checkpoints/step-{}", run, step), step); });
  return steps;
}
