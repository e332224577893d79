//===- CheckpointFolder.h - find the checkpoints that a run wrote ---------===//
#ifndef TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H
#define TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H

#include "support/OwnFiles.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Steps of the checkpoints that a run itself wrote, ascending: folders, not links, with a valid manifest for that step
/// and exactly the files that it lists. Files that a user put there do not count.
std::vector<uint64_t> ownCheckpointSteps(const std::string &run);

/// The same test for one folder, whatever its name.
bool isOwnCheckpoint(const std::string &folder, uint64_t step);

/// Removes such a folder. Error: it is no such folder, and is kept; or the system's reason.
Status removeCheckpointFolder(const std::string &folder, uint64_t step);

/// True for a folder that trun made for a run: its run.json or its lock has trun's mark.
bool isRunFolder(const std::string &folder);

/// The error that a path is no run folder: it says what the path is, and which run may be meant.
Status noRunFolder(const std::string &path);

/// The files that an unfinished checkpoint holds.
std::optional<OwnFile> kindInUnfinished(const std::string &name);

/// True for ".step-N.PID.tmp" and ".step-N.PID.removed", folders of checkpoints that are being written or removed.
bool isHiddenName(const std::string &name);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H
