//===- RunFolder.h - the folder that a training run leaves ---------------===//
//
// RUN/plan.tplan (a copy of the plan), source.json (where the plan was compiled, so that external weights are found),
// vocabulary.json, classes.json or columns.json (the meaning of the data's numbers), run.json (the options),
// algorithms.json (AlgorithmRecord.h), metrics.jsonl, log.txt, lock, checkpoints/, superseded/ (files that a resume
// from an earlier checkpoint replaced), model.onnx. docs/guide/checkpoints.md has the whole list.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_RUNFOLDER_H
#define TCC_RUNTIME_TRAIN_RUNFOLDER_H

#include "runtime/data/Dataset.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Export.h"
#include "runtime/state/RunLock.h"
#include "runtime/train/Goal.h"
#include "support/Status.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Makes the folder of a new run, and takes its lock. The folder is renamed to `run` only after the lock is inside, so
/// a run is never an empty folder, whatever ends the process. Error: it exists, or cannot be written.
Expected<RunLock> createRunFolder(const std::string &run);

/// The error that a file or folder of this name exists.
Status runExists(const std::string &run);

/// Removes a run that was interrupted, at any point, before its first checkpoint, so that it can start again. False,
/// and nothing is removed, if the folder is no such run. Error: as removeUnfinishedRun.
Expected<bool> removeUnbegun(const std::string &run, const std::vector<std::string> &inputs);

/// Makes RUN/plan.tplan a copy of the plan. If the run had another plan, that is kept as plan-CHECKSUM.tplan, for the
/// checkpoints that were made with it.
Status keepPlan(const std::string &run, const plan::PlanReader &reader);

/// Opens the plan that a checkpoint of the run was made with. Error: it is gone, or was replaced by another.
Expected<plan::PlanReader> openPlanOf(const std::string &run, const Manifest &manifest);

/// Writes the files that give the data's numbers their meaning: the text's vocabulary, the images' classes, facts of
/// columns. Returns the files' checksums by name.
Expected<std::map<std::string, uint64_t>> writeDataNotes(const std::string &run, const Dataset &dataset);

/// The vocabulary of the run's training text, the classes of its images and the facts of its columns, if it has them.
/// `files` are the checksums that a checkpoint holds (RunRecord::files). Error: missing, damaged, or not the file that
/// the checkpoint names.
struct DataNotes {
  std::optional<std::vector<uint32_t>> vocabulary;
  std::optional<std::vector<std::string>> classes;
  ColumnFacts facts;
};
Expected<DataNotes> readDataNotes(const std::string &run, const std::map<std::string, uint64_t> &files);

/// The same for the checkpoint that --init names; empty for a file of weights.
Expected<DataNotes> readDataNotesOf(const std::string &from);

/// For a note: the weights of RUN@best are averages.
std::string averagesText(const std::string &reference);

/// Checks that labels of the data set mean the same as in the run. Error: its class folders differ.
Status checkClasses(const DataNotes &notes, const Dataset &dataset, const std::string &run);

/// The folder that the plan of a run, as openPlanOf gave it, was compiled in.
Expected<std::string> planFolderOf(const std::string &run, const std::string &planPath);

/// Writes the source files of the run's plans for a folder inside it that holds the same plans.
Status copySources(const std::string &run, const std::string &folder);

/// Moves all records of updates after `position` to RUN/superseded/N: lines of metrics.jsonl, checkpoints, and the best
/// one, by the metric `best`, if it is among them. Returns a message about it; none if there was nothing to move. Only
/// for the holder of the run's lock.
Expected<std::optional<Message>> supersedeAfter(const std::string &run, const MetricGoal &best,
                                                TrainingPosition &position);

/// Copies the evaluations up to `step` from a run's metrics into a new run that continues from there.
Status inheritEvaluations(const std::string &from, const std::string &to, uint64_t step);

/// Writes the weights of RUN[@…] as `path` (`trun export`). `options` need no planFolder.
Status exportRun(const std::string &reference, const std::string &path, ExportOptions options = {},
                 WeightSet set = WeightSet::Last);

/// A free name for a run of that plan in the current folder: "model.run", "model.run-2", ….
std::string freeRunName(const std::string &planPath);

/// The text of columns.json: facts derived from the run's training data, which are categories of columns, means that
/// replace missing values, and constants of `standardise`. Numbers are written so that they read back as the same bits.
std::string factsText(const ColumnFacts &facts);
/// The inverse of factsText. Error: malformed; the message lacks the file's name.
Expected<ColumnFacts> parseFacts(const std::string &text);

/// Removes the folder of a run that ended before its first checkpoint, if it contains only files that trun wrote.
/// Error, and nothing is removed: the folder contains other files or one of the command's `inputs`, or a process trains
/// in it.
Status removeUnfinishedRun(const std::string &run, const std::vector<std::string> &inputs);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_RUNFOLDER_H
