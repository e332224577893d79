//===- RunFolder.h - the folder that a training run leaves ---------------===//
//
// RUN/plan.tplan (the plan; a hard link where the disk allows), source.json (where the plan was compiled, so that
// external weights are found), vocabulary.json or classes.json (what the data's numbers mean), metrics.jsonl, log.txt,
// checkpoints/, model.onnx.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNFOLDER_H
#define TCC_RUNTIME_TRAIN_RUNFOLDER_H

#include "runtime/data/Dataset.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/state/Export.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Makes the folder and puts the plan into it. Error: it exists, or cannot be written.
plan::Status createRunFolder(const std::string &run, const plan::PlanReader &reader);

/// Keeps what the data's numbers mean: the text's vocabulary, the images' classes.
plan::Status writeDataNotes(const std::string &run, const Dataset &dataset);

/// The vocabulary of the run's training text, if it has one.
plan::Expected<std::optional<std::vector<uint32_t>>> readVocabulary(const std::string &run);

/// The folder that the run's plan was compiled in: absolute path, or else relative to the run, as source.json says.
std::string planFolderOf(const std::string &run);

/// Is the plan the one that lies in the run folder, byte for byte?
bool isPlanOfRun(const std::string &run, const plan::PlanReader &reader);

/// Writes the weights of RUN[@…] as `path` (`trun export`).
plan::Status exportRun(const std::string &reference, const std::string &path, bool keepMode);

/// A free name for a run of that plan in the current folder: "model.run", "model.run-2", ….
std::string freeRunName(const std::string &planPath);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNFOLDER_H
