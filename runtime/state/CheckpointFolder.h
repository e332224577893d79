//===- CheckpointFolder.h - find the checkpoints that a run wrote ---------===//
#ifndef TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H
#define TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H

#include <cstdint>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Steps of the checkpoints that a run itself wrote, ascending: folders, not links, whose manifest is sound and of that
/// step and that hold the files it lists and nothing else. What a user put there is none of them.
std::vector<uint64_t> ownCheckpointSteps(const std::string &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINTFOLDER_H
